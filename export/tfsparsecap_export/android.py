"""Whether the Android app can use a bundle; `make apk MODEL=…` asks before it packs one.

python -m tfsparsecap_export.android sparse.tflite dense.tflite
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import parser, run
from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.verify.portability import warnings

_DESCRIPTION = """\
Captions a black picture with each file, and says whether the app can use it and what phones may refuse.

Exit code 0: the app can use the files. 2: not this one, and why.
"""

_EXAMPLES = [("python -m tfsparsecap_export.android model.tflite", "one file, or several")]


def check_bundle(path: str | os.PathLike) -> list[str]:
    """What may go wrong with a bundle on phones.

    Args:
        path: a .tflite file.

    Returns:
        Sentences; none where nothing is known.

    Raises:
        InputError: the app cannot use it at all: it is no bundle, takes features and not pictures, has no
            vocabulary, or does not run.

    Example:
        >>> check_bundle("runs/scenes/model.tflite")
        []
    """
    captioner = TFLiteCaptioner(path)
    if captioner.image_size is None:
        raise InputError(
            f"{path} takes features of a picture, which apps do not have: export a captioner that has an"
            " encoder and takes pictures"
        )
    if not captioner.vocabulary:
        raise InputError(
            f"{path} has no vocabulary to say captions with: export the run folder, not the model alone"
        )
    captioner.caption(np.zeros((captioner.image_size, captioner.image_size, 3), np.uint8))
    return warnings(read_contents(path))


def main(argv: Sequence[str] | None = None) -> None:
    """Checks the files in their order, up to the first that cannot be used."""
    options = parser("python -m tfsparsecap_export.android", _DESCRIPTION, _EXAMPLES)
    options.add_argument("files", nargs="+", type=Path, metavar="FILE.tflite", help="bundles for the app")
    for path in options.parse_args(argv).files:
        sentences = check_bundle(path)
        for sentence in ["the app can use it", *sentences]:
            print(f"{path}: {sentence}")


if __name__ == "__main__":
    run(main)
