"""python -m tfsparsecap.caption: what is on a picture, said by a trained run or an exported file."""

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

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
    (
        "python -m tfsparsecap.caption runs/quickstart photo.jpg --sample 5 --top-p 0.9",
        "five drawn at random",
    ),
    (
        "python -m tfsparsecap.caption runs/updown --features FOLDER 391895 184613",
        "images by their bottom-up features",
    ),
    ("python -m tfsparsecap.caption model.tflite photo.jpg --json", "for a program to read"),
]


@dataclasses.dataclass(frozen=True)
class Opened:
    """A captioner as the command uses it.

    Attributes:
        caption: inputs -> captions with their scores, best first.
        image_size: side of the square images that it takes in pixels, or None where it takes features.
        names: of its inputs.
        feature_size, regions: length of a feature, and how many an image may have.
    """

    caption: Callable[..., list[tuple[str, float]]]
    image_size: int | None
    names: tuple[str, ...] = ("image",)
    feature_size: int | None = None
    regions: int = 100


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
    options.add_argument(
        "images", nargs="+", metavar="IMAGE", help="pictures of any size, or with --features their IDs"
    )
    options.add_argument(
        "--features",
        metavar="FOLDER",
        help="with bottom-up features, FOLDER/cocobu_att/ID.npy, for a captioner without an encoder",
    )
    options.add_argument(
        "--beam", type=int, help="captions to search for and show (a .tflite file has its beam built in)"
    )
    drawing = options.add_argument_group("captions drawn at random, by a trained run")
    drawing.add_argument("--sample", type=int, metavar="N", help="draw N captions word by word")
    drawing.add_argument("--top-k", type=int, metavar="K", help="from the K most probable words")
    drawing.add_argument(
        "--top-p", type=float, metavar="P", help="from the most probable words that reach probability P"
    )
    drawing.add_argument(
        "--temperature",
        type=float,
        default=None,
        metavar="T",
        help="below 1 bolder, above 1 wilder (default: 1)",
    )
    drawing.add_argument("--seed", type=int, metavar="S", help="of the draw, to get the same captions again")
    options.add_argument("--json", action="store_true", help="print a JSON list with captions and scores")
    return options.parse_args(argv)


def open_captioner(given: argparse.Namespace) -> Opened:
    """The captioner that a command line names.

    Raises:
        InputError: it is neither a run folder nor an exported file, or the file has another beam.
    """
    path, place = given.captioner, Path(given.captioner)
    if place.is_dir():
        start_tensorflow()
        return _run(given)
    if not place.exists():
        raise InputError(f"there is no {path}: give a run folder such as runs/NAME or a .tflite file")
    from tfsparsecap.inference.bundle import TFLiteCaptioner

    if given.sample is not None:
        raise InputError(f"--sample is for a run folder: {path} has its search built in")
    exported = TFLiteCaptioner(place)
    built_in = exported.metadata.get("beam")
    if given.beam is not None and given.beam != built_in:
        raise InputError(
            f"{path} searches with beam {built_in}, not {given.beam}: leave --beam out, or export the run"
            f" with tfsparsecap-export --beam {given.beam}"
        )
    if exported.features_shape is None:
        return Opened(exported.caption, exported.image_size)
    regions, size = exported.features_shape
    return Opened(exported.caption, None, exported.input_names, size, regions)


def _run(given: argparse.Namespace) -> Opened:
    from tfsparsecap.inference.finished_run import FinishedRun

    trained = FinishedRun.load(given.captioner)
    if given.sample is not None:
        search = trained.sampler(
            given.sample,
            temperature=1.0 if given.temperature is None else given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            seed=given.seed,
        )
    else:
        search = trained.decoder(given.beam)
    return Opened(
        partial(trained.caption, search=search),
        trained.image_size,
        trained.captioner.input_names,
        trained.captioner.feature_size,
        trained.config.data.max_regions,
    )


def inputs_of(opened: Opened, given: argparse.Namespace) -> Iterator[tuple[str, dict | InputError]]:
    """Name and inputs of each picture, or why it cannot be read.

    Raises:
        InputError: the captioner takes features and there is no folder of them, or the other way round.
    """
    if opened.image_size is not None:
        if given.features is not None:
            raise InputError(f"{given.captioner} takes pictures, not features: leave --features out")
        from tfsparsecap.data.images import read_image

        for path in given.images:
            try:
                yield path, {"image": read_image(path, opened.image_size)}
            except InputError as error:
                yield path, error
        return
    if given.features is None:
        raise InputError(
            f"{given.captioner} takes features, not pictures: give --features FOLDER and the IDs of the"
            " images, or train and export a captioner with an encoder"
        )
    from tfsparsecap.data.records import REMEDY
    from tfsparsecap.data.region_features import RegionFeatures

    folder = Path(given.features)
    if folder.name == "cocobu_att" and folder.is_dir():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: give --features the one with cocobu_att/ in it")
    index = partial(
        RegionFeatures,
        folder,
        feature_size=opened.feature_size,
        max_regions=opened.regions,
        need_boxes="boxes" in opened.names,
        need_pooled="pooled" in opened.names and (folder / "cocobu_fc").is_dir(),
    )
    ids = [Path(name).name.removesuffix(".npy").removesuffix(".npz") for name in given.images]
    features = None
    with contextlib.suppress(InputError):  # none can be used: each is asked for its reason below
        features = index(ids)
    for number, name in enumerate(given.images):
        try:
            if features is not None and features.usable[number]:
                row = features.one(number)
            else:
                row = index([ids[number]], on_bad_record="fail").one(0)
        except InputError as error:
            yield name, InputError(str(error).removesuffix(REMEDY))
        else:
            yield name, {key: row[key] for key in opened.names if key in row}


def main(argv: Sequence[str] | None = None) -> int:
    """Captions the images; one that cannot be read is named, the others are captioned all the same.

    Raises:
        InputError: the captioner cannot be read, or the beam is below 1.
    """
    given = arguments(argv)
    if given.beam is not None and given.beam < 1:
        raise InputError(f"--beam is {given.beam}: it must be at least 1")
    if given.beam is not None and given.sample is not None:
        raise InputError("--beam and --sample exclude each other: search for captions, or draw them")
    for name in ("top_k", "top_p", "temperature", "seed"):
        if getattr(given, name) is not None and given.sample is None:
            raise InputError(
                f"--{name.replace('_', '-')} is for captions drawn at random: give --sample N, too"
            )
    code, results = DONE, []
    with only_json_on_stdout(given.json):
        opened = open_captioner(given)
        for path, inputs in inputs_of(opened, given):
            if isinstance(inputs, InputError):
                fail(str(inputs))
                code = WRONG_INPUT
                results.append({"image": path, "error": str(inputs)})
                continue
            captions = opened.caption(**inputs)
            results.append(
                {"image": path, "captions": [{"caption": text, "score": score} for text, score in captions]}
            )
            if not given.json:
                all_of_them = given.beam is not None or given.sample is not None
                for line in lines(path, captions, many=len(given.images) > 1, all_of_them=all_of_them):
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
