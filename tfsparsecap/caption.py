"""python -m tfsparsecap.caption: what is on a picture, said by a trained run or an exported file."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import (
    DONE,
    WRONG_INPUT,
    fail,
    only_json_on_stdout,
    parser,
    run,
    start_tensorflow,
)
from tfsparsecap.errors import InputError

EXAMPLES = [
    (
        "python -m tfsparsecap.caption model.tflite photo.jpg",
        "by an exported file, on the phone's own runtime",
    ),
    (
        "python -m tfsparsecap.caption runs/quickstart photos/*.jpg --beam 3",
        "by a trained run, three captions each",
    ),
    ("python -m tfsparsecap.caption model.tflite photo.jpg --json", "for a program to read"),
]

Captioning = Callable[[np.ndarray], list[tuple[str, float]]]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of captioning."""
    options = parser(
        "python -m tfsparsecap.caption",
        "Says what is on pictures (JPEG, PNG, WebP, …), a line each.",
        EXAMPLES,
    )
    options.add_argument(
        "captioner", metavar="runs/NAME|FILE.tflite", help="a trained run or an exported file"
    )
    options.add_argument("images", nargs="+", metavar="IMAGE", help="pictures of any size")
    options.add_argument(
        "--beam", type=int, help="captions to search for and show (a .tflite file has its beam built in)"
    )
    options.add_argument("--json", action="store_true", help="print a JSON list with captions and scores")
    return options.parse_args(argv)


def open_captioner(path: str, beam: int | None) -> tuple[Captioning, int]:
    """What captions an image, and the side of the square images that it takes.

    Raises:
        InputError: `path` is neither a run folder nor an exported file, or the file has another beam.
    """
    place = Path(path)
    if place.is_dir():
        start_tensorflow()
        from tfsparsecap.training.trained import Trained

        trained = Trained.load(place)
        return lambda image: trained.caption(image, beam), trained.image_size
    if not place.exists():
        raise InputError(f"there is no {path}: give a run folder such as runs/NAME or a .tflite file")
    from tfsparsecap.bundle import TFLiteCaptioner

    exported = TFLiteCaptioner(place)
    if exported.image_size is None:
        raise InputError(f"{path} takes features, not pictures: export a run with its encoder")
    built_in = exported.metadata.get("beam")
    if beam is not None and beam != built_in:
        raise InputError(
            f"{path} searches with beam {built_in}, not {beam}: leave --beam out, or export the run with "
            f"tfsparsecap-export --beam {beam}"
        )
    return exported.caption, exported.image_size


def main(argv: Sequence[str] | None = None) -> int:
    """Captions the images; one that cannot be read is named, the others are captioned all the same.

    Raises:
        InputError: the captioner cannot be read, or the beam is below 1.
    """
    given = arguments(argv)
    if given.beam is not None and given.beam < 1:
        raise InputError(f"--beam is {given.beam}: it must be at least 1")
    code, results = DONE, []
    with only_json_on_stdout(given.json):
        caption, image_size = open_captioner(given.captioner, given.beam)
        from tfsparsecap.data.images import read_image

        for path in given.images:
            try:
                image = read_image(path, image_size)
            except InputError as error:
                fail(str(error))
                code = WRONG_INPUT
                results.append({"image": path, "error": str(error)})
                continue
            captions = caption(image)
            results.append(
                {"image": path, "captions": [{"caption": text, "score": score} for text, score in captions]}
            )
            if not given.json:
                for line in lines(
                    path, captions, many=len(given.images) > 1, all_of_them=given.beam is not None
                ):
                    print(line, flush=True)
    if given.json:
        print(json.dumps(results, ensure_ascii=False))
    return code


def lines(path: str, captions: list[tuple[str, float]], many: bool, all_of_them: bool) -> list[str]:
    """What is printed of an image: the best caption, or with `all_of_them` each with its log-probability."""
    shown = [f"{score:8.3f}  {text}" for text, score in captions] if all_of_them else [captions[0][0]]
    if not many:
        return shown
    return [f"{path}:", *(f"  {line}" for line in shown)] if len(shown) > 1 else [f"{path}: {shown[0]}"]


if __name__ == "__main__":
    run(main)
