"""Drawings of simple things, in ink, in flat colours and with crayons: a kind of `unusual_images`."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw

Drawn = tuple[Image.Image, list[str]]
Points = list[tuple[float, float]]
Random = np.random.Generator
#: Of lines and of text.
INK = "#222222"


def box(x0: float, y0: float, x1: float, y1: float) -> Points:
    """The corners of a rectangle."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def oval(x: float, y: float, rx: float, ry: float, first: float = 0, last: float = 360) -> Points:
    """Points on an ellipse, or on its arc between two angles in degrees, clockwise from the right."""
    angles = np.radians(np.linspace(first, last, 33))
    return [(x + rx * math.cos(angle), y + ry * math.sin(angle)) for angle in angles]


def _around(count: int, radius: float) -> Points:
    angles = np.arange(count) * 2 * math.pi / count
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def pick(random: Random, choices: Sequence[Any]) -> Any:
    """One of the choices at random."""
    return choices[int(random.integers(len(choices)))]


def grained(image: Image.Image, random: Random, strength: float) -> Image.Image:
    """The image with the grain of paper or film: grey noise."""
    pixels = np.asarray(image, np.float32) + random.normal(0, strength, (*image.size[::-1], 1))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


# The parts of things: colour and points; a part without a colour is a line.
_THINGS: dict[str, list[tuple[str | None, Points]]] = {
    "house": [("#f3dfae", box(-0.38, -0.1, 0.38, 0.5)),
              ("#d33a2c", [(-0.5, -0.1), (0, -0.5), (0.5, -0.1)]),
              ("#8a5a33", box(-0.09, 0.18, 0.09, 0.5)), ("#8cc8ee", box(-0.3, 0.02, -0.14, 0.18)),
              ("#8cc8ee", box(0.14, 0.02, 0.3, 0.18))],
    "sun": [("#ffd21f", oval(0, 0, 0.28, 0.28)),
            *((None, [(x, y), (1.5 * x, 1.5 * y)]) for x, y in _around(12, 0.34))],
    "cloud": [("#e4ecf4", [*oval(-0.25, 0, 0.2, 0.15, 90, 270), *oval(0, -0.1, 0.22, 0.2, 190, 350),
                           *oval(0.25, 0, 0.2, 0.15, 270, 450)])],
    "tree": [("#8a5a33", box(-0.07, 0, 0.07, 0.5)), ("#3f9b3a", [*oval(-0.2, -0.1, 0.2, 0.17, 60, 270),
             *oval(0, -0.3, 0.2, 0.2, 190, 350), *oval(0.2, -0.1, 0.2, 0.17, 270, 480)])],
    "apple": [("#d33a2c", oval(0, 0.05, 0.4, 0.38)), (None, [(0, -0.3), (0.06, -0.5)]),
              ("#3f9b3a", oval(0.18, -0.42, 0.12, 0.06))],
    "fish": [("#f58a1f", [(0.25, 0), (0.5, -0.22), (0.44, 0), (0.5, 0.22)]),
             ("#f58a1f", oval(-0.06, 0, 0.38, 0.22)),
             ("#ffffff", oval(-0.27, -0.05, 0.05, 0.05)), (INK, oval(-0.28, -0.05, 0.02, 0.02)),
             (None, oval(-0.2, 0, 0.1, 0.17, -60, 60))],
    "boat": [("#8a5a33", [(-0.5, 0.2), (0.5, 0.2), (0.32, 0.46), (-0.32, 0.46)]),
             (None, [(0, 0.2), (0, -0.5)]),
             ("#d33a2c", [(0.04, -0.45), (0.42, 0.12), (0.04, 0.12)]),
             ("#f5b83d", [(-0.04, -0.35), (-0.34, 0.12), (-0.04, 0.12)])],
    "person": [("#f6c9a0", oval(0, -0.36, 0.13, 0.14)), (None, [(0, -0.22), (0, 0.15)]),
               (None, [(-0.24, -0.02), (0, -0.1), (0.24, -0.02)]),
               (None, [(-0.17, 0.5), (0, 0.15), (0.17, 0.5)]),
               (None, oval(0, -0.37, 0.07, 0.07, 30, 150)), (INK, oval(-0.05, -0.4, 0.012, 0.012)),
               (INK, oval(0.05, -0.4, 0.012, 0.012))],
    "flower": [(None, [(0, 0), (0.02, 0.5)]), ("#3f9b3a", oval(0.12, 0.3, 0.11, 0.05)),
               *(("#e6569c", oval(x, y - 0.2, 0.12, 0.12)) for x, y in _around(5, 0.17)),
               ("#ffd21f", oval(0, -0.2, 0.1, 0.1))],
    "car": [("#3b74d1", [(-0.28, 0), (-0.18, -0.24), (0.16, -0.24), (0.3, 0)]),
            ("#3b74d1", box(-0.5, 0, 0.5, 0.2)),
            ("#d8eefc", [(-0.2, -0.01), (-0.13, -0.19), (-0.02, -0.19), (-0.02, -0.01)]),
            ("#d8eefc", [(0.02, -0.01), (0.02, -0.19), (0.13, -0.19), (0.21, -0.01)]),
            (INK, oval(-0.27, 0.2, 0.12, 0.12)), (INK, oval(0.27, 0.2, 0.12, 0.12))],
    "cat": [("#e39b3e", oval(0.02, 0.25, 0.24, 0.28)), (None, oval(0.3, 0.25, 0.14, 0.24, -60, 110)),
            ("#e39b3e", [(-0.25, -0.15), (-0.23, -0.5), (-0.04, -0.3)]),
            ("#e39b3e", [(0.25, -0.15), (0.23, -0.5), (0.04, -0.3)]),
            ("#e39b3e", oval(0, -0.15, 0.28, 0.22)),
            (INK, oval(-0.1, -0.18, 0.03, 0.045)), (INK, oval(0.1, -0.18, 0.03, 0.045)),
            ("#e6569c", [(-0.03, -0.11), (0.03, -0.11), (0, -0.07)]),
            *((None, [(s * 0.06, y), (s * 0.4, 2 * y + 0.08)]) for s in (-1, 1) for y in (-0.11, -0.05))],
}  # fmt: skip
# What a drawing shows, in two ways; the colour below its horizon; things with places and sizes.
_SCENES: list[tuple[str, str, str | None, list[tuple[str, float, float, float]]]] = [
    ("a house with a red roof and a sun", "a small home next to a green tree under a yellow sun", "#8fce6a",
     [("house", 0.42, 0.6, 0.5), ("tree", 0.84, 0.6, 0.42), ("sun", 0.84, 0.17, 0.24)]),
    ("two people and a sun", "two smiling stick figures, a boy and a girl, standing on grass", "#8fce6a",
     [("person", 0.32, 0.62, 0.55), ("person", 0.66, 0.64, 0.5), ("sun", 0.16, 0.17, 0.22)]),
    ("a sail boat on the sea", "a sailboat floating on blue water under the sun", "#4f9fdb",
     [("boat", 0.5, 0.62, 0.55), ("cloud", 0.22, 0.22, 0.3), ("sun", 0.84, 0.17, 0.22)]),
    ("orange fish swimming", "three fishes with big eyes in the ocean water", None,
     [("fish", 0.5, 0.4, 0.65), ("fish", 0.25, 0.82, 0.28), ("fish", 0.8, 0.8, 0.26)]),
    ("three pink flowers", "a row of flowers with green leaves growing in a garden", "#8fce6a",
     [("flower", 0.2, 0.62, 0.5), ("flower", 0.52, 0.55, 0.6), ("flower", 0.83, 0.62, 0.48)]),
    ("a blue car on a road", "a car driving down a street under white clouds", "#9a9a9a",
     [("car", 0.5, 0.66, 0.6), ("cloud", 0.3, 0.2, 0.35), ("cloud", 0.8, 0.24, 0.28)]),
    ("an orange cat", "a cat with whiskers and a tail sitting down", None, [("cat", 0.5, 0.52, 0.8)]),
    ("three red apples", "pieces of red fruit, apples with green leaves", None,
     [("apple", 0.22, 0.5, 0.36), ("apple", 0.55, 0.64, 0.4), ("apple", 0.82, 0.34, 0.32)]),
]  # fmt: skip
_COLOURS = "(red|green|yellow|blue|pink|orange) "
_DRAWING = ("a drawing of {1}", "a cartoon picture of {1}")
_STYLES = {
    "ink": ("a line drawing of {0}", "a black and white sketch of {1}", "{0} drawn in pencil on white paper"),
    "flat": ("a drawing of {0}", "a colorful illustration of {1}", "a simple picture of {0}"),
    "crayon": ("a child's drawing of {0}", "a crayon drawing of {1} on paper", "{0} drawn by a kid"),
}


def drawing(number: int, random: Random) -> Drawn:
    """Simple things, drawn in ink, in flat colours or with crayons."""
    style, (first, second, ground, things) = tuple(_STYLES)[number % 3], _SCENES[number % len(_SCENES)]
    width, height = pick(random, [(960, 720), (900, 900), (720, 900), (1080, 720)])
    side, flat, line = min(width, height), style == "flat", {"ink": 5, "flat": 6, "crayon": 9}[style]
    shake = {"ink": 0.002, "flat": 0, "crayon": 0.005}[style] * side
    paper = ("#bfe3f7" if ground else pick(random, ["#fff3d6", "#c9ecf2"])) if flat else "#fbfaf6"
    image = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(image)

    def shape(colour: str | None, points: Points, outline: bool = True) -> None:
        corners = np.array(points + points[:1] if colour else points)
        count = len(corners) if len(points) > 30 else 6 * len(corners) - 5  # straight lines shake, too
        places = np.linspace(0, len(corners) - 1, count)
        path = np.stack([np.interp(places, range(len(corners)), column) for column in corners.T], 1)
        path += random.normal(0, shake, 2) + random.normal(
            0, shake if count > len(corners) else 0, path.shape
        )
        vertices = list(map(tuple, path.tolist()))
        if colour and style == "crayon":
            mask, strokes = Image.new("L", image.size), Image.new("L", image.size)
            ImageDraw.Draw(mask).polygon(vertices, 255)
            for x in range(-height, width, 10):
                a, b, c = x + np.array([0, 0.5, 1]) * height + random.normal(0, 5, 3)
                ImageDraw.Draw(strokes).line([(a, height), (b, height / 2), (c, 0)], 235, 9)
            image.paste(colour, mask=ImageChops.multiply(mask, strokes))
        elif colour:
            draw.polygon(vertices, colour if flat else paper)
        if outline:
            draw.line(vertices, INK if style != "crayon" or not colour else colour, line, "curve")

    if ground and style == "crayon":
        shape("#a9d6f5", box(0, 0, width, 0.12 * height), False)
    if ground:
        shape(
            None if style == "ink" else ground,
            box(-20, 0.79 * height, width + 20, height + 20),
            style == "ink",
        )
    for thing, x, y, size in things:
        x, y = np.add((x, y), random.normal(0, 0.012, 2))
        size *= random.uniform(0.92, 1.08)
        for colour, points in _THINGS[thing]:
            shape(
                colour, [(x * width + size * side * px, y * height + size * side * py) for px, py in points]
            )
    if style == "ink":
        first, second = (re.sub(_COLOURS, "", text.replace("an orange", "a")) for text in (first, second))
    texts = [template.format(first, second) for template in (*_DRAWING, *_STYLES[style])]
    return (image if flat else grained(image, random, 10)).reduce(2), texts
