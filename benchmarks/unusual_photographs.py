"""Photographs at night and X-rays: kinds of `unusual_images`."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from benchmarks.unusual_drawings import Drawn, Points, Random, box, grained, oval, pick


def night(image: Image.Image, random: Random) -> Image.Image:
    """A photograph as if it were taken at night: dark, with a cast, a vignette, noise, and some lamps."""
    pixels = (np.asarray(image, np.float32) / 255) ** random.uniform(1.4, 1.9) * random.uniform(0.4, 0.65)
    pixels *= pick(random, [(0.55, 0.75, 1.1), (1.15, 0.8, 0.45)])
    y, x = np.mgrid[: image.height, : image.width] / max(image.size)
    middle, low = image.width / 2 / max(image.size), image.height / 2 / max(image.size)
    pixels *= np.exp(-2.5 * ((x - middle) ** 2 + (y - low) ** 2))[..., None]
    for _ in range(random.integers(2, 5)):
        far = np.hypot(x - random.uniform(0, 2 * middle), y - random.uniform(0, 0.7 * low))
        size = random.uniform(0.012, 0.022)
        glow = 0.9 * np.exp(-((far / size) ** 2)) + 0.35 / (1 + (far / size / 1.5) ** 2)
        pixels += glow[..., None] * (1.0, 0.85, 0.55)
    pixels = 255 * pixels + random.normal(0, 9, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


class _Film:
    """Adds up the brightness of soft shapes, whose unit of length is the height of the film.

    Args:
        size: width and height in pixels.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.light = np.zeros(size[::-1], np.float32)

    def add(self, shapes: Sequence[Points], brightness: float, blur: float, line: float = 0) -> None:
        """Adds shapes, which do not add up to each other; with a line, only their outlines."""
        layer, scale = Image.new("L", self.size), self.size[1]
        draw = ImageDraw.Draw(layer)
        for shape in shapes:
            corners = [(x * scale, y * scale) for x, y in shape]
            if line:
                draw.line(corners, 255, max(1, round(line * scale)), "curve")
            else:
                draw.polygon(corners, 255)
        soft = layer.filter(ImageFilter.GaussianBlur(blur * scale))
        self.light += np.asarray(soft, np.float32) / 255 * brightness

    def bone(
        self, start: Sequence[float], end: Sequence[float], width: float, brightness: float = 0.5
    ) -> None:
        """A bone with wider ends and a bright rim."""
        along = np.linspace(-1, 1, 40)
        half = width / 2 * (0.62 + 0.38 * along**4) * np.minimum(1, np.sqrt(1.02 - along**2) * 2.2)
        (x0, y0), (x1, y1) = start, end
        length = math.hypot(x1 - x0, y1 - y0)
        across = np.array([y0 - y1, x1 - x0]) / length
        middle = np.stack([x0 + (along + 1) / 2 * (x1 - x0), y0 + (along + 1) / 2 * (y1 - y0)], 1)
        left, right = middle + half[:, None] * across, middle - half[:, None] * across
        outline = list(map(tuple, [*left.tolist(), *right[::-1].tolist(), *left[:1].tolist()]))
        self.add([outline], brightness * 0.6, 0.004)
        self.add([outline], brightness * 0.5, 0.003, 0.008)


def _both(c: float, right: Points) -> Points:
    """A shape that is symmetrical to the line x = c, from the points of its right half."""
    return [(c + x, y) for x, y in right] + [(c - x, y) for x, y in reversed(right)]


def _chest(film: _Film, random: Random) -> list[str]:
    c = film.size[0] / film.size[1] / 2
    film.add([_both(c, [(0.08, -0.1), (0.12, 0.1), (0.5, 0.3), (0.45, 1.1)])], 0.62, 0.03)
    lung = [(0.05, 0.24), (0.12, 0.13), (0.2, 0.17), (0.28, 0.4), (0.33, 0.75), (0.2, 0.72), (0.07, 0.76)]
    for s in (-1, 1):
        film.add([[(c + s * x, y) for x, y in lung]], -0.45, 0.02)
        for rib in range(9):
            y, wide, ends = (
                0.2 + 0.075 * rib,
                0.18 + 0.16 * math.sin(0.4 + rib / 6),
                (-95, 60) if s > 0 else (120, 275),
            )
            film.add([oval(c + s * 0.03, y, wide, 0.09, *ends)], 0.17, 0.004, 0.02)
        film.bone((c + s * 0.03, 0.165), (c + s * 0.36, 0.12), 0.04, 0.3)
    film.add([oval(c + 0.05, 0.6, 0.14, 0.16), oval(c, 0.32, 0.05, 0.16)], 0.4, 0.02)
    film.add([oval(c - 0.2, 0.93, 0.24, 0.2), oval(c + 0.2, 0.96, 0.24, 0.2)], 0.3, 0.015)
    film.add([box(c - 0.035, y, c + 0.035, y + 0.045) for y in np.arange(-0.02, 1, 0.06)], 0.2, 0.006)
    return ["a chest with ribs and lungs", "the ribs, the heart and the spine of a person"]


def _hand(film: _Film, random: Random) -> list[str]:
    c, spread = film.size[0] / film.size[1] / 2, random.uniform(0.8, 1.2)
    knuckles = [(-0.17, 0.62), (-0.1, 0.47), (-0.03, 0.45), (0.045, 0.465), (0.115, 0.5)]
    angles, lengths = np.radians([-50, -13, -3, 6, 18]) * spread, (0.2, 0.36, 0.41, 0.37, 0.28)
    soft = [_both(c - 0.02, [(0.16, 0.47), (0.14, 0.75), (0.11, 1.1)]), box(c - 0.2, 0.6, c, 0.7)]
    bones = [((c - 0.045, 0.82), (c - 0.05, 1.2), 0.085), ((c + 0.045, 0.825), (c + 0.05, 1.2), 0.06)]
    for finger, ((x, y), angle, length) in enumerate(zip(knuckles, angles, lengths, strict=True)):

        def at(far: float, x: float = c + x, y: float = y, angle: float = angle) -> tuple[float, float]:
            return x + math.sin(angle) * far, y - math.cos(angle) * far

        bones.append(((c - 0.05 + 0.026 * finger, 0.72), at(0), 0.042))
        soft += [oval(*at(far), 0.042, 0.042) for far in np.linspace(0, length + 0.02, 25)]
        joints = np.array([0, 0.55, 1] if finger == 0 else [0, 0.48, 0.79, 1]) * length
        bones += [(at(a + 0.012), at(b), 0.038 - 0.03 * a) for a, b in itertools.pairwise(joints)]
    film.add(soft, 0.28, 0.008)
    for start, end, width in bones:
        film.bone(start, end, width)
    for x, y in ((-0.055, 0.75), (-0.015, 0.745), (0.025, 0.745), (0.06, 0.75), (-0.03, 0.79), (0.03, 0.79)):
        film.add([oval(c + x, y, 0.024, 0.022)], 0.42, 0.005)
    return ["a hand with five fingers", "the bones of a human hand and wrist"]


def _skull(film: _Film, random: Random) -> list[str]:
    c = film.size[0] / film.size[1] / 2
    head = oval(c + 0.04, 0.36, 0.36, 0.29)
    jaw = [(-0.3, 0.45), (-0.33, 0.62), (-0.28, 0.8), (-0.14, 0.82), (0.02, 0.7), (0.08, 0.5)]
    face = [(c + x, y) for x, y in jaw]
    film.add([oval(c + 0.04, 0.36, 0.39, 0.32), face, box(c - 0.03, 0.6, c + 0.28, 1.1)], 0.22, 0.015)
    film.add([head, face[:2] + face[5:]], 0.22, 0.01)
    film.add([head], 0.45, 0.005, 0.022)
    film.add([face[2:]], 0.35, 0.008, 0.05)
    film.add([oval(c - 0.2, 0.48, 0.075, 0.065), oval(c - 0.22, 0.6, 0.05, 0.04)], -0.22, 0.012)
    film.add([oval(c - 0.2, 0.48, 0.08, 0.07)], 0.3, 0.005, 0.012)
    film.add(
        [oval(c + 0.08, 0.56, 0.08, 0.05), [(c - 0.12, 0.54), (c + 0.2, 0.6), (c + 0.1, 0.65)]], 0.35, 0.015
    )
    for x in np.arange(-0.3, -0.12, 0.028):
        film.add([box(c + x, 0.665, c + x + 0.02, 0.705), box(c + x, 0.715, c + x + 0.02, 0.755)], 0.4, 0.003)
    for y in np.arange(0.68, 1.02, 0.075):
        film.add(
            [box(c + 0.08, y, c + 0.18, y + 0.055), box(c + 0.19, y + 0.02, c + 0.27, y + 0.045)], 0.4, 0.008
        )
    return ["a skull", "the side of a human head with teeth and neck"]


def _knee(film: _Film, random: Random) -> list[str]:
    c = film.size[0] / film.size[1] / 2 + random.uniform(-0.03, 0.03)
    femur = [(0.06, -0.1), (0.075, 0.25), (0.15, 0.38), (0.145, 0.45), (0.09, 0.485), (0.02, 0.45)]
    tibia = [(0.02, 0.515), (0.15, 0.52), (0.14, 0.6), (0.07, 0.72), (0.055, 1.1)]
    film.add([_both(c, [(0.24, -0.1), (0.19, 0.5), (0.2, 1.1)])], 0.26, 0.015)
    film.add([_both(c, femur), _both(c, tibia)], 0.45, 0.006)
    film.add([box(c - 0.03, -0.1, c + 0.03, 0.2), box(c - 0.025, 0.78, c + 0.02, 1.1)], -0.18, 0.012)
    film.add([oval(c, 0.36, 0.075, 0.085)], 0.16, 0.008)
    film.add([[(c - 0.14, 0.525), (c + 0.14, 0.525)]], 0.35, 0.004, 0.012)
    film.bone((c + 0.145, 0.6), (c + 0.12, 1.2), 0.06)
    return ["a knee", "the leg bones of a person at the knee joint"]


def _teeth(film: _Film, random: Random) -> list[str]:
    c = film.size[0] / film.size[1] / 2

    def along(y: float) -> Points:
        return [(c + x, y - 0.44 * x * x) for x in np.linspace(-0.9, 0.9, 30)]

    film.add([along(0.12) + along(1.1)[::-1]], 0.25, 0.05)
    film.add([along(0.88)], 0.25, 0.02, 0.14)
    film.add([along(0.94)], 0.3, 0.008, 0.02)
    film.add([[(c + s * 0.8, 0.72), (c + s * 0.92, 0.2)] for s in (-1, 1)], 0.25, 0.02, 0.13)
    for x in np.linspace(-0.66, 0.66, 15):
        wide = 0.032 + 0.008 * abs(x) + random.uniform(-0.002, 0.002)
        for s, y in ((-1, 0.51 - 0.44 * x * x), (1, 0.54 - 0.44 * x * x)):
            crown = oval(c + x, y + s * 0.06, wide, 0.065)
            root = [(c + x - wide, y + s * 0.08), (c + x + wide, y + s * 0.08), (c + x, y + s * 0.28)]
            film.add([crown, root], 0.33, 0.006)
            film.add([crown], 0.3, 0.006)
    return ["teeth", "a full set of teeth in the jaw of a mouth at the dentist"]


_PARTS = {_chest: (720, 720), _hand: (560, 760), _skull: (700, 700), _knee: (540, 800), _teeth: (1000, 520)}


def x_ray(number: int, random: Random) -> Drawn:
    """Chests, hands, skulls, knees and teeth."""
    function = tuple(_PARTS)[number % len(_PARTS)]
    film = _Film(_PARTS[function])
    shown = function(film, random)
    light = 255 * (1 - np.exp(-random.uniform(1.3, 1.9) * np.maximum(film.light + 0.03, 0)))
    image = Image.fromarray(light.astype(np.uint8)).rotate(random.uniform(-4, 4), Image.Resampling.BICUBIC)
    left, top, right, bottom = random.uniform(0, 0.06, 4) * image.height
    image = image.crop((int(left), int(top), int(image.width - right), int(image.height - bottom)))
    if number % 2:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    ImageDraw.Draw(image).text((image.width - 50, 24), pick(random, "LR"), 235, font_size=36)
    texts = [
        f"an x-ray of {shown[0]}",
        f"an x ray of {shown[1]}",
        f"a black and white x-ray image of {shown[1]}",
    ]
    texts += [
        "a medical xray picture of the bones of a body",
        f"a black and white photo of {shown[0]} of a human",
    ]
    return grained(image.convert("RGB"), random, 7), texts
