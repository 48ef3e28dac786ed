"""python -m tfsparsecap.evaluate: scores of a trained run, of an exported file or of any file of captions."""

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.command import only_json_on_stdout, parser, print_table, run, start_tensorflow
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.metrics.scores import METRICS, check_metrics

if TYPE_CHECKING:
    from tfsparsecap.data.records import CaptionData

# Threads that caption with an exported file where nobody says how many: each loads the file.
_MOST_THREADS = 4
# Of this machine and this moment: said, and not written beside the scores, which exported files take along.
_SAID_ONLY = ("seconds", "images_per_second", "threads")

EXAMPLES = [
    ("python -m tfsparsecap.evaluate runs/quickstart", "the test split, with the run's own beam"),
    (
        "python -m tfsparsecap.evaluate runs/quickstart --split validation --beam 3",
        "another split, another beam",
    ),
    (
        "python -m tfsparsecap.evaluate runs/quickstart/model.tflite",
        "the exported file, on the data of its run",
    ),
    (
        "python -m tfsparsecap.evaluate FILE.tflite --config configs/flickr8k_soft_attention_lstm.yaml",
        "an exported file that lies elsewhere: settings say which data",
    ),
    (
        "python -m tfsparsecap.evaluate --results CAPTIONS.json --references COCO_CAPTIONS.json",
        "any captions",
    ),
    (
        "python -m tfsparsecap.evaluate runs/quickstart --spice",
        "with SPICE: fetches the 387 MB that it needs, once",
    ),
]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of an evaluation."""
    options = parser(
        "python -m tfsparsecap.evaluate",
        "Captions every image of a split and scores the captions as published scores are computed:\n"
        "BLEU-1 to BLEU-4, METEOR, ROUGE-L, ROUGE-1, CIDEr and SPICE; how many are new, how long they\n"
        "are, how many words they use. What cannot be computed is named with the reason, and the time that\n"
        "captioning and scoring take is said. Of a run, scores_SPLIT.json and captions_SPLIT.json are\n"
        "written into its folder (with --beam N: scores_SPLIT_beamN.json).",
        EXAMPLES,
    )
    options.add_argument(
        "captioner", nargs="?", metavar="runs/NAME|FILE.tflite", help="a trained run or an exported file"
    )
    options.add_argument("--split", default="test", choices=("train", "validation", "test"))
    options.add_argument("--beam", type=int, help="captions searched for; the best one counts")
    options.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="of a .tflite file: images captioned at once, each on one thread with the file loaded for itself"
        f" (default: as many as there are cores, {_MOST_THREADS} at most); a run takes all cores by itself",
    )
    options.add_argument("--config", metavar="FILE.yaml", help="of a .tflite file: the settings of its data")
    options.add_argument("--data", metavar="FOLDER", help="where the data lies now, in place of data.folder")
    options.add_argument(
        "--features", metavar="FOLDER", help="where bottom-up features lie, in place of data.features"
    )
    options.add_argument("--output", metavar="FOLDER", help="write scores and captions there")
    options.add_argument("--results", metavar="FILE.json", help="captions to score, in COCO's result format")
    options.add_argument("--references", metavar="FILE.json", help="reference captions, in COCO's format")
    options.add_argument(
        "--training-captions",
        metavar="FILE.json",
        help="with --results: captions of the training images, to tell which of the results are new",
    )
    options.add_argument(
        "--metrics", metavar="NAME,NAME", help=f"some of {','.join(METRICS)}; all of them by default"
    )
    options.add_argument(
        "--spice", action="store_true", help="fetch what SPICE needs with Maven (387 MB) if it is not there"
    )
    options.add_argument(
        "--spice-jars", metavar="FOLDER", help="where that lies, or shall, in place of the user's cache"
    )
    options.add_argument("--json", action="store_true", help="print the scores as JSON")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluates as the command line says.

    Raises:
        InputError: what it names cannot be used.
    """
    given = arguments(argv)
    metrics = _metrics(given)
    if given.threads is not None and given.threads < 1:
        raise InputError(f"--threads is {given.threads}: it must be at least 1")
    if given.output is not None:
        _check_output(Path(given.output))
    with only_json_on_stdout(given.json):
        if given.results or given.references:
            scores, captions, output = _file_of_captions(given, metrics)
        elif given.captioner is None:
            raise InputError("there is nothing to evaluate: give a run folder, a .tflite file, or --results")
        elif Path(given.captioner).is_dir():
            scores, captions, output = _run_folder(given, metrics)
        else:
            scores, captions, output = _exported_file(given, metrics)
        from tfsparsecap.inference.finished_run import describe
        from tfsparsecap.inference.scoring import as_rows

        if output is not None:
            written = {name: value for name, value in scores.items() if name not in _SAID_ONLY}
            _write(output, written, as_rows(captions), given.beam)
        if not given.json:
            print_table(given.captioner or given.results, describe(scores))
    if given.json:
        print(json.dumps(scores))
    return 0


def _run_folder(given: argparse.Namespace, metrics: Sequence[str]) -> tuple[dict, list, Path]:
    start_tensorflow()
    from tfsparsecap.inference.finished_run import FinishedRun
    from tfsparsecap.settings.build import load_data

    trained = FinishedRun.load(given.captioner)
    if given.config is not None:
        raise InputError("--config is for a .tflite file: a run has settings of its own")
    if given.data is not None:
        trained.config.data.folder = given.data
    if given.threads is not None:
        raise InputError("--threads is for a .tflite file: a run takes all cores")
    if given.features is not None and trained.config.model.encoder is not None:
        raise InputError(f"--features is for a run without an encoder: {given.captioner} takes images")
    if given.features is not None:
        trained.config.data.features = given.features
    _check_beam(given.beam)
    data = load_data(trained.config)
    scorer = _scorer(given, metrics, _training_captions(data))
    scores, captions = trained.evaluate(
        data, given.split, given.beam, progress=sys.stderr.isatty(), scorer=scorer
    )
    scores["images_per_second"] = 1000 / scores["ms_per_image"]
    return scores, captions, Path(given.output or given.captioner)


def _exported_file(given: argparse.Namespace, metrics: Sequence[str]) -> tuple[dict, list, Path | None]:
    path = Path(given.captioner)
    if not path.exists():
        raise InputError(f"there is no {path}: give a run folder such as runs/NAME or a .tflite file")
    from tfsparsecap.inference.bundle import TFLiteCaptioner

    exported = TFLiteCaptioner(path)
    built_in = exported.metadata.get("beam")
    if given.beam is not None and given.beam != built_in:
        raise InputError(
            f"{path} searches with beam {built_in}, not {given.beam}: leave --beam out, or export the run "
            f"with tfsparsecap-export --beam {given.beam}"
        )
    settings = Path(given.config) if given.config else path.parent / "config.yaml"
    if not settings.is_file():
        raise InputError(
            f"it is not known which data to evaluate {path} on: give --config with the settings of its run"
        )
    start_tensorflow()
    from tfsparsecap.inference.finished_run import left_out
    from tfsparsecap.inference.scoring import caption_with_file
    from tfsparsecap.settings.build import load_data, region_features
    from tfsparsecap.settings.files import load_config

    config = load_config(settings)
    config.data.folder = given.data or config.data.folder
    config.data.features = given.features or config.data.features
    data = load_data(config)
    records = data.split(given.split)
    if not records:
        raise InputError(f"the {given.split} split of {data.name} has no images: choose another with --split")
    features = None
    if exported.features_shape is not None:
        # No more regions than the file takes.
        config.data.max_regions = exported.features_shape[0]
        features = region_features(config, records)
    threads = given.threads or min(_cores(), _MOST_THREADS, len(records))
    captioners = [exported, *(TFLiteCaptioner(path) for _ in range(threads - 1))]
    captions, milliseconds, speed = caption_with_file(
        captioners, records, features, progress=sys.stderr.isatty()
    )
    scores = {
        "split": given.split,
        "images": len(captions),
        "left_out": left_out(records, captions),
        "beam": built_in,
        **_scorer(given, metrics, _training_captions(data))(captions),
        "ms_per_image": milliseconds,
        "images_per_second": speed,
        "threads": threads,
        "bytes": path.stat().st_size,
    }
    return scores, captions, Path(given.output) if given.output else None


def _file_of_captions(given: argparse.Namespace, metrics: Sequence[str]) -> tuple[dict, list, Path | None]:
    if given.captioner is not None or not (given.results and given.references):
        raise InputError("give --results and --references together, and no run folder or file beside them")
    for name in ("beam", "threads", "config", "data", "features"):
        if getattr(given, name) is not None:
            raise InputError(f"--{name} says how to caption, and the captions in --results are there already")
    start_tensorflow()
    from tfsparsecap.inference.scoring import caption_texts, coco_results

    captions, more = coco_results(_read_json(given.results), _read_json(given.references))
    training = caption_texts(_read_json(given.training_captions)) if given.training_captions else []
    scores = {
        "split": "given",
        "images": len(captions),
        "references_without_caption": more,
        "beam": None,
        **_scorer(given, metrics, training)(captions),
    }
    return scores, captions, Path(given.output) if given.output else None


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _metrics(given: argparse.Namespace) -> Sequence[str]:
    """What is to be computed; wrong names are found before anything is captioned."""
    if given.training_captions and not given.results:
        raise InputError("--training-captions goes with --results: a run knows its own")
    if given.metrics is None:
        return METRICS
    metrics = [name.strip() for name in given.metrics.split(",")]
    check_metrics(metrics)
    if given.spice and "SPICE" not in metrics:
        raise InputError("--spice fetches what SPICE needs, and --metrics leaves SPICE out: give one of them")
    return metrics


def _scorer(
    given: argparse.Namespace, metrics: Sequence[str], training_captions: Iterable[str]
) -> Callable[[list], dict]:
    from tfsparsecap.inference.scoring import every_score_of

    return functools.partial(
        every_score_of,
        metrics=metrics,
        training_captions=training_captions,
        spice_folder=given.spice_jars,
        fetch_spice=given.spice,
        progress=sys.stderr.isatty(),
    )


def _training_captions(data: "CaptionData") -> list[str]:
    return [caption for record in data.split("train") for caption in record.captions]


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON ({error}): give a file in COCO's format") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error


def _check_beam(beam: int | None) -> None:
    if beam is not None and beam < 1:
        raise InputError(f"--beam is {beam}: it must be at least 1")


def _check_output(folder: Path) -> None:
    """Before all the work: whether there can be a folder of this name."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"--output is {folder}, and {there} is no folder: choose another")


def _write(folder: Path, scores: dict, rows: list[dict], beam: int | None) -> None:
    # What a run wrote about itself, with its own beam, is not written over by a search of another width.
    suffix = scores["split"] if beam is None else f"{scores['split']}_beam{beam}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another") from error
    for name, content in (("scores", scores), ("captions", rows)):
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        atomic_write(folder / f"{name}_{suffix}.json", text)


if __name__ == "__main__":
    run(main)
