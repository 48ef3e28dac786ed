"""Synthetic images of coloured shapes with captions: a data set that needs no download, learnt in minutes."""

import colorsys
import csv
import hashlib
import io
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from tfsparsecap.captioning.data import caption_table
from tfsparsecap.captioning.data.records import SPLITS, CaptionData
from tfsparsecap.core.files import cache_folder, read_json, temporary_folder, write_errors
from tfsparsecap.errors import InputError

#: Hue, saturation and value of the colours, before random variation.
COLOURS = {
    "red": (0.995, 0.86, 0.86),
    "orange": (0.077, 0.95, 0.97),
    "yellow": (0.145, 0.88, 0.97),
    "green": (0.36, 0.75, 0.62),
    "blue": (0.60, 0.80, 0.85),
    "purple": (0.765, 0.66, 0.68),
    "pink": (0.915, 0.45, 0.98),
}
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross")
#: Smallest and largest diameter of a shape, as fractions of the image.
SIZES = {"small": (0.22, 0.27), "large": (0.36, 0.42)}

#: Relation of the first thing to the second, the inverse relation, and both with "it".
RELATIONS = {
    "left": ("to the left of", "to the right of", "to its left", "to its right"),
    "above": ("above", "below", "above it", "below it"),
    "inside": ("inside", "around", "inside it", "around it"),
}

# Part of every folder's description: increase it when the same arguments draw something else.
_FORMAT = 2
_OVERSAMPLING = 4


@dataclass(frozen=True)
class Thing:
    """A shape in a scene."""

    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.size} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """One thing, or two and the relation of the first to the second: left of it, above it or inside it.

    The first is always the left, upper or inner one, so that each image is one scene.
    """

    first: Thing
    second: Thing | None = None
    relation: str = ""

    def captions(self) -> tuple[str, ...]:
        """All five correct captions of the scene.

        They have the same five forms for every scene, so that a caption is correct if it is one of them.

        Examples:
            >>> scene = Scene(Thing("small", "red", "star"), Thing("large", "blue", "heart"), "left")
            >>> scene.captions()[0]
            'a small red star to the left of a large blue heart'
        """
        if self.second is None:
            return (
                f"a {self.first}",
                f"there is a {self.first}",
                f"one {self.first}",
                f"a {self.first} on its own",
                f"a {self.first} and nothing else",
            )
        forth, back, forth_of_it, back_of_it = RELATIONS[self.relation]
        return (
            f"a {self.first} {forth} a {self.second}",
            f"a {self.second} {back} a {self.first}",
            f"a {self.first} with a {self.second} {back_of_it}",
            f"a {self.second} with a {self.first} {forth_of_it}",
            f"there is a {self.first} {forth} a {self.second}",
        )

    def split(self) -> str:
        """The split of this combination of things; each combination is in one split."""
        things = sorted(str(thing) for thing in (self.first, self.second) if thing)
        number = hashlib.sha256(" | ".join(things).encode()).digest()[0]
        return "test" if number < 26 else "validation" if number < 39 else "train"


def draw(
    folder: str | os.PathLike | None = None,
    *,
    train: int = 5000,
    validation: int = 200,
    test: int = 400,
    image_size: int = 96,
    seed: int = 0,
) -> CaptionData:
    """Draws a data set of scenes into a folder, or reads it if it was drawn before.

    A scene has one or two shapes of 7 colours, 6 forms and 2 sizes on a random background. Every scene has
    five captions, and a caption is correct if it is one of them. Combinations of things of the test split
    never occur in training. Equal arguments draw equal images.

    Args:
        folder: for `Images/*.jpg` and `captions.csv`, in the format of `data.caption_table`; None is
            a folder named after the arguments in the user's cache (`$XDG_CACHE_HOME` or `~/.cache`).
        train, validation, test: number of scenes of each split.
        image_size: side of the images in pixels, at least 32.
        seed: seed of all random choices.

    Raises:
        InputError: the folder has other contents, the disk is full (no partial files remain), or an
            argument is too small.

    Examples:
        >>> data = draw("scenes", train=8, validation=1, test=1)
        >>> len(data.split("train")), len(data.records[0].captions)
        (8, 5)
    """
    counts = dict(zip(SPLITS, (train, validation, test), strict=True))
    if image_size < 32 or min(counts.values()) < 0 or sum(counts.values()) == 0:
        raise InputError(
            f"cannot draw {train}/{validation}/{test} scenes of {image_size} pixels: "
            "set at least one scene and 32 pixels"
        )
    if folder is None:
        folder = cache_folder() / f"scenes-{train}-{validation}-{test}-{image_size}px-seed{seed}-v{_FORMAT}"
    folder = Path(folder)
    description = {"format": _FORMAT, **counts, "image_size": image_size, "seed": seed}
    if not _is_complete(folder, description):
        _draw_folder(folder, description, counts, image_size, seed)
    return caption_table.load(folder, "captions.csv")


def random_scene(random: np.random.Generator, split: str) -> Scene:
    """A random scene of a split: two things with probability 0.8, else one."""
    while True:
        first, second = (
            Thing(
                str(random.choice(list(SIZES))), str(random.choice(list(COLOURS))), str(random.choice(SHAPES))
            )
            for _ in range(2)
        )
        if random.random() < 0.2:
            scene = Scene(first)
        elif first == second:
            continue
        elif first.size == "small" and second.size == "large" and random.random() < 0.4:
            if first.colour == second.colour:
                continue
            scene = Scene(first, second, "inside")
        else:
            scene = Scene(first, second, str(random.choice(["left", "above"])))
        if scene.split() == split:
            return scene


def paint(scene: Scene, image_size: int, random: np.random.Generator) -> Image.Image:
    """An image of a scene, RGB, with random position, tilt, shades and background."""
    image = _background(image_size, random)
    things = [thing for thing in (scene.first, scene.second) if thing]
    sizes = [random.uniform(*SIZES[thing.size]) for thing in things]
    if scene.relation == "inside":
        sizes = [0.88 * sizes[0], 1.35 * sizes[1]]
    places = _places(scene, sizes, random)
    # From the last to the first, because the second thing may surround the first.
    for thing, place, size in reversed(list(zip(things, places, sizes, strict=True))):
        _paint_thing(image, thing, place, size, random)
    return image


def _places(scene: Scene, sizes: list[float], random: np.random.Generator) -> list[tuple[float, float]]:
    """Centres (x, y) of the things, as fractions of the image."""

    def anywhere(size: float) -> float:
        return random.uniform(size / 2 + 0.02, 0.98 - size / 2)

    if scene.second is None:
        return [(anywhere(sizes[0]), anywhere(sizes[0]))]
    if scene.relation == "inside":
        x, y = anywhere(sizes[1]), anywhere(sizes[1])
        # The centre of a triangle is lower than that of its box.
        return [(x, y + (0.08 * sizes[1] if scene.second.shape == "triangle" else 0)), (x, y)]
    free = 0.96 - sum(sizes)
    gap = random.uniform(0.04, max(0.05, 0.7 * free))
    start = random.uniform(0.02, max(0.03, 0.98 - sum(sizes) - gap))
    along = [start + sizes[0] / 2, start + sizes[0] + gap + sizes[1] / 2]
    # Much less offset across than along, so that left is never nearly above.
    across = [anywhere(sizes[0])]
    shift = random.uniform(-0.35, 0.35) * (along[1] - along[0])
    across.append(float(np.clip(across[0] + shift, sizes[1] / 2 + 0.02, 0.98 - sizes[1] / 2)))
    reach = 0.45 * (along[1] - along[0])
    across[0] = float(np.clip(across[0], across[1] - reach, across[1] + reach))
    places = list(zip(along, across, strict=True))
    return places if scene.relation == "left" else [(x, y) for y, x in places]


def _background(size: int, random: np.random.Generator) -> Image.Image:
    """A gradient of two pale or dark shades, soft clouds and a little noise."""
    dark = random.random() < 0.3
    hue = random.random()
    shades = []
    for _ in range(2):
        saturation, value = random.uniform(0.02, 0.22), random.uniform(0.80, 0.98)
        if dark:
            saturation, value = random.uniform(0.1, 0.45), random.uniform(0.10, 0.24)
        shades.append(colorsys.hsv_to_rgb((hue + random.uniform(-0.12, 0.12)) % 1, saturation, value))
    angle = random.uniform(0, 2 * math.pi)
    across, down = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))
    blend = (0.5 + 0.35 * (across * math.cos(angle) + down * math.sin(angle)))[..., None]
    pixels = 255 * (np.array(shades[0]) * (1 - blend) + np.array(shades[1]) * blend)
    coarse = random.normal(size=(6, 6)).astype(np.float32)
    clouds = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC))
    grain = random.normal(0, random.uniform(0.5, 3.5), size=(size, size))
    pixels += (random.uniform(1, 8) * clouds + grain)[..., None]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def _outline(shape: str) -> list[tuple[float, float]]:
    """The corners of a shape in a box from -0.5 to 0.5."""
    if shape == "circle":
        turns = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        return [(0.5 * math.cos(t), 0.5 * math.sin(t)) for t in turns]
    if shape == "square":
        return [(-0.44, -0.44), (0.44, -0.44), (0.44, 0.44), (-0.44, 0.44)]
    if shape == "triangle":
        return [(0, -0.5), (0.52, 0.42), (-0.52, 0.42)]
    if shape == "star":
        radii = [0.54 if corner % 2 == 0 else 0.25 for corner in range(10)]
        return [(r * math.sin(k * math.pi / 5), -r * math.cos(k * math.pi / 5)) for k, r in enumerate(radii)]
    if shape == "heart":
        turns = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        return [
            (
                0.5 * math.sin(t) ** 3,
                -0.05 - (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 32,
            )
            for t in turns
        ]
    arm = 0.17
    return [
        (-arm, -0.5), (arm, -0.5), (arm, -arm), (0.5, -arm), (0.5, arm), (arm, arm),
        (arm, 0.5), (-arm, 0.5), (-arm, arm), (-0.5, arm), (-0.5, -arm), (-arm, -arm),
    ]  # fmt: skip


def _paint_thing(
    image: Image.Image, thing: Thing, place: tuple[float, float], size: float, random: np.random.Generator
) -> None:
    side = image.width
    tilt = random.uniform(-0.2, 0.2)
    scale = _OVERSAMPLING * side
    corners = [
        (
            scale * (place[0] + size * (x * math.cos(tilt) - y * math.sin(tilt))),
            scale * (place[1] + size * (x * math.sin(tilt) + y * math.cos(tilt))),
        )
        for x, y in _outline(thing.shape)
    ]
    mask = Image.new("L", (scale, scale))
    ImageDraw.Draw(mask).polygon(corners, fill=255)
    mask = mask.reduce(_OVERSAMPLING)

    shadow = mask.filter(ImageFilter.GaussianBlur(side / 60)).point(lambda value: value * 0.35)
    offset = round(side / 50)
    image.paste((0, 0, 0), (offset, offset), shadow)

    hue, saturation, value = COLOURS[thing.colour]
    hue = (hue + random.uniform(-0.012, 0.012)) % 1
    saturation = min(1, saturation * random.uniform(0.93, 1.05))
    value = min(1, value * random.uniform(0.93, 1.03))
    colour = np.array(colorsys.hsv_to_rgb(hue, saturation, value))
    # Light from above: a little brighter at the top.
    light = np.linspace(1.1, 0.88, side)[:, None, None]
    filling = (255 * colour * light).clip(0, 255).astype(np.uint8).repeat(side, axis=1)
    image.paste(Image.fromarray(filling), (0, 0), mask)


def _is_complete(folder: Path, description: dict) -> bool:
    if not folder.exists():
        if folder.is_symlink():
            raise InputError(f"{folder} is a symbolic link to nothing: choose another folder for the scenes")
        return False
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: choose a folder for the scenes")
    if not any(folder.iterdir()):
        return False
    try:
        existing_description = read_json(folder / "scenes.json", "")
    except InputError:
        existing_description = None
    if existing_description != description:
        is_scenes = isinstance(existing_description, dict)
        what = "scenes drawn with other settings" if is_scenes else "something else"
        raise InputError(f"{folder} contains {what}: choose another folder for the scenes, or empty it")
    return True


def _draw_folder(folder: Path, description: dict, counts: dict[str, int], image_size: int, seed: int) -> None:
    jobs = [(split, number) for split in SPLITS for number in range(counts[split])]

    def draw_scene(job: tuple[str, int]) -> tuple[str, str, Scene, bytes]:
        split, number = job
        random = np.random.default_rng([seed, SPLITS.index(split), number])
        scene = random_scene(random, split)
        content = io.BytesIO()
        paint(scene, image_size, random).save(content, "JPEG", quality=92, subsampling=0)
        return f"{split}_{number:05d}.jpg", split, scene, content.getvalue()

    with write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder) as temporary:
            temporary.chmod(0o755)
            (temporary / "Images").mkdir()
            with (temporary / "captions.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["image", "caption", "split"])
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    for name, split, scene, content in threads.map(draw_scene, jobs):
                        (temporary / "Images" / name).write_bytes(content)
                        writer.writerows([name, caption, split] for caption in scene.captions())
            (temporary / "scenes.json").write_text(json.dumps(description), encoding="utf-8")
            try:
                if folder.exists():
                    folder.rmdir()  # empty, as _is_complete found
                temporary.rename(folder)
            except OSError:
                if not _is_complete(folder, description):  # another process has drawn the same scenes
                    raise
