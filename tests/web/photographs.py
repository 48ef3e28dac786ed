"""Photographs of all sizes, EXIF orientations and formats."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image

from .conftest import PHOTOGRAPHS

# Format -> options of Pillow. Sizes and orientations differ from one to the next.
FORMATS: dict[str, dict] = {
    "jpg": {"quality": 90},
    "progressive.jpg": {"quality": 75, "progressive": True},
    "sharp.jpg": {"quality": 95, "subsampling": 0},
    "png": {},
    "lossless.webp": {"lossless": True},
    "webp": {"quality": 80},
    "gif": {},
    "bmp": {},
    "avif": {"quality": 80},
}
#: Longest sides in pixels. JPEGs of the larger ones are decoded at 1/2, 1/4 and 1/8.
SIDES = (150, 333, 640, 1000, 2000, 4000)


def varied(folder: Path) -> list[Path]:
    """Writes the photographs of the repository in `folder`, each in many ways.

    Each EXIF orientation is used: the file is turned, and the orientation turns it back.
    """
    choices = random.Random(0)
    written = []
    for number, original in enumerate(PHOTOGRAPHS):
        for orientation, (suffix, options) in enumerate(FORMATS.items()):
            side = SIDES[(number + orientation) % len(SIDES)]
            if "jpg" not in suffix:
                side = min(side, 1000)
            with Image.open(original) as image:
                mode = choices.choice(["RGB", "RGB", "L", "CMYK"]) if suffix == "jpg" else "RGB"
                scale = side / max(image.size)
                size = [round(length * scale) for length in image.size]
                turned = image.resize(size, Image.Resampling.BICUBIC).convert(mode)
            path = folder / f"{original.stem}_{side}_{orientation}.{suffix}"
            exif = Image.Exif()
            if 1 <= orientation <= 8 and suffix.rpartition(".")[2] not in ("gif", "bmp"):
                turned = turned.transpose(_AWAY[orientation]) if orientation in _AWAY else turned
                exif[0x0112] = orientation
                options = {**options, "exif": exif}
            turned.save(path, **options)
            written.append(path)
    return written


# What undoes each EXIF orientation.
_AWAY = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def everyday(shared: Callable[[str], Path], count: int) -> Iterator[Path]:
    """The first photographs of Flickr8k and of MS-COCO in the shared data."""
    for folder in ("flickr8k_1k/Images", "coco_everyday/images"):
        yield from sorted(shared(f"data/{folder}").glob("*.jpg"))[:count]
