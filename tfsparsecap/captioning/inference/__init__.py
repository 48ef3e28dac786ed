"""Captions from finished runs and exported files, and their scores.

`load` finds out what it is given: a run folder (`finished_run`) or an exported file (`bundle`, with its
`description`). Both caption images with the methods of `generate`, say how sure they are and what they see
(`confidence`). `splits` captions all images of a split, `scoring` compares the captions with those of people,
and `model_card` writes what others should know about a run.
"""

import os
from typing import TYPE_CHECKING, Union

from tfsparsecap.captioning.captioners import NAMES, captioner_path
from tfsparsecap.captioning.inference.generate import Caption, CaptionGenerator, Captions
from tfsparsecap.core.installation import pip_install

if TYPE_CHECKING:
    from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
    from tfsparsecap.captioning.inference.finished_run import FinishedRun

__all__ = ["Caption", "CaptionGenerator", "Captions", "load"]


def load(
    path: str | os.PathLike[str] = NAMES[0], *, trust: bool = False
) -> Union["FinishedRun", "TFLiteCaptioner"]:
    """Loads a captioner, which then captions images with `generate`.

    Args:
        path: `good` or `small`, which come with the package (docs/models.md), the folder of a finished run,
            a `.tflite` file that `tfsparsecap-export` wrote, or `hf://USER/NAME` for one on the Hugging Face
            Hub, which `python -m tfsparsecap.publish` wrote.
        trust: run a `.tflite` file even if it has no digest, as those of older versions and of other
            programs. The runtime is no sandbox: a damaged file can crash the process.

    Returns:
        A `FinishedRun`, which runs on TensorFlow, or a `TFLiteCaptioner`, which runs on LiteRT, the runtime
        of phones. Both have the same `generate`.

    Raises:
        InputError: the path does not exist, the run is not finished, or a file is damaged, or has no digest
            and is not trusted; or the hub does not answer, or has no such captioner.
        ImportError: a run needs the extra `captions`, which is not installed; a file needs `export` only.

    Examples:
        >>> print(load().generate("photo.jpg")[0])  # doctest: +SKIP
        a dog runs through the grass
        >>> print(load("runs/quickstart").generate("drawing.jpg")[0])  # doctest: +SKIP
        a small red circle above a large blue star
    """
    path = captioner_path(path)
    if os.path.isdir(path):  # unlike Path.is_dir, False for a path that nobody can use
        try:
            from tfsparsecap.captioning.inference.finished_run import FinishedRun
        except ModuleNotFoundError as error:
            raise ImportError(
                f"runs need {error.name}, which is not installed: {pip_install('captions')}, or load an"
                " exported file"
            ) from error
        return FinishedRun.load(path)
    from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner

    return TFLiteCaptioner(path, trust=trust)
