"""python -m tfsparsecap.demo: the whole pipeline on generated images, which is `make demo`.

Generates images of coloured shapes, trains a dense and a sparse captioner on them, exports both, and
captions held-out images with both files on the TensorFlow Lite runtime. Ends with a table and a sheet of
captioned images. The dense captioner is trained as in the quickstart (python -m tfsparsecap.train); the
sparse one starts from it, and is pruned in one more epoch, in which it also learns from it
(training.teacher). In a clone of the project, a captioner that comes with it captions four photographs
before.

examples:
  python -m tfsparsecap.demo
      the whole demo; resumes an interrupted one
  python -m tfsparsecap.demo --again
      train again from the beginning
  python -m tfsparsecap.demo --seeds 5
      five times, with mean and standard deviation in the table
  python -m tfsparsecap.demo --folder runs/quick training.epochs=1
      train both captioners with other settings than the quickstart's
"""

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.captioning.captioners import NAMES, captioner_path
from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_write, make_folder
from tfsparsecap.errors import InputError, check_whole

# Name of the run and the file, changes to the quickstart, and format of the export.
_MODELS = {
    "dense": (["pruning=null"], "dense"),
    "sparse": (["pruning.sparsity=0.9", "pruning.block_shape=[16,1]", "training.epochs=1"], "auto"),
}
# Key, title and format of each row of the final table, and the name of the ratio dense / sparse ("": none).
_ROWS = (
    ("CIDEr", "CIDEr", "{:.3f}", ""),
    ("exact_match", "correct captions", "{:.1%}", ""),
    ("nonzero_weights", "non-zero weights", "{:,.0f}", "x fewer"),
    ("sparsity", "sparsity", "{:.2%}", ""),
    ("kilobytes", "file, KB", "{:,.0f}", "x smaller"),
    ("ms", "ms per caption", "{:.2f}", "x faster"),
)
_IMAGES_ON_SHEET = 16
# In a clone of the project; they are free.
_PHOTOGRAPHS = Path(__file__).parents[1] / "docs" / "images" / "photographs"
_TIMED_RUNS = 64
_SHEET = "sheet.png"


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument(
        "settings", nargs="*", metavar="section.key=value", help="settings of both training runs"
    )
    options.add_argument(
        "--folder", type=Path, default=Path("runs/demo"), help="output folder (default: runs/demo)"
    )
    options.add_argument("--again", action="store_true", help="train finished captioners again")
    options.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="repeat it with N seeds (default: 1)"
    )
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the demo.

    Raises:
        InputError: a setting is wrong, or a file cannot be written.
    """
    options = arguments(argv)
    # Before TensorFlow starts, which takes seconds.
    if options.folder.exists() and not options.folder.is_dir():
        raise InputError(f"--folder is {options.folder}, which is not a folder: choose another one")
    check_whole("--seeds", options.seeds, at_least=1)
    several = [
        (options.folder / f"seed_{number}", [f"seed={number}"]) for number in range(1, options.seeds + 1)
    ]
    repeats = several if options.seeds > 1 else [(options.folder, [])]
    for folder, seed in repeats:
        _configs([*options.settings, *seed], folder)
    from rich.console import Console

    start = time.monotonic()
    console = Console(highlight=False)
    if _PHOTOGRAPHS.is_dir():
        console.rule("[bold]Captioning photographs", align="left")
        _caption_photographs(options.folder, console)
    start_tensorflow()
    results, image = [], Path()
    for folder, seed in repeats:
        changes = {"folder": folder, "settings": [*options.settings, *seed]}
        repeat_options = argparse.Namespace(**{**vars(options), **changes})
        repeat_results, image = _train_and_export(repeat_options, console)
        results.append(repeat_results)
    console.print()
    console.print(_table(results))
    console.print(
        "A caption is correct if it equals one of the image's five references. Only the decoder is pruned,"
        " and only its weights are counted; the files contain the encoder too. Latencies on phones differ."
    )
    first = repeats[0][0]
    console.print(
        f"\nCaptioned images: [bold]{first / _SHEET}[/]   ({time.monotonic() - start:.0f} s in total)"
    )
    console.print(
        f"Caption one yourself: python -m tfsparsecap.caption {first / 'sparse.tflite'} {image}",
        soft_wrap=True,
    )


def _configs(settings: list[str], folder: Path) -> dict[str, Any]:
    return {name: _config(name, settings, folder) for name in _MODELS}


def _train_and_export(options: argparse.Namespace, console: Any) -> tuple[dict[str, dict], Path]:
    """Trains both captioners in `options.folder`, exports and compares them; returns results and an image."""
    from tfsparsecap.captioning.settings.build import load_data

    configs, runs, files = _configs(options.settings, options.folder), {}, {}
    for number, (name, config) in enumerate(configs.items(), 1):
        console.rule(f"[bold]{number} of 4: training the {name} captioner", align="left")
        runs[name] = _train(config, options, console)
    console.rule("[bold]3 of 4: exporting", align="left")
    for name, folder in runs.items():
        files[name] = options.folder / f"{name}.tflite"
        command = ["--tflite", str(folder), "--format", _MODELS[name][1], "--output", str(files[name])]
        console.print(f"$ tfsparsecap-export {shlex.join(command)}", soft_wrap=True)
        report = _run("tfsparsecap_export", *command)
        check = report["verification"]
        console.print(
            f"  {report['bytes'] / 1e3:,.0f} KB; {check['equal']:.0%} of {check['samples']} captions equal"
            " those of the Keras model"
        )
    console.rule("[bold]4 of 4: captioning held-out images with both files", align="left")
    records = load_data(configs["sparse"]).split("test")
    captions = {name: _captions(file, records) for name, file in files.items()}
    command = [*map(str, files.values()), "--runs", str(_TIMED_RUNS)]
    console.print(f"$ python -m tfsparsecap_export.benchmark {shlex.join(command)}", soft_wrap=True)
    images = [str(record.image) for record in records[:_IMAGES_ON_SHEET]]
    timings = _run("tfsparsecap_export.benchmark", *command, "--images", *images)
    results = {
        name: _results(runs[name], files[name], captions[name], timing)
        for name, timing in zip(files, timings, strict=True)
    }
    _draw_sheet(options.folder / _SHEET, records, captions["sparse"], results["sparse"])
    atomic_write(options.folder / "results.json", json.dumps(results, indent=1) + "\n")
    return results, records[0].image


def _config(name: str, settings: list[str], folder: Path):
    """The quickstart with the user's changes and those of the model."""
    from tfsparsecap.captioning.settings.config_files import load_config

    return load_config(None, [*_changes(name, settings, folder), f"name={name}"])


def _changes(name: str, settings: list[str], folder: Path) -> list[str]:
    """Changes to the quickstart that make a model: its own, the user's, and the dense model to learn from."""
    dense = json.dumps(str(folder / "dense"), ensure_ascii=False)
    taught = [f"training.start_from={dense}", f"training.teacher={dense}"]
    return [*_MODELS[name][0], *settings, *(taught if name == "sparse" else [])]


def _train(config, options: argparse.Namespace, console) -> Path:
    """Trains, resumes or reuses a run; returns its folder."""
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.captioning.training.train_run import train_run

    settings = shlex.join(_changes(config.name, options.settings, options.folder))
    console.print(f"same as: python -m tfsparsecap.train {settings}", soft_wrap=True)
    folder = RunFolder(options.folder / config.name)
    resume = folder.config_file.is_file() and not options.again
    if resume:
        try:
            folder.check(config, resume=True)
        except InputError as error:
            raise InputError(
                f"{folder.path} is a run with other settings: give another --folder, or --again to replace it"
            ) from error
    if resume and (folder.path / "scores_test.json").is_file():
        console.print(f"{folder.path} is already finished; --again trains it again")
        return folder.path
    if not resume and folder.checkpoints.is_dir():
        shutil.rmtree(folder.path)  # only a run folder has checkpoints
    verbose = 1 if sys.stdout.isatty() else 2
    train_run(config, resume=resume, runs=options.folder, verbose=verbose, report=console.print)
    return folder.path


def _run(module: str, *arguments: str):
    """The JSON output of a command; its progress and errors are printed.

    Raises:
        InputError: the command failed, after printing the reason.
    """
    command = [sys.executable, "-m", module, *arguments, "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        raise InputError(f"{module} failed with exit code {result.returncode}: see its message above")
    return json.loads(result.stdout)


def _captions(file: Path, records: list) -> list:
    """The best caption of each image, as `ImageCaption`s."""
    from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
    from tfsparsecap.captioning.inference.splits import caption_with_file

    return caption_with_file([TFLiteCaptioner(file)], records, progress=sys.stderr.isatty())[0]


def _results(run: Path, file: Path, captions: list, timing: dict) -> dict:
    from tfsparsecap.captioning.inference.bundle import read_bundle
    from tfsparsecap.captioning.inference.scoring import scores_of

    weights = json.loads((run / "scores_test.json").read_text(encoding="utf-8"))
    return {
        **scores_of(captions),
        **{name: weights[name] for name in ("weights", "nonzero_weights", "sparsity")},
        "images": len(captions),
        "beam": read_bundle(file)[0]["beam"],
        "kilobytes": file.stat().st_size / 1e3,
        "ms": timing["ms"],
    }


def _table(results: Sequence[dict[str, dict]]):
    """Compares dense and sparse, one row per result: mean and standard deviation over the seeds."""
    from rich.table import Table

    images, beam = (results[0]["sparse"][name] for name in ("images", "beam"))
    title = f"{images} held-out images, captioned by LiteRT with beam {beam} on one thread"
    if len(results) > 1:
        title += f"; mean and standard deviation of {len(results)} seeds"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("dense", "sparse", "ratio"):
        table.add_column(name, justify="right")
    for key, title, shown, ratio in _ROWS:
        # A single image has no CIDEr.
        if all(key in repeat[name] for repeat in results for name in _MODELS):
            dense, sparse = ([repeat[name][key] for repeat in results] for name in _MODELS)
            divided = f"{statistics.fmean(dense) / statistics.fmean(sparse):.1f}{ratio}" if ratio else ""
            table.add_row(title, _mean(dense, shown), _mean(sparse, shown), divided)
    return table


def _mean(values: Sequence[float], shown: str) -> str:
    """The mean and, if it is not printed as 0, the standard deviation."""
    text = shown.format(statistics.fmean(values))
    spread = shown.format(statistics.stdev(values) if len(values) > 1 else 0)
    return text if spread == shown.format(0) else f"{text} ± {spread}"


def _caption_photographs(folder: Path, console) -> None:
    """Captions photographs with the first captioner of the package; prints them and draws a sheet."""
    from tfsparsecap.captioning.html_report.image_sheet import CaptionedImage, draw_sheet
    from tfsparsecap.captioning.inference import load

    make_folder(folder)
    captioner, images, sheet = load(), [], folder / "photographs.png"
    photographs = sorted(_PHOTOGRAPHS.glob("*.jpg"))
    for photograph, captions in zip(photographs, captioner.stream(photographs), strict=True):
        images.append(CaptionedImage(photograph, captions.summary()))
        console.print(f"  {photograph.name}: {captions.summary()}", soft_wrap=True)
    size = captioner_path(NAMES[0]).stat().st_size
    draw_sheet(
        images,
        sheet,
        title="Photographs",
        subtitle=f"A captioner of {size / 1e6:.1f} MB.",
        columns=len(images),
    )
    console.print(
        f"Captioned photographs: [bold]{sheet}[/]\nCaption your own: python -m tfsparsecap.caption PHOTO.jpg",
        soft_wrap=True,
    )


def _draw_sheet(path: Path, records: list, captions: list, results: dict) -> None:
    """A sheet with the first held-out images and their captions."""
    from tfsparsecap.captioning.html_report.image_sheet import CaptionedImage, draw_sheet
    from tfsparsecap.captioning.metrics.scores import exact_match

    files = {record.image_id: record.image for record in records}
    images = [
        CaptionedImage(
            files[caption.image_id],
            caption.caption,
            bool(exact_match({0: caption.references}, {0: caption.caption})),
            reference=caption.references[0],
        )
        for caption in captions[:_IMAGES_ON_SHEET]
    ]
    draw_sheet(
        images,
        path,
        title=f"Captions of a {results['sparsity']:.0%} sparse captioner",
        subtitle=f"The first {len(images)} of {results['images']} held-out images;"
        f" {results['exact_match']:.0%} of all captions are correct.",
    )


if __name__ == "__main__":
    run(main)
