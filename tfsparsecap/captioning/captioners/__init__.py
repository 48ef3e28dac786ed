"""The captioners that come with the package: `.tflite` files, for non-commercial use, as their data are.

docs/models.md has their scores and weaknesses. `from_hub` downloads others.
"""

import os
from pathlib import Path

#: Their names; the first is the one that is used unless another one is chosen.
NAMES = ("good", "small")


def is_address(given: str | os.PathLike) -> bool:
    """Whether a captioner is one on the Hugging Face Hub, `hf://USER/NAME`."""
    return str(given).startswith("hf://") and not os.path.lexists(given)


def captioner_path(given: str | os.PathLike) -> Path:
    """The path of a captioner, which may be one of `NAMES` or an address on the Hugging Face Hub.

    Args:
        given: a path, a name, or `hf://USER/NAME`. A file or folder of that name in the working directory
            comes first.

    Raises:
        InputError: the captioner cannot be downloaded.

    Examples:
        >>> captioner_path("small").name, str(captioner_path("runs/quickstart"))
        ('small.tflite', 'runs/quickstart')
    """
    path = Path(given)
    if is_address(given):
        from tfsparsecap.captioning.captioners.from_hub import downloaded

        return downloaded(str(given))
    if str(given) in NAMES and not os.path.lexists(path):
        return Path(__file__).with_name(f"{given}.tflite")
    return path
