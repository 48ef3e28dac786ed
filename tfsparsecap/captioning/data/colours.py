"""Colours of photographs with an embedded profile, such as Display P3 or Adobe RGB, as sRGB.

Android converts colours to sRGB when an app reads the pixels of a bitmap, so that Python must do the same.
"""

import functools
import io

import numpy as np
from PIL import Image, ImageCms

from tfsparsecap.core.files import DAMAGE

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
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if _MODES.get(given.profile.xcolor_space.strip()) != mode:
            return None
        transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, "RGB")
        if mode == "CMYK":
            return transform
        levels = np.linspace(0, 255, 6).astype(np.uint8)
        colours = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(1, -1, 3)
        probe = Image.fromarray(colours).convert(mode)
        change = np.asarray(transform.apply(probe), int) - np.asarray(probe.convert("RGB"), int)
        return transform if np.abs(change).max() > _TOLERANCE else None
    except _ERRORS:
        return None
