"""The captioners that come with the package: `.tflite` files, for non-commercial use, as their data are.

docs/models.md has their scores and weaknesses.
"""

import os
from pathlib import Path

#: Their names; the first is the one that is used unless another one is chosen.
NAMES = ("good", "small")


def captioner_path(given: str | os.PathLike) -> Path:
    """The path of a captioner, which may be one of `NAMES`.

    Args:
        given: a path or a name. A file or folder of that name in the working directory comes first.

    Examples:
        >>> captioner_path("small").name, str(captioner_path("runs/quickstart"))
        ('small.tflite', 'runs/quickstart')
    """
    path = Path(given)
    if str(given) in NAMES and not os.path.lexists(path):
        return Path(__file__).with_name(f"{given}.tflite")
    return path
