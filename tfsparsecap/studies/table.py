"""Tables of a study: the scores of its runs and their means over seeds, as CSV and Markdown."""

import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfsparsecap.files import atomic_write, csv_text, make_folder
from tfsparsecap.studies.study import GridRun
from tfsparsecap.text import escaped, percent

ABSENT = "\N{EN DASH}"
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
class Row:
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

    @property
    def on_target(self) -> bool:
        """Whether the target sparsity was reached; methods with a score bound may stop before it."""
        return self.sparsity is not None and abs(self.final_sparsity - self.sparsity) <= _TOLERANCE


Column = float | str


@dataclass
class Panel:
    """The rows of one captioner, arranged as the lines of a table or plot.

    Attributes:
        captioner: its label.
        columns: sparsities in ascending order; if the study has variants, these.
        lines: labels of the methods, dense ones first.
        cells: rows by line and column; the column is None for a row that applies to all columns (dense).
        missing: number of unfinished seeds by line and column.
    """

    captioner: str
    columns: list[Column]
    lines: list[str]
    cells: dict[tuple[str, Column | None], Row]
    missing: Counter[tuple[str, Column | None]] = field(default_factory=Counter)

    def row(self, line: str, column: Column) -> Row | None:
        """The row of a cell."""
        return self.cells.get((line, column), self.cells.get((line, None)))


def aggregate(results: Sequence[Result]) -> list[Row]:
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
    for key, runs in groups.items():
        scores = {name: [run.scores[name] for run in runs if name in run.scores] for name in _scores_of(runs)}
        deviations = {
            name: statistics.stdev(values)
            for name, values in scores.items()
            if len(values) > 1 and all(map(math.isfinite, values))
        }
        means: dict[str, Any] = {
            name: statistics.fmean(getattr(run, name) for run in runs) for name in _AVERAGED
        }
        score_means = {name: statistics.fmean(values) for name, values in scores.items()}
        captioner, method, sparsity, variant = key
        about = (captioner, method, sparsity, variant, len(runs))
        rows.append(Row(*about, scores=score_means, deviations=deviations, **means))
    return rows


def _scores_of(results: Iterable[Result | Row]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.scores))


def panels(results: Sequence[Result], missing: Iterable[GridRun] = ()) -> list[Panel]:
    """Arranges the means of a study captioner by captioner.

    Args:
        missing: unfinished runs.
    """
    rows, missing = aggregate(results), list(missing)
    captioners = dict.fromkeys([*(row.captioner for row in rows), *(run.captioner for run in missing)])
    return [
        _panel(
            name,
            [row for row in rows if row.captioner == name],
            [run for run in missing if run.captioner == name],
        )
        for name in captioners
    ]


def _panel(captioner: str, rows: list[Row], missing: list[GridRun]) -> Panel:
    items: list[Row | GridRun] = [*rows, *missing]
    by_variant = any(item.variant for item in items)
    several = len({item.sparsity for item in items if item.sparsity is not None}) > 1

    def place(item: Row | GridRun) -> tuple[str, Column | None]:
        if not by_variant:
            return item.method, item.sparsity
        at = f", {percent(item.sparsity)}" if several and item.sparsity is not None else ""
        return item.method + at, item.variant or None

    columns = dict.fromkeys(column for item in items if (column := place(item)[1]) is not None)
    dense_first = sorted(items, key=lambda item: item.sparsity is not None)
    return Panel(
        captioner,
        list(columns) if by_variant else sorted(columns),
        list(dict.fromkeys(place(item)[0] for item in dense_first)),
        {place(row): row for row in rows},
        Counter(map(place, missing)),
    )


def items_as_csv(items: Sequence[Result | Row]) -> str:
    """CSV with a line for each item, scores as fractions; `NAME_std` is the standard deviation of NAME."""
    rows = []
    for item in items:
        row = dict(vars(item))
        scores, deviations = row.pop("scores"), row.pop("deviations", {})
        rows.append({**row, **scores, **{f"{name}_std": value for name, value in deviations.items()}})
    return csv_text(rows)


def markdown_text(
    results: Sequence[Result], title: str, *, missing: Iterable[GridRun] = (), score: str = "CIDEr"
) -> str:
    """GitHub Markdown: a table for each captioner, a line for each method, a column for each sparsity.

    Args:
        title: heading; "" for none.
        missing: unfinished runs; their cells are empty or show the number of finished seeds.
        score: shown in the tables.

    Examples:
        >>> runs = [Result("ORT", "SMP", 0.9, 1, {"CIDEr": 0.414}, 0.9, 100, 1000, 60.0, "runs/smp")]
        >>> print(markdown_text(runs, "").splitlines()[-1])
        | SMP | 41.4 |
    """
    missing = list(missing)
    parts = [f"# {escaped(title)}"] if title else []
    parts.append(_caption(results, len(missing), score))
    for panel in panels(results, missing):
        parts += [f"## {escaped(panel.captioner)}"] if panel.captioner else []
        parts.append(_score_table(panel, score))
    return "\n\n".join(parts) + "\n"


def _caption(results: Sequence[Result], missing: int, score: str) -> str:
    rows = aggregate(results)
    text = f"{escaped(score)} \N{MULTIPLICATION SIGN} 100"
    if any(row.seeds > 1 for row in rows):
        text += ", mean ± sample standard deviation over seeds"
    text += ". The best sparse model of each column is bold"
    if any(row.sparsity is not None and not row.on_target for row in rows):
        text += '; "at" gives the final sparsity of a model that missed its target'
    if any(row.sparsity is None for row in rows):
        text += "; the dense baseline is repeated in every column"
    if missing:
        text += f'. Not finished: {missing} of {len(results) + missing} runs ("{ABSENT}")'
    return text + "."


def _score_table(panel: Panel, score: str) -> str:
    columns = panel.columns or [score]
    body = {line: [escaped(line)] for line in panel.lines}
    for column in columns:
        rows = {line: panel.row(line, column) for line in panel.lines}
        # Rounded as printed, so that values that look equal are bold together.
        means = {
            line: round(100 * row.scores[score], 1)
            for line, row in rows.items()
            if row and row.on_target and math.isfinite(row.scores.get(score, math.nan))
        }
        best = max(means.values()) if len(means) > 1 else None
        for line, row in rows.items():
            text = score_text(row, score)
            if best is not None and means.get(line) == best:
                text = f"**{text}**"
            if row and row.sparsity is not None and not row.on_target:
                text += f" at {percent(round(row.final_sparsity, 3))}"
            absent = panel.missing.get((line, column), panel.missing.get((line, None)))
            if row and absent:
                text += f" ({row.seeds} of {row.seeds + absent} seeds)"
            body[line].append(text)
    return _table(["Method", *map(column_label, columns)], body.values())


def _table(header: list[str], body: Iterable[list[str]]) -> str:
    rule = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [[*map(escaped, header)], rule, *body])


def score_text(row: Row | None, score: str) -> str:
    """A mean in hundredths and its standard deviation as papers print them, such as "41.4 ± 0.3"."""
    if row is None or score not in row.scores:
        return ABSENT
    text = f"{100 * row.scores[score]:.1f}"
    return f"{text} ± {100 * row.deviations[score]:.1f}" if score in row.deviations else text


def column_label(column: Column) -> str:
    """A sparsity in percent; a variant's label as it is."""
    return column if isinstance(column, str) else percent(column)


def write_tables(
    results: Sequence[Result],
    folder: str | os.PathLike,
    title: str,
    *,
    missing: Iterable[GridRun] = (),
    score: str = "CIDEr",
) -> list[Path]:
    """Writes `runs.csv` (every run), `table.csv` (means over seeds) and `table.md`, each atomically.

    Args:
        folder: created if absent.
        title, missing, score: as in `markdown_text`.

    Returns:
        The three files.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    folder = Path(folder)
    texts = {
        folder / "runs.csv": items_as_csv(results),
        folder / "table.csv": items_as_csv(aggregate(results)),
        folder / "table.md": markdown_text(results, title, missing=missing, score=score),
    }
    make_folder(folder)
    for path, text in texts.items():
        atomic_write(path, text)
    return list(texts)
