"""Unusual images are read correctly, or rejected with a clear error."""

import os
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from tfsparsecap.captioning.data.augmentation import read_view
from tfsparsecap.captioning.data.images import read_image, to_srgb
from tfsparsecap.errors import InputError


def quarters(mode: str = "RGB") -> Image.Image:
    """Red, green, blue and white quarters, which reveal rotations."""
    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:20, :20], pixels[:20, 20:], pixels[20:, :20], pixels[20:, 20:] = (
        (250, 10, 10),
        (10, 250, 10),
        (10, 10, 250),
        (250, 250, 250),
    )
    return Image.fromarray(pixels).convert(mode)


def corners(image: np.ndarray) -> list[str]:
    names = {(1, 0, 0): "red", (0, 1, 0): "green", (0, 0, 1): "blue", (1, 1, 1): "white", (0, 0, 0): "black"}
    places = [image[1, 1], image[1, -2], image[-2, 1], image[-2, -2]]
    return [names[tuple(int(value > 127) for value in place)] for place in places]


def test_images_are_resized_by_pillow(tmp_path):
    random = np.random.default_rng(0)
    image = Image.fromarray(random.integers(0, 255, (37, 61, 3), dtype=np.uint8))
    image.save(tmp_path / "a.png")
    expected = np.asarray(image.resize((24, 24), Image.Resampling.BILINEAR))
    result = read_image(tmp_path / "a.png", 24)
    assert result.dtype == np.uint8 and result.shape == (24, 24, 3)
    np.testing.assert_array_equal(result, expected)


def test_resizing_equals_tensorflows_with_antialiasing(tmp_path):
    import tensorflow as tf

    image = np.random.default_rng(0).integers(0, 255, (64, 48, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "a.png")
    expected = tf.image.resize(image, (16, 16), method="bilinear", antialias=True).numpy()
    assert np.abs(read_image(tmp_path / "a.png", 16) - expected).max() <= 1.01


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    upright = quarters()
    undo = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    stored = upright if undo is None else upright.transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert corners(read_image(tmp_path / "turned.jpg", 32)) == ["red", "green", "blue", "white"]


def test_an_image_is_turned_although_another_tag_has_a_wrong_type(tmp_path):
    """Orientation 6, and tags whose values Pillow cannot write again."""
    stored, upright = quarters().transpose(Image.Transpose.ROTATE_90), ["red", "green", "blue", "white"]
    for tag, kind, value in ((0x011A, 2, b"72\0\0"), (0x010F, 11, struct.pack(">f", 1.5))):
        entries = sorted([(0x0112, 3, struct.pack(">HH", 6, 0)), (tag, kind, value)])
        fields = b"".join(
            struct.pack(">HHI", entry_tag, entry_kind, 1) + data for entry_tag, entry_kind, data in entries
        )
        exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 2) + fields + bytes(4)
        stored.save(tmp_path / "a.jpg", exif=exif, quality=95)
        assert corners(read_image(tmp_path / "a.jpg", 32)) == upright, hex(tag)


def test_transparent_16_bit_grey_is_white(tmp_path):
    values = np.full((8, 8), 1000, np.uint16)
    values[:4] = 60000
    Image.fromarray(values).save(tmp_path / "a.png", transparency=1000)
    grey = read_image(tmp_path / "a.png", 8)[:, 0, 0]
    assert grey.tolist() == [233] * 4 + [255] * 4


def test_broken_exif_is_ignored(tmp_path):
    quarters().save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff garbage", quality=95)
    assert corners(read_image(tmp_path / "a.jpg", 32)) == ["red", "green", "blue", "white"]


@pytest.mark.parametrize(
    ("mode", "suffix"), [("CMYK", "jpg"), ("CMYK", "tif"), ("P", "png"), ("RGBA", "webp")]
)
def test_colour_modes_keep_their_colours(tmp_path, mode, suffix):
    quarters(mode).save(tmp_path / f"a.{suffix}")
    assert corners(read_image(tmp_path / f"a.{suffix}", 32)) == ["red", "green", "blue", "white"]


def test_grey_images_become_rgb(tmp_path):
    for mode, value in (("L", 77), ("LA", (77, 255)), ("1", 1)):
        Image.new(mode, (9, 5), value).save(tmp_path / "a.png")
        expected = 255 if mode == "1" else 77
        assert (read_image(tmp_path / "a.png", 8) == expected).all(), mode


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, suffix):
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16)
    Image.fromarray(np.tile(ramp, (256, 1))).save(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(read_image(tmp_path / f"a.{suffix}", 256)[0, :, 0], np.arange(256))


def test_transparent_parts_are_white(tmp_path):
    image = quarters("RGBA")
    image.putalpha(Image.fromarray(np.repeat([0, 255], 20).astype(np.uint8)[None].repeat(40, 0)))
    image.save(tmp_path / "a.png")
    assert corners(read_image(tmp_path / "a.png", 32)) == ["white", "green", "white", "white"]
    palette = quarters().quantize(8)
    palette.save(tmp_path / "p.png", transparency=palette.getpixel((1, 1)))
    assert corners(read_image(tmp_path / "p.png", 32)) == ["white", "green", "blue", "white"]
    Image.new("LA", (4, 4), (0, 0)).save(tmp_path / "la.png")
    assert (read_image(tmp_path / "la.png", 4) == 255).all()


def test_the_first_frame_of_an_animation_is_used(tmp_path):
    frames = [Image.new("RGB", (10, 10), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert corners(read_image(tmp_path / "a.gif", 8)) == ["red"] * 4


def test_tiny_and_large_images(tmp_path):
    Image.new("RGB", (1, 1), (1, 2, 3)).save(tmp_path / "one.png")
    assert (read_image(tmp_path / "one.png", 16) == (1, 2, 3)).all()
    quarters().resize((5472, 3648), Image.Resampling.NEAREST).save(tmp_path / "large.jpg")
    assert corners(read_image(tmp_path / "large.jpg", 64)) == ["red", "green", "blue", "white"]


def test_reduced_decoding_of_large_jpegs_changes_little(tmp_path):
    across, down = np.meshgrid(np.arange(1200), np.arange(900))
    waves = np.stack([across / 5, down / 4, 127 + 100 * np.sin(across / 40) * np.cos(down / 30)], -1)
    image = Image.fromarray(waves.clip(0, 255).astype(np.uint8))
    image.save(tmp_path / "a.jpg", quality=95)
    expected = Image.open(tmp_path / "a.jpg").resize((64, 64), Image.Resampling.BILINEAR)
    difference = read_image(tmp_path / "a.jpg", 64).astype(int) - np.asarray(expected).astype(int)
    assert np.abs(difference).max() <= 4


def broken_files(folder):
    quarters().resize((300, 300)).save(folder / "whole.jpg")
    jpeg = (folder / "whole.jpg").read_bytes()
    quarters().save(folder / "whole.png")
    contents = {
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "header.jpg": jpeg[:30],
        "text.jpg": b"not an image at all",
        "empty.jpg": b"",
        "zeros.png": bytes(1000),
        "truncated.png": (folder / "whole.png").read_bytes()[:60],
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return contents


def test_files_that_are_not_images_are_rejected(tmp_path):
    for name in broken_files(tmp_path):
        with pytest.raises(InputError) as caught:
            read_image(tmp_path / name, 16)
        assert name in str(caught.value), name
        assert "\n" not in str(caught.value)
        assert ("is an empty file: copy it again" in str(caught.value)) == (name == "empty.jpg")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"no image .*a\.tif"),
        (lambda path: path.mkdir(), "is a folder"),
        (os.mkfifo, r"a\.tif: it is a device or a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), r"a\.tif: it is a device or a pipe"),
        (lambda path: Image.new("F", (4, 4), 0.5).save(path), "floating-point"),
        (lambda path: Image.new("1", (20000, 20000)).save(path), r"a\.tif cannot be decoded"),
    ],
)
def test_other_paths_and_images_are_rejected(tmp_path, make, message):
    make(tmp_path / "a.tif")
    with pytest.raises(InputError, match=message):
        read_image(tmp_path / "a.tif", 16)


def test_images_whose_names_are_not_utf_8_have_views(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.png")
    quarters().save(path)
    assert read_view(path, 24, 2, path.name).shape == (24, 24, 3)


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
    columns = [
        b"XYZ " + struct.pack(">I3i", 0, *(round(65536 * v) for v in primary)) for primary in primaries
    ]
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
    pixels = read(
        Image.new("RGB", (40, 40), colour), tmp_path / f"a.{suffix}", icc_profile=rgb_profile(P3), **options
    )
    assert np.abs(pixels - in_srgb(colour)).max() <= (4 if suffix == "avif" else 1)


def test_colours_of_palettes_and_transparent_images_are_converted(tmp_path):
    options, expected = {"icc_profile": rgb_profile(P3)}, in_srgb((200, 100, 50))
    image = Image.new("RGB", (40, 40), (200, 100, 50))
    palette = image.quantize(4)
    clear = image.copy()
    clear.putalpha(51)
    transparent = palette.copy()
    for picture, share in ((palette, 1), (clear, 0.2), (image, 0)):
        more = {"transparency": (200, 100, 50)} if share == 0 else {}
        pixels = read(picture, tmp_path / "a.png", **options, **more)
        assert np.abs(pixels - (share * expected + (1 - share) * 255)).max() <= 1
    assert np.abs(read(transparent, tmp_path / "a.png", **options, transparency=0) - 255).max() == 0


def test_grey_and_cmyk_have_profiles_of_their_own(tmp_path):
    grey = profile(b"GRAY", {b"kTRC": LINEAR})
    assert np.abs(read(Image.new("L", (40, 40), 55), tmp_path / "a.png", icc_profile=grey) - 128).max() <= 1
    cyan = Image.new("CMYK", (40, 40), (255, 0, 0, 0))
    pixels = read(cyan, tmp_path / "a.jpg", icc_profile=cmyk_profile(), quality=100)
    assert np.abs(pixels - 119).max() <= 3


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "RGBA", "LA", "P", "I;16"])
def test_damaged_profiles_and_those_of_other_colours_have_no_effect(mode, tmp_path):
    colours = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    image = Image.fromarray(colours).convert("L" if mode == "I;16" else mode).convert(mode)
    path = tmp_path / ("a.tif" if mode in ("CMYK", "I;16") else "a.png")
    image.save(path)
    plain, p3 = read_image(path, 32), rgb_profile(P3)
    wrong = [b"x", p3[:100], p3[:-30], p3[:16] + b"Lab " + p3[20:], bytes(1 << 19), p3[:200] + bytes(200)]
    fitting = p3 if mode in ("L", "LA", "CMYK", "I;16") else cmyk_profile()
    for icc_profile in (
        *wrong,
        fitting,
        rgb_profile(SRGB),
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
    ):
        image.save(path, icc_profile=icc_profile)
        np.testing.assert_array_equal(read_image(path, 32), plain)


def test_an_image_in_srgb_is_not_copied():
    image = Image.new("RGB", (9, 9), "red")
    assert to_srgb(image) is image
    image.info["icc_profile"] = rgb_profile(SRGB)
    assert to_srgb(image) is image
    image.info["icc_profile"] = rgb_profile(P3)
    assert to_srgb(image) is not image and image.getpixel((0, 0)) == (255, 0, 0)
