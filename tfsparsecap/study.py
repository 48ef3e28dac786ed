"""python -m tfsparsecap.study: a grid of trainings, stopped and gone on with, one table and one picture."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfsparsecap.command import fail, only_json_on_stdout, parser, print_table, run, start_tensorflow

if TYPE_CHECKING:
    from tfsparsecap.studies.study import GridRun, Study
    from tfsparsecap.studies.table import Result

EXAMPLES = [
    ("python -m tfsparsecap.study --config configs/studies/scenes.yaml", "drawn scenes: half an hour"),
    (
        "python -m tfsparsecap.study --config configs/studies/flickr8k_small.yaml --jobs 2",
        "hours; stop it whenever you like, the same command goes on",
    ),
    (
        "python -m tfsparsecap.study --config configs/studies/flickr8k_small.yaml data.folder=FLICKR8K",
        "with data that lie elsewhere",
    ),
    ("python -m tfsparsecap.study --config configs/studies/scenes.yaml --dry-run", "what would be trained"),
    ("python -m tfsparsecap.study --config configs/studies/scenes.yaml --tables", "tables of what is there"),
]


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of a study."""
    options = parser(
        "python -m tfsparsecap.study",
        "Trains a grid of runs (captioners x methods x sparsities x seeds), each a run folder in\n"
        "runs/NAME/, goes on where it was stopped, skips what is done, and writes table.md, table.csv,\n"
        "runs.csv, plot.png and plot.svg there.\n"
        "What a study's file can say: tfsparsecap/studies/study.py.",
        EXAMPLES,
    )
    options.add_argument("--config", metavar="FILE.yaml", required=True, help="one of configs/studies/")
    options.add_argument("settings", nargs="*", metavar="section.key=value", help="settings of all runs")
    options.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    options.add_argument(
        "--runs", metavar="FOLDER", default="runs", help="where the study's folder lies (default: runs)"
    )
    options.add_argument("--dry-run", action="store_true", help="list the runs and train nothing")
    options.add_argument("--tables", action="store_true", help="write tables and plot and train nothing")
    options.add_argument("--json", action="store_true", help="print the finished runs' results as JSON")
    options.add_argument("--quiet", action="store_true", help="no progress bar")
    return options.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a study as the command line says; returns 1 where a run failed.

    Raises:
        InputError: the study's file, a run's settings or the data are wrong.
    """
    given = arguments(argv)
    with only_json_on_stdout(given.json):
        from tfsparsecap.studies.study import grid, load_study

        study = load_study(given.config)
        runs = grid(study, given.config, given.runs, given.settings)
        folder = Path(given.runs) / study.name
        start_tensorflow()
        from tfsparsecap.settings.checks import check_settings
        from tfsparsecap.studies.runner import run_study

        for one in runs:
            check_settings(one.config)
        if given.dry_run:
            print(f"{len(runs)} runs in {folder}:")
            for one in runs:
                # Whole names, on lines of their own, are what is told apart, copied and piped.
                print(one.name + (f" (after {one.start_from})" if one.start_from else ""))
            return 0
        failed: dict[str, str] = {}
        if not given.tables:
            outcome = run_study(
                runs,
                folder,
                jobs=given.jobs,
                progress=not given.quiet,
                after_each=lambda: _write(study, runs, folder, Path(given.config)),
            )
            failed = outcome.failed
        results, written = _write(study, runs, folder, Path(given.config))
        for name, reason in failed.items():
            fail(f"{name}: {reason}")
        for file in written:
            print(f"written: {file}")
        if not results:
            print(f"no run in {folder} is finished yet")
    if given.json:
        print(json.dumps([vars(result) for result in results]))
    elif results:
        _show(study, results)
    return 1 if failed else 0


def _results(runs: Sequence["GridRun"], folder: Path) -> tuple[list["Result"], list]:
    """What finished runs scored, and which runs there are not yet."""
    from tfsparsecap.studies.runner import finished_run
    from tfsparsecap.studies.study import SCORES
    from tfsparsecap.studies.table import Missing, Result

    # Beside captioners whose encoder is pruned, too, the encoders of the others count as well.
    encoders = any(one.config.pruning is not None and one.config.pruning.encoder for one in runs)
    results, missing = [], []
    for one in runs:
        place = (one.captioner, one.method, one.sparsity, one.seed)
        finished = finished_run(one, folder)
        if finished is None:
            missing.append(Missing(*place, setting=one.variant))
            continue
        scores = finished.scores
        weights, kept = (
            scores[name] + (scores.get(f"encoder_{name}", 0) if encoders else 0)
            for name in ("weights", "nonzero_weights")
        )
        results.append(
            Result(
                *place,
                scores={name: value for name, value in scores.items() if name in SCORES},
                final_sparsity=1.0 - kept / max(1, weights),
                nonzero_weights=kept,
                weights=weights,
                seconds=finished.seconds,
                run=str(finished.folder),
                setting=one.variant,
            )
        )
    return results, missing


def _write(
    study: "Study", runs: Sequence["GridRun"], folder: Path, source: Path
) -> tuple[list["Result"], list[Path]]:
    """Writes tables and plot of what is finished: the results, and the files."""
    from tfsparsecap.studies.plot import plot
    from tfsparsecap.studies.table import write_tables

    results, missing = _results(runs, folder)
    if not results:
        return results, []
    title, score = study.title or study.name, study.plot.score
    written = write_tables(results, folder, title, missing=missing, score=score)
    where = source.parent / study.plot.published_folder
    same = score == study.plot.published_score
    published = {label: where / name for label, name in study.plot.published.items() if same}
    return results, [
        *written,
        *plot(results, folder / "plot.png", score=score, published=published, title=title),
    ]


def _show(study: "Study", results: list["Result"]) -> None:
    from tfsparsecap.studies.table import aggregate

    def value(row) -> str:
        score = row.scores.get(study.plot.score)
        spread = row.spreads.get(study.plot.score)
        shown = "no score" if score is None else f"{study.plot.score} {100 * score:.1f}"
        return shown + (f" ± {100 * spread:.1f}" if spread else "") + f", sparsity {row.final_sparsity:.1%}"

    rows = [
        (", ".join(part for part in (row.captioner, row.method, row.setting) if part), value(row))
        for row in aggregate(results)
    ]
    print_table(study.title or study.name, rows)


if __name__ == "__main__":
    run(main)
