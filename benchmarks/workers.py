"""python -m benchmarks.workers: two worker processes on loopback compared with a single process.

Trains each captioner, with each pruning method and kind of training, for a few steps: in two worker processes
and on one device, with the same batches and without dropout; with --devices also on two logical devices of
one process (`mirrored`). Prints the largest difference of a weight, the ratio of the times of a step, and the
bytes that each worker sends per step, as Linux counts them for the connections of its process, next to 4
bytes for each trained weight and gate, times 2 (n - 1) / n for n = 2 workers.

Captions that SCST samples differ between one device and two: there, the workers are compared with the two
devices.

examples:
  python -m benchmarks.workers FOLDER
      everything, a quarter of an hour on one core
  python -m benchmarks.workers FOLDER --rows 'soft attention' transformer 'full size, dense'
      some of it
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.trainer_processes import Measured, Trainers
from benchmarks.worker_rows import ROWS, Row, write_words
from tfsparsecap.command import only_json_on_stdout, parser, run
from tfsparsecap.errors import InputError, unknown_name

ALONE, MIRRORED, WORKERS, NEEDED = "alone", "mirrored", "workers", "needed"


@dataclass(frozen=True)
class Compared:
    """A row of the table; None stands for what is unknown.

    Attributes:
        workers: largest absolute difference of a weight between two workers and the reference.
        devices: between two devices of one process and one device.
        alone_step, workers_step: seconds per step.
        sent, expected: bytes that a worker sends per step, measured and by the formula.
        problem: why there are no numbers, or what is wrong; empty if nothing is.
    """

    workers: float | None = None
    devices: float | None = None
    alone_step: float | None = None
    workers_step: float | None = None
    sent: float | None = None
    expected: int | None = None
    problem: str = ""


def compare(folder: Path, rows: Sequence[Row], devices: bool = False) -> dict[str, Compared]:
    """Trains rows, and the rows that they need.

    Args:
        folder: for data and runs; runs of an earlier call are deleted.
        rows: of `ROWS`.
        devices: train all rows on two devices, too.

    Raises:
        InputError: the folder cannot be written.
    """
    comparisons = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (ALONE, MIRRORED, WORKERS, NEEDED):
            shutil.rmtree(folder / name, ignore_errors=True)
        write_words(folder / "words")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; give another folder") from error
    with Trainers(1) as single, Trainers(2) as pair:
        for row in tqdm(rows, unit="row", disable=len(rows) == 1):
            comparisons[row.name] = _compare(folder, row, single, pair, devices)
            tqdm.write(f"{row.name}: {comparisons[row.name]}", file=sys.stderr)
    return comparisons


def _compare(folder: Path, row: Row, single: Trainers, pair: Trainers, devices: bool) -> Compared:
    for needed in _needed(row):
        if not (folder / NEEDED / needed.run).exists():
            single.train(needed.all_settings(folder, folder / NEEDED), folder / NEEDED)
    settings = row.all_settings(folder, folder / NEEDED)
    reference = single.train(settings, folder / ALONE)
    if isinstance(reference, str):
        return Compared(problem=f"one process: {reference}")
    devices = devices or row.samples
    if devices:
        mirrored = single.train([*settings, "training.distribution=mirrored"], folder / MIRRORED)
        if isinstance(mirrored, str):
            return Compared(problem=f"two devices: {mirrored}")
    workers = pair.train(settings, folder / WORKERS)
    if isinstance(workers, str):
        return Compared(problem=f"two workers: {workers}")
    return Compared(
        workers=_difference(folder / WORKERS, folder / (MIRRORED if row.samples else ALONE), row),
        devices=_difference(folder / MIRRORED, folder / ALONE, row) if devices and not row.samples else None,
        alone_step=reference[0].step,
        workers_step=max(result.step for result in workers),
        sent=_mean_sent(workers),
        expected=4 * workers[0].trained,
        problem="" if len({result.digest for result in workers}) == 1 else "the workers' weights differ",
    )


def _needed(row: Row) -> list[Row]:
    """The rows whose runs a row needs, in order."""
    rows = [other for other in ROWS if other.name == row.needs]
    return [*(before for other in rows for before in _needed(other)), *rows]


def _mean_sent(workers: Sequence[Measured]) -> float | None:
    sent = [result.sent for result in workers]
    return None if None in sent else sum(filter(None, sent)) / len(sent)


def _difference(runs: Path, others: Path, row: Row) -> float:
    """The largest difference of a weight in the last checkpoints of two runs."""
    weights, other_weights = _weights(runs / row.run), _weights(others / row.run)
    if weights.keys() != other_weights.keys():
        return float("inf")
    return max(float(np.abs(weights[name] - other_weights[name]).max(initial=0)) for name in weights)


def _weights(run: Path) -> dict[str, np.ndarray]:
    """The float variables of the captioner, its encoder and its gates."""
    path = max((run / "checkpoints").glob("epoch-*.npz"))
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name.startswith("model/")}
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def show(comparisons: dict[str, Compared], console: Console) -> None:
    """Prints a table of what `compare` returns."""
    table = Table()
    headings = ("two workers", "two devices", "step, one process", "step, two workers", "ratio")
    for heading in ("", *headings, "sent per step", "formula"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, row in comparisons.items():
        if row.alone_step is None or row.workers_step is None:
            table.add_row(name, row.problem)
            continue
        table.add_row(
            name,
            row.problem or _scientific(row.workers),
            _scientific(row.devices),
            f"{1000 * row.alone_step:,.0f} ms",
            f"{1000 * row.workers_step:,.0f} ms",
            f"{row.workers_step / row.alone_step:.2f}",
            "" if row.sent is None else f"{row.sent / 1e6:,.3f} MB",
            "" if row.expected is None else f"{row.expected / 1e6:,.3f} MB",
        )
    console.print(table)


def _scientific(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}"


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and prints a table; returns 1 if a training failed, or workers ended with different weights.

    Raises:
        InputError: there is no such row, or the folder cannot be written.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder for data and runs")
    command.add_argument(
        "--rows", nargs="+", metavar="NAME", help="rows of the table, in this order (default: all)"
    )
    command.add_argument("--devices", action="store_true", help="also compare two devices of one process")
    command.add_argument("--list", action="store_true", help="print the names of the rows")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    options: argparse.Namespace = command.parse_args(argv)
    rows = {row.name: row for row in ROWS}
    for name in options.rows or ():
        if name not in rows:
            raise unknown_name("row", name, rows)
    if options.list:
        print("\n".join(rows))
        return 0
    with only_json_on_stdout(options.json):
        chosen = [rows[name] for name in options.rows or rows]
        comparisons = compare(options.folder, chosen, options.devices)
    if options.json:
        print(json.dumps({name: asdict(row) for name, row in comparisons.items()}))
    else:
        show(comparisons, Console(width=140))
    return 1 if any(row.problem for row in comparisons.values()) else 0


if __name__ == "__main__":
    run(main)
