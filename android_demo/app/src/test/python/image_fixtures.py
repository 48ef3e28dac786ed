"""Images of all modes and formats, and their pixels in Pillow."""

import random
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.scenes import paint, random_scene

#: Width, height, side of the output.
SCALINGS = [
    (37, 53, 24), (64, 64, 64), (64, 48, 64), (5, 7, 32), (1, 1, 16), (1, 300, 20), (400, 1, 16),
    (2000, 3, 11), (3, 1500, 13), (113, 111, 112), (97, 61, 48), (31, 29, 30),
]  # fmt: skip
ODD_SIZE = 20
#: Height, width; even.
FRAME = (36, 48)


def scalings(folder: Path) -> list[dict]:
    """Noise images of different sizes, and the results of `resize`."""
    cases = []
    for width, height, side in SCALINGS:
        image = Image.fromarray(_noise(width * 1000 + height, height, width))
        name = f"scaling_{width}x{height}"
        image.save(folder / f"{name}.png")
        square = image.resize((side, side), Image.Resampling.BILINEAR)
        square.save(folder / f"{name}_expected.png")
        cases.append({"image": f"{name}.png", "side": side, "expected": f"{name}_expected.png"})
    return cases


def camera_frame(folder: Path) -> None:
    """A frame as cameras deliver it, YUV 4:2:0 in three planes, and its colours."""
    luma, *chroma = Image.fromarray(_soft(*FRAME)).convert("YCbCr").split()
    half = [plane.resize((FRAME[1] // 2, FRAME[0] // 2), Image.Resampling.BOX) for plane in chroma]
    (folder / "frame.yuv").write_bytes(b"".join(plane.tobytes() for plane in (luma, *half)))
    whole = [plane.resize(luma.size, Image.Resampling.NEAREST) for plane in half]
    Image.merge("YCbCr", (luma, *whole)).convert("RGB").save(folder / "frame_expected.png")


def formats(folder: Path) -> list[dict]:
    """Files of all modes and formats, and the results of `read_image`.

    `error` is the largest byte difference allowed between decoders.
    """
    colours = Image.fromarray(_soft(37, 53))
    alpha = Image.fromarray(_noise(1, 37, 53)[..., 0])
    clear = colours.copy()
    clear.putalpha(alpha)
    grey = colours.convert("L")
    grey_alpha = grey.copy().convert("LA")
    grey_alpha.putalpha(alpha)
    palette = colours.quantize(17)
    frames = [Image.fromarray(_soft(37, 53, shift)) for shift in (0, 90)]
    hole = colours.quantize(16)
    cases = {
        "grey.png": (grey, {}, 0),
        "grey_alpha.png": (grey_alpha, {}, 0),
        "alpha.png": (clear, {}, 0),
        "palette.png": (palette, {}, 0),
        "palette_clear.png": (palette, {"transparency": bytes(range(0, 255, 15))}, 0),
        "colour_key.png": (colours, {"transparency": colours.getpixel((5, 5))}, 0),
        "one_bit.png": (grey.convert("1"), {}, 0),
        "image.bmp": (colours, {}, 0),
        "animated.gif": (frames[0], {"save_all": True, "append_images": frames[1:]}, 0),
        "clear.gif": (hole, {"transparency": 3}, 0),
        "lossless.webp": (clear, {"lossless": True, "exact": True}, 0),
        "lossy.webp": (colours, {"quality": 90}, 0),
        "animated.webp": (frames[0], {"save_all": True, "append_images": frames[1:], "lossless": True}, 0),
        "colour.jpg": (colours, {"quality": 95, "subsampling": 0}, 0),
        "subsampled.jpg": (colours, {"quality": 90, "subsampling": 2}, 0),
        "progressive.jpg": (colours, {"quality": 90, "progressive": True}, 0),
        "grey.jpg": (grey, {"quality": 95}, 0),
        "cmyk.jpg": (colours.convert("CMYK"), {"quality": 95}, 0),
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        cases[f"turned_{orientation}.jpg"] = (colours, {"quality": 95, "subsampling": 0, "exif": exif}, 0)
        cases[f"turned_{orientation}.png"] = (colours, {"exif": exif}, 0)
    # Reduced by 2, 4 and 8 when they are read.
    for height, width in ((99, 81), (170, 165), (333, 501)):
        exif = Image.Exif()
        exif[0x0112] = 6
        cases[f"large_{width}x{height}.jpg"] = (Image.fromarray(_soft(height, width)), {"exif": exif}, 0)
    described = []
    for name, (image, options, error) in cases.items():
        image.save(folder / name, **options)
        described.append(_case(folder, name, error))
    _deep_png(folder / "deep_grey.png", 0, 1)
    _deep_png(folder / "deep_colour.png", 2, 3)
    _deep_png(folder / "deep_alpha.png", 6, 4)
    # Android rounds 16-bit channels, Pillow truncates them.
    return described + [_case(folder, f"deep_{kind}.png", 1) for kind in ("grey", "colour", "alpha")]


def scenes(folder: Path) -> list[Path]:
    """Images to caption: drawn scenes and gradients."""
    chance = random.Random(5)
    paths = []
    for number in range(8):
        generator = np.random.default_rng(number)
        if number < 6:
            image = paint(random_scene(generator, "test"), 72, generator)
        else:
            image = Image.fromarray(_soft(50 + number, 81, chance.randrange(256)))
        paths.append(folder / f"scene_{number}.png")
        image.convert("RGB").save(paths[-1], optimize=True)
    return paths


def _case(folder: Path, name: str, error: int) -> dict:
    expected = name.replace(".", "_") + "_expected.png"
    Image.fromarray(read_image(folder / name, ODD_SIZE)).save(folder / expected)
    return {"image": name, "side": ODD_SIZE, "expected": expected, "error": error}


def _noise(seed: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def _soft(height: int, width: int, shift: int = 0) -> np.ndarray:
    """A smooth, asymmetric image, which shows rotations and survives lossy compression."""
    y, x = np.mgrid[:height, :width]
    red, green = 255 * x / width, 255 * y / height
    blue = 127 + 127 * np.sin((x + 2 * y + shift) / 9)
    return np.stack([(red + shift) % 256, green, blue], -1).astype(np.uint8)


def _deep_png(path: Path, colour_type: int, bands: int) -> None:
    """Writes a PNG with 16 bits per channel, which Pillow reads but cannot write."""
    height, width = 37, 53
    y, x = np.mgrid[:height, :width]
    # Colours for which rounding and truncation agree; alpha from 0 to full.
    values = np.stack([(x * 4 + y + 40 * band) % 256 * 257 + 100 for band in range(bands)], -1).clip(0, 65535)
    if bands == 4:
        values[..., 3] = (x * 5 % 256) * 257
    rows = np.concatenate([np.zeros((height, 1), np.uint8), _bytes(values.astype(">u2"))], 1)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks))


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.frombuffer(values.tobytes(), np.uint8).reshape(len(values), -1)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
