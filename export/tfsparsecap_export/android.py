"""python -m tfsparsecap_export.android: whether the Android app can use files.

Captions a black image with each file, and prints whether the app can use it and what may fail on phones.
`make apk MODEL=…` runs it before packing a file.

Exit code 0: the app can use the files. 2: it cannot use one of them; the message gives the reason.

examples:
  python -m tfsparsecap_export.android model.tflite
      one file, or several
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import add_trust_option, parser, run
from tfsparsecap.errors import InputError


def check_bundle(path: str | os.PathLike, *, trust: bool = False) -> list[str]:
    """Possible problems of a bundle on phones.

    Args:
        path: a .tflite file.
        trust: as of `TFLiteCaptioner`.

    Returns:
        Warnings, none if no problem is known.

    Raises:
        InputError: the app cannot use the file: it is not a bundle, takes features instead of images, has no
            vocabulary or, unless it is trusted, no digest, or does not run.

    Examples:
        >>> from tfsparsecap.captioning.captioners import captioner_path
        >>> check_bundle(captioner_path("small"))
        []
    """
    from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
    from tfsparsecap_export.flatbuffer.contents import read_contents
    from tfsparsecap_export.verify.portability import warnings

    captioner = TFLiteCaptioner(path, trust=trust)
    if captioner.image_size is None:
        raise InputError(
            f"{path} takes image features, which the app cannot compute: export a captioner with an encoder"
        )
    if not captioner.vocabulary:
        raise InputError(f"{path} has no vocabulary: export the run folder instead of the model alone")
    captioner.caption(np.zeros((captioner.image_size, captioner.image_size, 3), np.uint8))
    return warnings(read_contents(path))


def main(argv: Sequence[str] | None = None) -> None:
    """Checks the files in order, and stops at the first that cannot be used."""
    command = parser(__doc__)
    command.add_argument("files", nargs="+", type=Path, metavar="FILE.tflite", help="bundles for the app")
    add_trust_option(command)
    options = command.parse_args(argv)
    for path in options.files:
        for sentence in ["the app can use it", *check_bundle(path, trust=options.trust)]:
            print(f"{path}: {sentence}")


if __name__ == "__main__":
    run(main)
