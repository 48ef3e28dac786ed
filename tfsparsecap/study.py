"""python -m tfsparsecap.study: a grid of trainings with one table and one figure.

Trains a grid of runs (captioners x methods x sparsities x seeds), each with a run folder in runs/NAME/,
and writes table.md, table.csv, runs.csv, plot.png and plot.svg there. Finished runs are skipped and
interrupted ones are resumed. tfsparsecap/studies/study.py describes the keys of a study's file. With
--layers it prints the layer-wise sparsities of finished runs.

examples:
  python -m tfsparsecap.study --config configs/studies/scenes.yaml
      on synthetic scenes, half an hour
  python -m tfsparsecap.study --config configs/studies/flickr8k.yaml data.folder=PATH --jobs 2
      on Flickr8k, in hours; the same command resumes it after an interruption
  python -m tfsparsecap.study --config configs/studies/scenes.yaml --dry-run
      list the runs
  python -m tfsparsecap.study --config configs/studies/scenes.yaml --tables
      update the tables only
  python -m tfsparsecap.study --layers runs/smp runs/gradual --output layers.png
      layer-wise sparsities of finished runs
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.command import fail, only_json_on_stdout, parser, print_table, run, start_tensorflow
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    from tfsparsecap.studies.study import GridRun, Study
    from tfsparsecap.studies.table import Result


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    task = options.add_mutually_exclusive_group(required=True)
    task.add_argument(
        "--config", metavar="FILE.yaml", help="the study's file, such as one in configs/studies/"
    )
    task.add_argument("--layers", nargs="+", metavar="RUN", help="print layer-wise sparsities of these runs")
    options.add_argument("settings", nargs="*", metavar="section.key=value", help="settings of all runs")
    options.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    options.add_argument(
        "--runs", metavar="FOLDER", default="runs", help="parent of the study's folder (default: runs)"
    )
    options.add_argument(
        "--published",
        metavar="PATH",
        help="published results to compare with: a folder of tables of scores, or one such table; with "
        "--layers, a table of layer-wise sparsities",
    )
    options.add_argument("--output", metavar="FILE.png", help="with --layers: plot to this file")
    options.add_argument("--dry-run", action="store_true", help="list the runs without training")
    options.add_argument("--tables", action="store_true", help="write tables and plot without training")
    options.add_argument("--json", action="store_true", help="print the results as JSON")
    options.add_argument("--quiet", action="store_true", help="no progress bar")
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a study; returns 1 if a run failed.

    Raises:
        InputError: the study's file, a run's settings or the data are wrong.
    """
    given = arguments(argv)
    if given.published and not Path(given.published).exists():
        raise InputError(f"--published is {given.published}, which does not exist: check the path")
    if given.layers:
        return _layers(given)
    with only_json_on_stdout(given.json):
        from tfsparsecap.studies.study import grid, load_study

        study = load_study(given.config)
        runs = grid(study, given.config, given.runs, given.settings)
        folder = Path(given.runs) / study.name
        start_tensorflow()
        from tfsparsecap.studies.runner import check_runs, run_study

        check_runs(runs)
        if given.dry_run:
            print(f"{len(runs)} runs in {folder}:")
            for one in runs:
                print(one.name + (f" (after {' and '.join(one.needs)})" if one.needs else ""))
            return 0
        failed: dict[str, str] = {}
        if not given.tables:
            failed = run_study(
                runs,
                folder,
                jobs=given.jobs,
                progress=not given.quiet,
                after_each=lambda: _write(study, runs, folder, given.published),
            )
        results, written = _write(study, runs, folder, given.published)
        for name, reason in failed.items():
            fail(f"{name}: {reason}")
        for file in written:
            print(f"written: {file}")
        if not results:
            print(f"no run in {folder} is finished yet")
    if given.json:
        print(json.dumps([vars(result) for result in results]))
    elif results:
        from tfsparsecap.studies.table import aggregate, score_text

        rows = [
            (
                ", ".join(part for part in (row.captioner, row.method, row.variant) if part),
                f"{study.score} {score_text(row, study.score)}, sparsity {row.final_sparsity:.1%}",
            )
            for row in aggregate(results)
        ]
        print_table(study.title or study.name, rows)
    return 1 if failed else 0


def _write(
    study: "Study", runs: Sequence["GridRun"], folder: Path, published: str | None
) -> tuple[list["Result"], list[Path]]:
    """Writes tables and plot of the finished runs; returns the results and the files."""
    from tfsparsecap.studies.plot import plot
    from tfsparsecap.studies.runner import read_result
    from tfsparsecap.studies.table import write_tables

    # If one run prunes the encoder, encoder weights are counted for all runs.
    with_encoder = any(one.config.pruning is not None and one.config.pruning.encoder for one in runs)
    found = [read_result(one, folder, with_encoder) for one in runs]
    results = [result for result in found if result is not None]
    if not results:
        return [], []
    missing = [one for one, result in zip(runs, found, strict=True) if result is None]
    title = study.title or study.name
    tables = write_tables(results, folder, title, missing=missing, score=study.score)
    plots = plot(results, folder / "plot.png", score=study.score, published=published, title=title)
    return results, [*tables, *plots]


def _layers(given: argparse.Namespace) -> int:
    """Prints, and optionally plots, layer-wise sparsities."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from tfsparsecap.plotting import png_path
    from tfsparsecap.text import one_line, short_count

    if given.output:
        png_path(given.output)
    with only_json_on_stdout(given.json):
        start_tensorflow()
        from tfsparsecap.studies.layers import TITLE, compare, describe, layers_of_runs, plot_layerwise

        runs = layers_of_runs(given.layers)
        compared = compare(runs, given.published)
        if given.output:
            plot_layerwise(runs, given.output, published=given.published)
    if given.json:
        print(json.dumps({label: [layer._asdict() for layer in layers] for label, layers in runs.items()}))
        return 0
    table = Table(title=TITLE, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    for label in ("weights", *compared.sparsities):
        table.add_column(one_line(label), justify="right", overflow="fold")
    for name in compared.names:
        found = (layers.get(name) for layers in compared.sparsities.values())
        weights = short_count(compared.weights[name]) if name in compared.weights else ""
        table.add_row(name, weights, *("" if x is None else f"{x:.2%}" for x in found))
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print(describe(compared))
    if given.output:
        console.print(f"written: {given.output}")
    return 0


if __name__ == "__main__":
    run(main)
