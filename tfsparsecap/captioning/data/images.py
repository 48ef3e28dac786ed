"""Reading images, in the same way for training, evaluation, captioning and phones.

Colours of photographs with an embedded profile, such as Display P3 or Adobe RGB, become sRGB: Android
converts them when an app reads the pixels of a bitmap.
"""

import contextlib
import functools
import io
import os
import threading
import warnings
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageCms

from tfsparsecap.core.files import DAMAGE, check_input_file
from tfsparsecap.errors import InputError

# Colour space of a profile -> mode of the images that it describes. Others are left as they are.
_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
_LARGEST_PROFILE = 1 << 22
# Profiles of sRGB are not all the same: colours that differ by at most this are equal.
_TOLERANCE = 2
_ERRORS = (ImageCms.PyCMSError, ImportError, AttributeError, ArithmeticError, *DAMAGE)


def to_srgb(image: Image.Image) -> Image.Image:
    """The image in sRGB if a profile of other colours is embedded in it; the image itself otherwise.

    Transparency is kept. A profile that is damaged or that does not fit the image has no effect.

    Args:
        image: its pixels may be grey, RGB, CMYK or a palette; deeper ones are not converted.

    Examples:
        >>> image = Image.new("RGB", (9, 9), "red")
        >>> to_srgb(image) is image
        True
    """
    profile = image.info.get("icc_profile")
    mode = "RGB" if image.mode in ("P", "PA", "RGBA") else image.mode  # without transparency
    transform = _transform(profile, mode) if profile else None
    if transform is None:
        return image
    try:
        if not image.has_transparency_data:
            return transform.apply(image if image.mode == mode else image.convert(mode))
        clear = image.convert("RGBA")
        converted = transform.apply(clear.convert("RGB") if mode == "RGB" else image)
        converted.putalpha(clear.getchannel("A"))
        return converted
    except _ERRORS:
        return image


@functools.lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """What converts images of a mode to sRGB; None if the profile is sRGB, damaged or of another mode."""
    try:
        if len(profile) > _LARGEST_PROFILE:
            return None
        source_profile = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if _MODES.get(source_profile.profile.xcolor_space.strip()) != mode:
            return None
        transform = ImageCms.buildTransform(source_profile, ImageCms.createProfile("sRGB"), mode, "RGB")
        if mode == "CMYK":
            return transform
        levels = np.linspace(0, 255, 6).astype(np.uint8)
        colours = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(1, -1, 3)
        probe = Image.fromarray(colours).convert(mode)
        change = np.asarray(transform.apply(probe), int) - np.asarray(probe.convert("RGB"), int)
        return transform if np.abs(change).max() > _TOLERANCE else None
    except _ERRORS:
        return None


# Without PostScript, for which Pillow would run Ghostscript.
FORMATS = (
    "JPEG", "MPO", "PNG", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "TGA", "ICO", "PCX",
)  # fmt: skip

# Images of more pixels are decoded one at a time.
_LARGE = 1 << 25
_ONE_LARGE_IMAGE = threading.Lock()
_STRIP = 256
# What makes an image of each EXIF orientation upright.
_TURNS: dict[Any, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow warns about broken EXIF and large images; both are read. Filtered once, because
# `warnings.catch_warnings` affects the whole process and images are read by several threads.
warnings.filterwarnings("ignore", module=r"PIL\.")


def read_image(path: str | os.PathLike, size: int) -> np.ndarray:
    """Reads an image upright, in RGB, resized to a square.

    Phones must resize in the same way: Pillow's `BILINEAR` to `size` x `size` without keeping the aspect
    ratio. When it reduces, this filter averages over all source pixels (antialiasing), as
    `tf.image.resize(method="bilinear", antialias=True)` does; plain bilinear interpolation of four pixels
    differs. JPEGs are decoded at the smallest scale of 1/1, 1/2, 1/4, 1/8 that is at least twice `size`,
    which is several times faster for large photographs.

    EXIF rotation is applied; grey, palette, CMYK and 16-bit images become 8-bit RGB, colours with an embedded
    profile sRGB; transparent parts become white; the first of several frames or pages is used.

    Args:
        path: the file, in one of `FORMATS`.
        size: `S`, side of the square in pixels.

    Returns:
        uint8 [S, S, 3].

    Raises:
        InputError: the file is missing, truncated, not an image, a device, or larger than 178 million pixels.

    Examples:
        >>> Image.new("L", (300, 200), 128).save("grey.png")
        >>> read_image("grey.png", 64).shape
        (64, 64, 3)
    """
    try:
        check_input_file(path)
        return _read(path, size)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no image {os.fspath(path)}: check the path") from error
    except PermissionError as error:
        raise InputError(f"the image {os.fspath(path)} cannot be read: give it read permission") from error
    except IsADirectoryError as error:
        raise InputError(f"{os.fspath(path)} is a folder: give an image file") from error
    except Image.UnidentifiedImageError as error:
        if os.path.getsize(path) == 0:
            raise InputError(f"the image {os.fspath(path)} is an empty file: copy it again") from error
        raise InputError(
            f"{os.fspath(path)} is not an image in a supported format ({', '.join(FORMATS)}): "
            "convert it or leave it out"
        ) from error
    except (AttributeError, ArithmeticError, *DAMAGE, Image.DecompressionBombError) as error:
        raise InputError(
            f"the image {os.fspath(path)} cannot be decoded ({error}): save it again or leave it out"
        ) from error


def _read(path: str | os.PathLike, size: int) -> np.ndarray:
    Image.init()
    with Image.open(path, formats=[name for name in FORMATS if name in Image.OPEN]) as image:
        image.draft(None, (2 * size, 2 * size))
        # Several threads read images, and a small file may decode to gigabytes.
        with _ONE_LARGE_IMAGE if image.width * image.height > _LARGE else contextlib.nullcontext():
            image.load()
            return resize_image(image, size)


def resize_image(image: Image.Image, size: int) -> np.ndarray:
    """uint8 [size, size, 3] of an image in memory: what `read_image` does after decoding a file.

    Raises:
        ValueError: it has no pixels, or they cannot be converted to RGB.
    """
    if not image.width * image.height:
        raise ValueError("it has no pixels")
    return np.array(_to_rgb(to_srgb(_upright(image))).resize((size, size), Image.Resampling.BILINEAR))


def _upright(image: Image.Image) -> Image.Image:
    # Not `ImageOps.exif_transpose`, which writes all other tags again and fails if one has a wrong type.
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except (AttributeError, *DAMAGE):
        return image  # the pixels are decoded already
    return image if turn is None else image.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # 16-bit grey: Pillow's own conversion clips at 255 instead of scaling.
        values = np.asarray(image).clip(0, 65535).astype(np.int32)
        transparent = values == image.info.get("transparency", -1)
        values += 128
        values //= 257
        values[transparent] = 255
        image = Image.fromarray(values.astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating-point pixels have no defined white")
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """An image with transparency in front of white, computed in strips: whole copies would take gigabytes."""
    result = Image.new("RGB", image.size)
    for top in range(0, image.height, _STRIP):
        strip = image.crop((0, top, image.width, min(image.height, top + _STRIP))).convert("RGBA")
        white = Image.new("RGBA", strip.size, "white")
        result.paste(Image.alpha_composite(white, strip).convert("RGB"), (0, top))
    return result
