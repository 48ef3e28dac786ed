"""The main job from nothing to a table and a picture: `python -m tfsparsecap.demo`, which is `make demo`."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write

_EXAMPLES = [
    ("python -m tfsparsecap.demo", "everything; a demo that was stopped goes on where it was"),
    ("python -m tfsparsecap.demo --again", "the same once more, from the beginning"),
    (
        "python -m tfsparsecap.demo --folder runs/quick training.epochs=1",
        "both trainings with other settings than the quickstart's",
    ),
]
# Name of the run and of its file, what differs from the quickstart, and the format of the export.
_MODELS = {
    "dense": (["pruning=null"], "dense"),
    "sparse": (["pruning.sparsity=0.9", "pruning.block_shape=[16,1]"], "auto"),
}
_ON_SHEET = 16
_TIMED_RUNS = 64


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of the demo."""
    options = parser(
        "python -m tfsparsecap.demo",
        "Draws scenes, trains a dense captioner and a sparse one on them, exports both, and lets both files\n"
        "caption scenes that neither has seen, on the TensorFlow Lite runtime. Ends with a table and a\n"
        "sheet of pictures. Both trainings are the quickstart (python -m tfsparsecap.train), pruning apart.",
        _EXAMPLES,
    )
    options.add_argument(
        "settings", nargs="*", metavar="section.key=value", help="settings of both trainings"
    )
    options.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/demo"),
        help="where everything is written (default: runs/demo)",
    )
    options.add_argument("--again", action="store_true", help="train again what is finished already")
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo as the command line says.

    Raises:
        InputError: a setting is wrong, or a file cannot be written.
    """
    options = arguments(argv)
    # Typing errors are found before TensorFlow takes its seconds to start.
    configs = {name: _config(name, options.settings) for name in _MODELS}
    start_tensorflow()
    from rich.console import Console

    from tfsparsecap.settings.build import load_data

    began = time.monotonic()
    console = Console(highlight=False)
    runs = {}
    for number, (name, config) in enumerate(configs.items(), 1):
        console.rule(f"[bold]{number} of 4: training the {name} captioner", align="left")
        runs[name] = _train(config, options, console)
    console.rule("[bold]3 of 4: exporting", align="left")
    files = {name: _export(run, options.folder / f"{name}.tflite", console) for name, run in runs.items()}
    console.rule("[bold]4 of 4: captioning held-out scenes with both files", align="left")
    records = load_data(configs["sparse"]).split("test")
    captions = {name: _captions(file, records) for name, file in files.items()}
    speed = _benchmark(files, [record.image for record in records[:_ON_SHEET]], console)
    figures = {name: _figures(runs[name], files[name], captions[name], speed[name]) for name in files}
    sheet = _draw(options.folder / "sheet.png", records, captions["sparse"], figures["sparse"])
    atomic_write(options.folder / "figures.json", json.dumps(figures, indent=1) + "\n")

    console.print()
    console.print(_table(figures))
    console.print(
        "A caption is right if it is one of the scene's five references, word by word. Weights are those of"
        " the decoder, which is what is pruned; the files hold the encoder too. Phones take other times."
    )
    console.print(f"\nLook at the pictures: [bold]{sheet}[/]   ({time.monotonic() - began:.0f} s in all)")
    console.print(
        f"Caption one yourself: python -m tfsparsecap.caption {files['sparse']} {records[0].image}",
        soft_wrap=True,
    )


def _config(name: str, settings: list[str]):
    """The quickstart's settings, changed by the person and by what the model of that name is."""
    from tfsparsecap.settings.files import load_config

    return load_config(None, [*settings, *_MODELS[name][0], f"name={name}"])


def _train(config, options: argparse.Namespace, console) -> Path:
    """The run's folder, with a finished run of the asked settings in it."""
    from tfsparsecap.runs.run_folder import RunFolder
    from tfsparsecap.training.run import train_run

    settings = shlex.join([*options.settings, *_MODELS[config.name][0]])
    console.print(f"as python -m tfsparsecap.train {settings}", soft_wrap=True)
    folder = RunFolder(options.folder / config.name)
    resume = folder.config_file.is_file() and not options.again
    if resume:
        try:
            folder.check(config, resume=True)
        except InputError:
            console.print(f"{folder.path} holds a run with other settings: starting again")
            resume = False
    if resume and (folder.path / "scores_test.json").is_file():
        console.print(f"{folder.path} is finished already; --again trains it once more")
        return folder.path
    if not resume and folder.checkpoints.is_dir():
        shutil.rmtree(folder.path)  # a training's folder, and the demo's own
    train_run(
        config, resume=resume, runs=options.folder, verbose=1 if sys.stdout.isatty() else 2, say=console.print
    )
    return folder.path


def _export(run: Path, file: Path, console) -> Path:
    """The run as a .tflite file; the exporter is a package of its own, so its command is run."""
    command = ["--tflite", str(run), "--format", _MODELS[run.name][1], "--output", str(file)]
    console.print(f"$ tfsparsecap-export {shlex.join(command)}", soft_wrap=True)
    report = json.loads(_run("tfsparsecap_export", *command, "--json"))
    size, check = report["bytes"] / 1e3, report["verification"]
    console.print(
        f"  {size:,.0f} KB; {check['equal']:.0%} of {check['samples']} captions equal the Keras model's"
    )
    return file


def _captions(file: Path, records: list) -> list:
    """What the file says of each record's image: `scoring.ImageCaption`s."""
    from tqdm import tqdm

    from tfsparsecap.data.images import read_image
    from tfsparsecap.inference.bundle import TFLiteCaptioner
    from tfsparsecap.inference.scoring import ImageCaption

    captioner = TFLiteCaptioner(file)
    captions = []
    for record in tqdm(records, desc=file.name, unit="image"):
        text, score = captioner.caption(read_image(record.image, captioner.image_size))[0]
        captions.append(ImageCaption(record.image_id, text, score, record.captions))
    return captions


def _benchmark(files: dict[str, Path], images: list[Path], console) -> dict[str, dict]:
    """Times of both files, in turns on the same pictures."""
    command = [*map(str, files.values()), "--runs", str(_TIMED_RUNS)]
    console.print(f"$ python -m tfsparsecap_export.benchmark {shlex.join(command)}", soft_wrap=True)
    results = json.loads(
        _run("tfsparsecap_export.benchmark", *command, "--json", "--images", *map(str, images))
    )
    return dict(zip(files, results, strict=True))


def _run(module: str, *arguments: str) -> str:
    """What a command prints; its progress and its errors go where ours do.

    Raises:
        InputError: it failed, having said why.
    """

    result = subprocess.run(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode:
        raise InputError(f"{module} ended with exit code {result.returncode}: see above what it says")
    return result.stdout


def _figures(run: Path, file: Path, captions: list, speed: dict) -> dict:
    from tfsparsecap.inference.scoring import scores_of

    weights = json.loads((run / "scores_test.json").read_text(encoding="utf-8"))
    return {
        **scores_of(captions),
        **{name: weights[name] for name in ("weights", "nonzero_weights", "sparsity")},
        "images": len(captions),
        "bytes": file.stat().st_size,
        "ms": speed["ms"],
    }


def _table(figures: dict[str, dict]):
    """Dense against sparse, a line a figure."""
    from rich.table import Table

    dense, sparse = figures["dense"], figures["sparse"]
    table = Table(
        title=f"{sparse['images']} held-out scenes, captioned by LiteRT on one thread", title_justify="left"
    )
    table.add_column("")
    for name in ("dense", "sparse", "ratio"):
        table.add_column(name, justify="right")
    for title, key, shown, divided in (
        ("CIDEr", "CIDEr", lambda x: f"{x:.3f}", ""),
        ("captions that are right", "exact_match", lambda x: f"{x:.1%}", ""),
        ("non-zero weights", "nonzero_weights", lambda x: f"{x:,}", "x fewer"),
        ("sparsity", "sparsity", lambda x: f"{x:.2%}", ""),
        ("file, KB", "bytes", lambda x: f"{x / 1e3:,.0f}", "x smaller"),
        ("ms a caption", "ms", lambda x: f"{x:.2f}", "x as fast"),
    ):
        if key not in dense or key not in sparse:
            continue  # a single scene has no CIDEr
        ratio = f"{dense[key] / sparse[key]:.1f}{divided}" if divided else ""
        table.add_row(title, shown(dense[key]), shown(sparse[key]), ratio)
    return table


def _draw(path: Path, records: list, captions: list, figures: dict) -> Path:
    """The sheet of the first held-out scenes, whatever is said about them."""
    from tfsparsecap.metrics.scores import exact_match
    from tfsparsecap.reports.image_sheet import Captioned, draw_sheet

    images = {record.image_id: record.image for record in records}
    pictures = [
        Captioned(
            images[said.image_id],
            said.caption,
            bool(exact_match({0: said.references}, {0: said.caption})),
            reference=said.references[0],
        )
        for said in captions[:_ON_SHEET]
    ]
    draw_sheet(
        pictures,
        path,
        title=f"What a {figures['sparsity']:.0%} sparse captioner says",
        subtitle=f"The first {len(pictures)} of {figures['images']} scenes that it has never seen;"
        f" of all of them it gets {figures['exact_match']:.0%} right.",
    )
    return path


if __name__ == "__main__":
    run(main)
