"""Unusual images are read correctly, or rejected with a clear error."""

import os
import struct

import numpy as np
import pytest
from PIL import Image

from tfsparsecap.captioning.data.augmentation import read_view
from tfsparsecap.captioning.data.images import read_image
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
        fields = b"".join(struct.pack(">HHI", one, its_kind, 1) + data for one, its_kind, data in entries)
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
    whole = Image.open(tmp_path / "a.jpg").resize((64, 64), Image.Resampling.BILINEAR)
    difference = read_image(tmp_path / "a.jpg", 64).astype(int) - np.asarray(whole).astype(int)
    assert np.abs(difference).max() <= 4


def broken_files(folder):
    quarters().resize((300, 300)).save(folder / "whole.jpg")
    whole = (folder / "whole.jpg").read_bytes()
    quarters().save(folder / "whole.png")
    contents = {
        "truncated.jpg": whole[: len(whole) // 2],
        "header.jpg": whole[:30],
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
