"""Photographs with an embedded colour profile become sRGB."""

import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from tfsparsecap.captioning.data.colours import to_srgb
from tfsparsecap.captioning.data.images import read_image

# Linear Display P3 to linear sRGB, from the sample code of CSS Color 4.
P3_TO_SRGB = np.array(
    [
        [1.2249401762805598, -0.22494017628055996, 0],
        [-0.042056954709688163, 1.0420569547096881, 0],
        [-0.019637554590334432, -0.078636045550631889, 1.0982736001409663],
    ]
)
# Red, green and blue of Display P3 and of sRGB in XYZ, adapted to D50, as in Apple's and HP's profiles.
P3 = [(0.51512, 0.2412, -0.00105), (0.29198, 0.69225, 0.04189), (0.1571, 0.06657, 0.78407)]
SRGB = [(0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.7141)]
COLOURS = [(200, 100, 50), (40, 180, 90), (10, 20, 200), (128, 128, 128), (250, 240, 200), (0, 0, 0)]
# The curve of sRGB, and a gamma of 1.
CURVE = b"para" + struct.pack(
    ">I2H5i", 0, 3, 0, *(round(65536 * v) for v in (2.4, 0.94787, 0.05213, 0.0774, 0.04045))
)
LINEAR = b"curv" + bytes(8)


def profile(space: bytes, tags: dict[bytes, bytes], connection: bytes = b"XYZ ") -> bytes:
    """A profile of version 2 with some tags."""
    table, content = struct.pack(">I", len(tags)), b""
    for name, value in tags.items():
        content += bytes(-len(content) % 4)
        table += name + struct.pack(">2I", 132 + 12 * len(tags) + len(content), len(value))
        content += value
    illuminant = struct.pack(">3i", 63190, 65536, 54061)
    head = bytes(4) + struct.pack(">I", 0x02400000) + b"mntr" + space + connection + bytes(12) + b"acsp"
    size = 128 + len(table) + len(content)
    return (
        struct.pack(">I", size) + bytes(4) + head[4:] + bytes(28) + illuminant + bytes(48) + table + content
    )


def rgb_profile(primaries) -> bytes:
    columns = [b"XYZ " + struct.pack(">I3i", 0, *(round(65536 * v) for v in one)) for one in primaries]
    tags = dict(zip((b"rXYZ", b"gXYZ", b"bXYZ"), columns, strict=True))
    white = b"XYZ " + struct.pack(">I3i", 0, 63190, 65536, 54061)
    return profile(b"RGB ", {b"wtpt": white, **tags, **dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), CURVE)})


def cmyk_profile() -> bytes:
    """Cyan ink is grey of lightness 50, the other inks are black."""
    nodes = [
        (255 if not any(inks) else 128 if inks == (1, 0, 0, 0) else 0, 128, 128)
        for inks in np.ndindex(2, 2, 2, 2)
    ]
    identity = struct.pack(">9i", *(65536 * (i % 4 == 0) for i in range(9)))
    table = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + identity
    table += 4 * bytes(range(256)) + bytes(value for node in nodes for value in node) + 3 * bytes(range(256))
    return profile(b"CMYK", {b"A2B0": table}, b"Lab ")


def in_srgb(colours) -> np.ndarray:
    values = np.asarray(colours) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ P3_TO_SRGB.T
    linear = linear.clip(0, 1)
    return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def read(image: Image.Image, path, **options) -> np.ndarray:
    """The colour of an image of one colour after writing and reading it."""
    image.save(path, **options)
    return read_image(path, 32)[16, 16].astype(int)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("suffix", ["png", "webp", "tif", "avif"])
def test_display_p3_becomes_srgb(colour, suffix, tmp_path):
    options = {} if suffix in ("png", "tif") else {"lossless": True} if suffix == "webp" else {"quality": 100}
    if suffix == "avif":
        options["subsampling"] = "4:4:4"
    found = read(
        Image.new("RGB", (40, 40), colour), tmp_path / f"a.{suffix}", icc_profile=rgb_profile(P3), **options
    )
    assert np.abs(found - in_srgb(colour)).max() <= (4 if suffix == "avif" else 1)


def test_colours_of_palettes_and_transparent_images_are_converted(tmp_path):
    options, expected = {"icc_profile": rgb_profile(P3)}, in_srgb((200, 100, 50))
    image = Image.new("RGB", (40, 40), (200, 100, 50))
    palette = image.quantize(4)
    clear = image.copy()
    clear.putalpha(51)
    transparent = palette.copy()
    for one, share in ((palette, 1), (clear, 0.2), (image, 0)):
        more = {"transparency": (200, 100, 50)} if share == 0 else {}
        found = read(one, tmp_path / "a.png", **options, **more)
        assert np.abs(found - (share * expected + (1 - share) * 255)).max() <= 1
    assert np.abs(read(transparent, tmp_path / "a.png", **options, transparency=0) - 255).max() == 0


def test_grey_and_cmyk_have_profiles_of_their_own(tmp_path):
    grey = profile(b"GRAY", {b"kTRC": LINEAR})
    assert np.abs(read(Image.new("L", (40, 40), 55), tmp_path / "a.png", icc_profile=grey) - 128).max() <= 1
    cyan = Image.new("CMYK", (40, 40), (255, 0, 0, 0))
    found = read(cyan, tmp_path / "a.jpg", icc_profile=cmyk_profile(), quality=100)
    assert np.abs(found - 119).max() <= 3


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "RGBA", "LA", "P", "I;16"])
def test_damaged_profiles_and_those_of_other_colours_have_no_effect(mode, tmp_path):
    colours = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    image = Image.fromarray(colours).convert("L" if mode == "I;16" else mode).convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "I;16") else "a.png")
    image.save(path)
    plain, p3 = read_image(path, 32), rgb_profile(P3)
    wrong = [b"x", p3[:100], p3[:-30], p3[:16] + b"Lab " + p3[20:], bytes(1 << 19), p3[:200] + bytes(200)]
    fitting = p3 if mode in ("L", "LA", "CMYK", "I;16") else cmyk_profile()
    for one in (
        *wrong,
        fitting,
        rgb_profile(SRGB),
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
    ):
        image.save(path, icc_profile=one)
        np.testing.assert_array_equal(read_image(path, 32), plain)


def test_an_image_in_srgb_is_not_copied():
    image = Image.new("RGB", (9, 9), "red")
    assert to_srgb(image) is image
    image.info["icc_profile"] = rgb_profile(SRGB)
    assert to_srgb(image) is image
    image.info["icc_profile"] = rgb_profile(P3)
    assert to_srgb(image) is not image and image.getpixel((0, 0)) == (255, 0, 0)
