"""The table of a study: scores of its runs and their means over seeds, for the terminal and as CSV."""

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.core.files import atomic_write, csv_text, make_folder
from tfsparsecap.core.text import percent

if TYPE_CHECKING:
    from rich.table import Table

# Largest difference between target and final sparsity of a model that counts as having the target sparsity.
_TOLERANCE = 0.005
_AVERAGED = ("final_sparsity", "nonzero_weights", "weights", "seconds")


@dataclass(frozen=True)
class Result:
    """Results of a finished run.

    Attributes:
        captioner, method: labels, such as "Soft-Attention LSTM" ("" if the study has only one) and "Gradual".
        sparsity: target sparsity, 0 to 1; None for a dense model.
        seed: of the run.
        scores: by name, as fractions: `{"CIDEr": 0.414}` is printed as 41.4.
        final_sparsity: fraction of the prunable weights that are zero.
        nonzero_weights, weights: numbers of prunable weights, after pruning and in total.
        seconds: training time.
        run: the run's folder.
        variant: label of the study's variant, such as "lambda 10"; "" if the study has none.

    Examples:
        >>> Result("ORT", "SMP", 0.95, 1, {"CIDEr": 0.414}, 0.95, 50, 1000, 60.0, "runs/smp").method
        'SMP'
    """

    captioner: str
    method: str
    sparsity: float | None
    seed: int
    scores: dict[str, float]
    final_sparsity: float
    nonzero_weights: int
    weights: int
    seconds: float
    run: str
    variant: str = ""


@dataclass(frozen=True)
class ScoreRow:
    """Means over runs that differ only in their seeds.

    Attributes:
        captioner, method, sparsity, variant: as in `Result`.
        seeds: number of runs.
        scores: mean of each score over the runs that have it.
        deviations: sample standard deviation of each finite score that two or more runs have.
        final_sparsity, nonzero_weights, weights, seconds: means.
    """

    captioner: str
    method: str
    sparsity: float | None
    variant: str
    seeds: int
    scores: dict[str, float]
    deviations: dict[str, float]
    final_sparsity: float
    nonzero_weights: float
    weights: float
    seconds: float


Column = float | str


@dataclass
class Panel:
    """The rows of one captioner, arranged as the lines of a table or plot.

    Attributes:
        captioner: its label.
        columns: sparsities in ascending order; if the study has variants, these.
        lines: rows by label and column, dense methods first; the column of a dense row is None.
    """

    captioner: str
    columns: list[Column]
    lines: dict[str, dict[Column | None, ScoreRow]]


def aggregate(results: Sequence[Result]) -> list[ScoreRow]:
    """Means over seeds: one row for each captioner, method, sparsity and variant, in order of appearance.

    Examples:
        >>> runs = [Result("ORT", "SMP", 0.9, n, {"CIDEr": n / 10}, 0.9, 1, 10, 1.0, "") for n in (3, 4)]
        >>> [(row.seeds, round(row.scores["CIDEr"], 3)) for row in aggregate(runs)]
        [(2, 0.35)]
    """
    groups: dict[tuple, list[Result]] = {}
    for run in results:
        groups.setdefault((run.captioner, run.method, run.sparsity, run.variant), []).append(run)
    rows = []
    for (captioner, method, sparsity, variant), runs in groups.items():
        names = dict.fromkeys(name for run in runs for name in run.scores)
        scores = {name: [run.scores[name] for run in runs if name in run.scores] for name in names}
        deviations = {
            name: statistics.stdev(values)
            for name, values in scores.items()
            if len(values) > 1 and all(map(math.isfinite, values))
        }
        means: dict[str, Any] = {
            name: statistics.fmean(getattr(run, name) for run in runs) for name in _AVERAGED
        }
        score_means = {name: statistics.fmean(values) for name, values in scores.items()}
        about = (captioner, method, sparsity, variant, len(runs))
        rows.append(ScoreRow(*about, scores=score_means, deviations=deviations, **means))
    return rows


def panels(results: Sequence[Result]) -> list[Panel]:
    """Arranges the means of a study captioner by captioner."""
    rows = sorted(aggregate(results), key=lambda row: row.sparsity is not None)
    by_captioner: dict[str, list[ScoreRow]] = {result.captioner: [] for result in results}
    for row in rows:
        by_captioner[row.captioner].append(row)
    return [_panel(captioner, rows) for captioner, rows in by_captioner.items()]


def _panel(captioner: str, rows: list[ScoreRow]) -> Panel:
    by_variant = any(row.variant for row in rows)
    sparsities = sorted({row.sparsity for row in rows if row.sparsity is not None})
    lines: dict[str, dict[Column | None, ScoreRow]] = {}
    for row in rows:
        label, column = row.method, row.variant or None if by_variant else row.sparsity
        if by_variant and row.sparsity is not None and len(sparsities) > 1:
            label += f", {percent(row.sparsity)}"
        lines.setdefault(label, {})[column] = row
    variants = list(dict.fromkeys(row.variant for row in rows if row.variant))
    return Panel(captioner, [*variants] if by_variant else [*sparsities], lines)


def tables_of_results(results: Sequence[Result], title: str, score: str = "CIDEr") -> "list[Table]":
    """A table for each captioner: a line for each method, a column for each sparsity or variant.

    A dense row is repeated in every column. "at" gives the final sparsity of a model that missed its target.

    Examples:
        >>> runs = [Result("ORT", "SMP", 0.9, 1, {"CIDEr": 0.414}, 0.9, 100, 1000, 60.0, "runs/smp")]
        >>> [str(cell) for column in tables_of_results(runs, "")[0].columns for cell in column.cells]
        ['SMP', '41.4']
    """
    from rich.table import Table
    from rich.text import Text

    made = []
    for panel in panels(results):
        about = ", ".join(part for part in (title, panel.captioner) if part)
        table = Table(
            title=Text(f"{about}: {score} \N{MULTIPLICATION SIGN} 100", style="table.title"),
            title_justify="left",
        )
        table.add_column("method", overflow="fold")
        for column in panel.columns or [score]:
            table.add_column(column_label(column), justify="right", overflow="fold")
        for label, line in panel.lines.items():
            dense = line.get(None)
            cells = [_text(line.get(column, dense), score) for column in panel.columns] or [
                _text(dense, score)
            ]
            table.add_row(Text(label), *cells)
        made.append(table)
    return made


def _text(row: ScoreRow | None, score: str) -> str:
    """A mean in hundredths and its standard deviation as papers print them, such as "41.4 ± 0.3"."""
    if row is None or score not in row.scores:
        return "\N{EN DASH}"
    text = f"{100 * row.scores[score]:.1f}"
    if score in row.deviations:
        text += f" ± {100 * row.deviations[score]:.1f}"
    if row.sparsity is not None and abs(row.final_sparsity - row.sparsity) > _TOLERANCE:
        text += f" at {percent(round(row.final_sparsity, 3))}"
    return text


def column_label(column: Column) -> str:
    """A sparsity in percent; a variant's label as it is."""
    return column if isinstance(column, str) else percent(column)


def items_as_csv(items: Sequence[Result | ScoreRow]) -> str:
    """CSV with a line for each item, scores as fractions; `NAME_std` is the standard deviation of NAME."""
    rows = []
    for item in items:
        row = dict(vars(item))
        scores, deviations = row.pop("scores"), row.pop("deviations", {})
        rows.append({**row, **scores, **{f"{name}_std": value for name, value in deviations.items()}})
    return csv_text(rows)


def write_tables(results: Sequence[Result], folder: str | os.PathLike) -> list[Path]:
    """Writes `runs.csv` (every run) and `table.csv` (means over seeds), each atomically.

    Args:
        folder: created if absent.

    Returns:
        The two files.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    folder = Path(folder)
    make_folder(folder)
    for name, items in (("runs.csv", results), ("table.csv", aggregate(results))):
        atomic_write(folder / name, items_as_csv(items))
    return [folder / "runs.csv", folder / "table.csv"]
