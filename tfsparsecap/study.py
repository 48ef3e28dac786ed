"""python -m tfsparsecap.study: a grid of trainings with one table and one figure.

Trains a grid of runs (captioners x methods x sparsities x seeds), each with a run folder in runs/NAME/,
and writes table.csv, runs.csv and plot.png there. Finished runs are skipped and interrupted ones are
resumed. tfsparsecap/papers/study_grid.py describes the keys of a study's file.

examples:
  python -m tfsparsecap.study --config studies/scenes
      on synthetic scenes, half an hour
  python -m tfsparsecap.study --config studies/flickr8k data.folder=PATH --jobs 2
      on Flickr8k, in hours; the same command resumes it after an interruption
  python -m tfsparsecap.study --config studies/scenes --dry-run
      check the settings and list the runs
  python -m tfsparsecap.study --config studies/scenes --tables
      update the tables only
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.command import fail, only_json_on_stdout, parser, run, start_tensorflow

if TYPE_CHECKING:
    from tfsparsecap.papers.score_table import Result
    from tfsparsecap.papers.study_grid import GridRun, Study


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument(
        "--config",
        required=True,
        metavar="FILE.yaml",
        help="the study's file, or the name of one that comes with the package, such as studies/scenes",
    )
    options.add_argument("settings", nargs="*", metavar="section.key=value", help="settings of all runs")
    options.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    options.add_argument(
        "--runs", metavar="FOLDER", default="runs", help="parent of the study's folder (default: runs)"
    )
    options.add_argument(
        "--published",
        metavar="FILE.tsv",
        help="a table of published scores to plot beside those of the study",
    )
    options.add_argument("--dry-run", action="store_true", help="check and list the runs without training")
    options.add_argument("--tables", action="store_true", help="write tables and plot without training")
    options.add_argument("--json", action="store_true", help="print the results as JSON")
    options.add_argument("--quiet", action="store_true", help="no progress bar")
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a study; returns 1 if a run failed.

    Raises:
        InputError: the study's file, a run's settings or the data are wrong.
    """
    options = arguments(argv)
    with only_json_on_stdout(options.json):
        from tfsparsecap.papers.study_grid import grid, load_study

        study = load_study(options.config)
        runs = grid(study, options.config, options.runs, options.settings)
        folder = Path(options.runs) / study.name
        start_tensorflow()
        import tensorflow as tf

        from tfsparsecap.papers.plot import read_published
        from tfsparsecap.papers.runner import run_study
        from tfsparsecap.papers.score_table import tables_of_results
        from tfsparsecap.papers.study_checks import check_runs

        tf.config.set_visible_devices([], "GPU")  # the trainings need their memory

        if options.published is not None:
            read_published(options.published)
        check_runs(runs)
        if options.dry_run:
            print(f"{len(runs)} runs in {folder}:")
            for planned in runs:
                print(planned.name + (f" (after {' and '.join(planned.needs)})" if planned.needs else ""))
            return 0
        failed: dict[str, str] = {}
        if not options.tables:
            failed = run_study(
                runs,
                folder,
                jobs=options.jobs,
                progress=not options.quiet,
                after_each=lambda: _write(study, runs, folder, options.published),
            )
        results, written = _write(study, runs, folder, options.published)
        for name, reason in failed.items():
            fail(f"{name}: {reason}")
        for file in written:
            print(f"written: {file}")
        if len(results) < len(runs):
            print(f"{len(results)} of {len(runs)} runs in {folder} are finished")
    if options.json:
        print(json.dumps([vars(result) for result in results]))
    else:
        from rich.console import Console

        for table in tables_of_results(results, study.title or study.name, study.score):
            Console().print(table)
    return 1 if failed else 0


def _write(
    study: "Study", runs: Sequence["GridRun"], folder: Path, published: str | None
) -> tuple[list["Result"], list[Path]]:
    """Writes tables and plot of the finished runs; returns the results and the files."""
    from tfsparsecap.papers.plot import plot
    from tfsparsecap.papers.runner import read_result
    from tfsparsecap.papers.score_table import write_tables
    from tfsparsecap.papers.study_checks import check_same_data

    # If one run prunes the encoder, encoder weights are counted for all runs.
    with_encoder = any(run.config.pruning is not None and run.config.pruning.encoder for run in runs)
    read = [(run, read_result(run, folder, with_encoder)) for run in runs]
    check_same_data([run for run, result in read if result is not None], folder)
    results = [result for _, result in read if result is not None]
    if not results:
        return [], []
    title = study.title or study.name
    figure = plot(results, folder / "plot.png", score=study.score, published=published, title=title)
    return results, [*write_tables(results, folder), figure]


if __name__ == "__main__":
    run(main)
