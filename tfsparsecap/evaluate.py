"""python -m tfsparsecap.evaluate: scores of a trained run, an exported file or a file of captions.

Captions every image of a split and scores the captions as papers do: BLEU-1 to BLEU-4, METEOR, ROUGE-L,
ROUGE-1, CIDEr and SPICE, with statistics of the captions and the time taken; where the objects in images are
labelled, also object recall and hallucination. A score that cannot be computed is listed with the reason. For
a run, scores_SPLIT.json and captions_SPLIT.json are written into its folder (with --beam N:
scores_SPLIT_beamN.json, and likewise with other options of the search; with the --data of another data set:
scores_SPLIT_on_NAME.json; with other --features: scores_SPLIT_features_NAME.json; if the run's data has
changed: scores_SPLIT_changed_data.json). Scores that the file has already stay if the captions are the same;
those of another tokenizer, such as the training's, are computed again.

examples:
  python -m tfsparsecap.evaluate runs/quickstart
      the test split, with the run's own beam
  python -m tfsparsecap.evaluate runs/quickstart --split validation --beam 3
      another split, another beam
  python -m tfsparsecap.evaluate runs/quickstart/model.tflite
      the exported file, on the data of its run
  python -m tfsparsecap.evaluate good --config flickr8k_good --data ~/flickr8k
      a captioner of the package, or a file in another place, on the data of a configuration
  python -m tfsparsecap.evaluate --results CAPTIONS.json --references COCO_CAPTIONS.json
      captions of any origin
  python -m tfsparsecap.evaluate runs/quickstart --spice
      with SPICE: downloads 387 MB, once
"""

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.command import (
    add_search_options,
    add_trust_option,
    only_json_on_stdout,
    parser,
    print_table,
    run,
    search_options,
    start_tensorflow,
)
from tfsparsecap.core.files import atomic_write, make_folder, read_json
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    from tfsparsecap.captioning.data.records import CaptionData
    from tfsparsecap.captioning.inference.scoring import ImageCaption
    from tfsparsecap.captioning.search.search_options import SearchOptions
    from tfsparsecap.captioning.settings.schema import Config

# Default number of threads for an exported file at most: each loads the file.
_MAX_THREADS = 4
# Depend on the machine: printed, but not written beside the scores, which exported files contain.
_PRINTED_ONLY = ("seconds", "images_per_second", "threads")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    from tfsparsecap.captioning.metrics import METRICS

    options = parser(__doc__)
    options.add_argument(
        "captioner",
        nargs="?",
        metavar="runs/NAME|FILE.tflite|good|small|hf://USER/NAME",
        help="a trained run, an exported file, or a captioner that comes with the package",
    )
    options.add_argument(
        "--split", default="test", choices=("train", "validation", "test"), help="default: test"
    )
    options.add_argument("--beam", type=int, help="beam width; the best caption is scored")
    options.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="for a .tflite file: number of images captioned at the same time, each on one thread with a"
        f" copy of the file (default: number of cores, at most {_MAX_THREADS}); a run uses all cores anyway",
    )
    options.add_argument(
        "--config", metavar="FILE.yaml", help="for a .tflite file: settings of its data, as for train"
    )
    options.add_argument("--data", metavar="FOLDER", help="replaces data.folder of the settings")
    options.add_argument("--features", metavar="FOLDER", help="replaces data.features of the settings")
    options.add_argument("--output", metavar="FOLDER", help="write scores and captions there")
    options.add_argument("--results", metavar="FILE.json", help="captions to score, in COCO's result format")
    options.add_argument("--references", metavar="FILE.json", help="reference captions, in COCO's format")
    options.add_argument(
        "--training-captions",
        metavar="FILE.json",
        help="with --results: captions of the training images, to count which results are new",
    )
    options.add_argument("--metrics", metavar="NAME,NAME", help=f"some of {','.join(METRICS)}; default: all")
    options.add_argument(
        "--spice", action="store_true", help="download what SPICE needs with Maven (387 MB) if it is missing"
    )
    options.add_argument("--spice-jars", metavar="FOLDER", help="folder of SPICE's jars (default: the cache)")
    add_search_options(options)
    add_trust_option(options)
    options.add_argument("--json", action="store_true", help="print the scores as JSON")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Captions and scores.

    Raises:
        InputError: an option or a file is wrong.
    """
    options = arguments(argv)
    _check(options)
    if options.output is not None:
        make_folder(Path(options.output))
    with only_json_on_stdout(options.json):
        from tfsparsecap.captioning.inference.scoring import as_rows, scores_table

        data: dict[str, Any] = {}
        is_run = options.captioner is not None and Path(options.captioner).is_dir()
        if options.captioner is None:
            scores, captions = _score_file(options)
        elif is_run:
            scores, captions, data = _evaluate_run(options)
        else:
            scores, captions = _evaluate_file(options)
        output = options.output or (options.captioner if is_run else None)
        if output is not None:
            written = {name: value for name, value in scores.items() if name not in _PRINTED_ONLY}
            _write(
                Path(output),
                written,
                as_rows(captions),
                {**data, "beam": options.beam, **search_options(options)},
                lambda metrics: _scorer(options, None, metrics=metrics)(captions),
            )
        if not options.json:
            print_table(options.captioner or options.results, scores_table(scores))
    if options.json:
        print(json.dumps(scores))
    return 0


def _check(options: argparse.Namespace) -> None:
    """Checks the options before anything is captioned."""
    from tfsparsecap.captioning.metrics.scores import METRICS, check_metrics

    changes = search_options(options)
    for name in ("beam", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise InputError(f"--{name} is {getattr(options, name)}: it must be at least 1")
    if options.training_captions and not options.results:
        raise InputError("--training-captions is for --results: a run knows its training captions")
    if options.metrics is not None:
        options.metrics = [name.strip() for name in options.metrics.split(",")]
        check_metrics(options.metrics)
    if options.spice and "SPICE" not in (options.metrics or METRICS):
        raise InputError("--spice is given and --metrics leaves SPICE out: give one of them")
    if options.results or options.references:
        if options.captioner is not None or not (options.results and options.references):
            raise InputError("give --results and --references together, without a run folder or .tflite file")
        for name in ("beam", "threads", "config", "data", "features"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name} is about captioning: leave it out, --results has the captions")
        if changes:
            raise InputError("--results has the captions: leave out the options of the search")
    elif options.captioner is None:
        raise InputError("there is nothing to evaluate: give a run folder, a .tflite file, or --results")


def _scorer(
    options: argparse.Namespace,
    training_captions: Sequence[str] | None,
    rules: "SearchOptions | None" = None,
    metrics: Sequence[str] | None = None,
) -> Callable[[list], dict]:
    """Computes the chosen scores of captions, or `metrics`."""
    from tfsparsecap.captioning.inference.scoring import all_scores_of
    from tfsparsecap.captioning.metrics.scores import METRICS

    return functools.partial(
        all_scores_of,
        metrics=metrics or options.metrics or METRICS,
        training_captions=training_captions,
        rules=rules,
        spice_folder=options.spice_jars,
        fetch_spice=options.spice,
        progress=sys.stderr.isatty(),
    )


def _evaluate_run(options: argparse.Namespace) -> tuple[dict, list["ImageCaption"], dict[str, Any]]:
    """Scores, captions, and what to name files after if the data is not what the run was trained on."""
    for name in ("config", "threads"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name} is for a .tflite file: leave it out for a run")
    start_tensorflow()
    from tfsparsecap.captioning.inference.finished_run import FinishedRun
    from tfsparsecap.captioning.runs.run_folder import RunFolder

    finished = FinishedRun.load(options.captioner)
    own_features = finished.config.data.features
    data, scorer = _load_data(options, finished.config)
    other: dict[str, Any] = {}
    if note := RunFolder(options.captioner).data_note(data):
        if options.data is not None:
            other = {"on": f"_{data.name}"}
            scorer = _scorer(options, None, finished.config.decoding.rules(finished.config.data.kind))
        else:
            other = {"changed_data": True}
            print(f"{note}; names of the files of scores end in _changed_data", file=sys.stderr)
    if options.features is not None and _folder(options.features) != _folder(own_features or ""):
        other["features"] = f"_{_folder(options.features).name}"
    finished.change_search(**search_options(options))
    scores, captions = finished.evaluate(
        data, options.split, options.beam, progress=sys.stderr.isatty(), scorer=scorer
    )
    return {**scores, "images_per_second": 1000 / scores["ms_per_image"]}, captions, other


def _folder(path: str) -> Path:
    return Path(path).expanduser().resolve()


def _evaluate_file(options: argparse.Namespace) -> tuple[dict, list["ImageCaption"]]:
    path = captioner_path(options.captioner)
    from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner

    captioner = TFLiteCaptioner(path, trust=options.trust)
    captioner.check_beam(options.beam)
    captioner.change_search(**search_options(options))
    settings = Path(options.config or path.parent / "config.yaml")
    if options.config is None and not settings.is_file():
        raise InputError(f"the data of {path} is unknown: give --config with the settings of its run")
    start_tensorflow()
    from tfsparsecap.captioning.inference.splits import evaluate_file
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.captioning.settings.build import region_features
    from tfsparsecap.captioning.settings.config_files import load_config

    config = load_config(settings)
    data, scorer = _load_data(options, config)
    if options.config is None and options.data is None and (note := RunFolder(path.parent).data_note(data)):
        print(note, file=sys.stderr)
    config.data.max_regions = captioner.max_regions or config.data.max_regions
    return evaluate_file(
        captioner,
        data,
        options.split,
        features=functools.partial(region_features, config),
        threads=options.threads or min(len(os.sched_getaffinity(0)), _MAX_THREADS),
        progress=sys.stderr.isatty(),
        scorer=scorer,
    )


def _load_data(options: argparse.Namespace, config: "Config") -> tuple["CaptionData", Callable[[list], dict]]:
    """The data set, and a scorer that knows its training captions."""
    from tfsparsecap.captioning.settings.build import load_data

    if options.features is not None and config.model.encoder is not None:
        raise InputError(
            f"--features is for a captioner without an encoder: {options.captioner} takes images"
        )
    config.data.folder = options.data or config.data.folder
    config.data.features = options.features or config.data.features
    data = load_data(config)
    training = [caption for record in data.split("train") for caption in record.captions]
    return data, _scorer(options, training, config.decoding.rules(config.data.kind))


def _score_file(options: argparse.Namespace) -> tuple[dict, list["ImageCaption"]]:
    """Scores and captions of a file of captions."""
    from tfsparsecap.captioning.inference.scoring import caption_texts, coco_results, object_scores_of

    advice = "give a file in COCO's format"
    captions, more = coco_results(read_json(options.results, advice), read_json(options.references, advice))
    training = []
    if options.training_captions:
        training = caption_texts(read_json(options.training_captions, advice))
    about = {"split": "given", "images": len(captions), "references_without_caption": more, "beam": None}
    names = {name for caption in captions for name in caption.labels or ()}
    objects = object_scores_of(captions, names)
    return {**about, **_scorer(options, training)(captions), **objects}, captions


def _write(
    folder: Path,
    scores: dict,
    rows: list[dict],
    changes: dict[str, Any],
    scorer: Callable[[Sequence[str]], dict],
) -> None:
    # The scores with the run's own search are not overwritten by those with another one.
    suffix = scores["split"]
    for name, value in changes.items():
        if value is not None:
            suffix += f"_{name}" if value is True else f"_{name}{value}"
    files = [folder / f"{name}_{suffix}.json" for name in ("scores", "captions")]
    for file, content in zip(files, (_with_earlier(scores, rows, scorer, *files), rows), strict=True):
        atomic_write(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _with_earlier(
    scores: dict,
    rows: list[dict],
    scorer: Callable[[Sequence[str]], dict],
    score_file: Path,
    caption_file: Path,
) -> dict:
    """The scores, and others that the file has for the same captions.

    Args:
        scorer: computes metrics; if the file has those of another tokenizer, they are computed again.
    """
    from tfsparsecap.captioning.metrics import METRICS

    def said(row: dict) -> list:
        return [row["image_id"], row["caption"], *row["references"]]

    try:
        earlier, before = (
            json.loads(path.read_text(encoding="utf-8")) for path in (score_file, caption_file)
        )
        same = all(earlier[name] == scores[name] for name in ("beam", "images"))
        if not same or list(map(said, before)) != list(map(said, rows)):
            return scores
        # A training writes neither of the two: its scores have the light tokenizer.
        reasons = {**earlier.pop("not_computed", {})}
        tokenizer = earlier.get("tokenizer", "light")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return scores
    if tokenizer != scores["tokenizer"]:
        metric_of = {name: "BLEU" if name.startswith("BLEU-") else name for name in earlier}
        lost = dict.fromkeys(metric for name, metric in metric_of.items() if name not in scores)
        again = scorer([metric for metric in METRICS if metric in lost]) if lost.keys() & METRICS else {}
        reasons = again.get("not_computed", {})
        earlier = {
            name: again.get(name) if metric in METRICS else earlier[name]
            for name, metric in metric_of.items()
            if metric not in METRICS or name in again
        }
    merged = {**earlier, **scores}
    reasons = {**reasons, **scores["not_computed"]}
    merged["not_computed"] = {name: why for name, why in reasons.items() if name not in merged}
    return merged


if __name__ == "__main__":
    run(main)
