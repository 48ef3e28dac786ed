"""Tables of a study: what its runs scored, as means over seeds, in CSV and in Markdown."""

import csv
import html
import io
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.text import escaped, percent, short_count

ABSENT = "\N{EN DASH}"
#: Scores of the second table, where the runs have them.
OTHERS = ("BLEU-4", "BLEU-1")
#: How far from the sparsity asked for a captioner may end and still stand for it.
_NEAR = 0.005


@dataclass(frozen=True)
class Result:
    """What a finished run came to.

    Attributes:
        captioner, method: labels, such as "Soft-Attention LSTM" ("" where there is but one) and "Gradual".
        sparsity: share of the weights that was to go, 0 to 1; None where nothing was pruned.
        seed: tells runs of the same kind apart.
        scores: fractions by name, such as `{"CIDEr": 0.414}` for what papers call 41.4.
        final_sparsity: the share that went.
        nonzero_weights, weights: how many weights that can be pruned are left, and how many there were.
        seconds: of training.
        run: its folder.
        setting: label of what the study varies besides the sparsity, such as "lambda 10"; "" where nothing.

    Example:
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
    setting: str = ""


class Missing(NamedTuple):
    """A run of the grid that is not finished; see `Result`."""

    captioner: str
    method: str
    sparsity: float | None
    seed: int
    setting: str = ""


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seeds only: means, and sample standard deviations of the scores.

    Attributes:
        captioner, method, sparsity, setting: as in `Result`.
        seeds: how many runs there are.
        scores: mean of each score, over the runs that have it.
        spreads: deviation of each score that two or more runs have; others are not in it.
        final_sparsity, nonzero_weights, weights, seconds: means.
    """

    captioner: str
    method: str
    sparsity: float | None
    setting: str
    seeds: int
    scores: dict[str, float]
    spreads: dict[str, float]
    final_sparsity: float
    nonzero_weights: float
    weights: float
    seconds: float

    @property
    def reached(self) -> bool:
        """Whether as many weights went as were to: methods that are held to a score end where they end."""
        return self.sparsity is not None and abs(self.final_sparsity - self.sparsity) <= _NEAR


Column = float | str


@dataclass
class Lines:
    """What one captioner came to, as lines over the columns of a table or the places of an axis.

    Attributes:
        captioner: its label.
        columns: sparsities, ascending, or where runs have settings those, in the order in which they come.
        names: labels of the lines, unpruned ones first.
        rows: by label and column.
        constant: by label; the row of a line that has no column of its own, such as a dense captioner.
        missing: by label and column (None for a constant line), how many seeds are not finished.
    """

    captioner: str
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    rows: dict[tuple[str, Column], Row]
    constant: dict[str, Row]
    missing: dict[tuple[str, Column | None], int] = field(default_factory=dict)

    def row(self, name: str, column: Column) -> Row | None:
        """What stands in a cell: the constant row stands in all cells of its line."""
        return self.rows.get((name, column), self.constant.get(name))


def aggregate(results: Sequence[Result]) -> list[Row]:
    """Means over seeds: a row for each captioner, method, sparsity and setting, in order of their first runs.

    Raises:
        InputError: two runs have all of these and the seed in common, so that one would count twice.

    Example:
        >>> runs = [Result("ORT", "SMP", 0.9, n, {"CIDEr": n / 10}, 0.9, 1, 10, 1.0, "") for n in (3, 4)]
        >>> [(row.seeds, round(row.scores["CIDEr"], 3)) for row in aggregate(runs)]
        [(2, 0.35)]
    """
    groups: dict[tuple, dict[int, Result]] = {}
    for result in results:
        same = groups.setdefault((result.captioner, result.method, result.sparsity, result.setting), {})
        if result.seed in same:
            raise InputError(
                f"the runs {same[result.seed].run} and {result.run} are the same by captioner "
                f"({result.captioner}), method ({result.method}), sparsity, setting and seed: give one of "
                "them another label or leave it out"
            )
        same[result.seed] = result
    return [_row(list(same.values())) for same in groups.values()]


def _row(runs: list[Result]) -> Row:
    scores = {name: [run.scores[name] for run in runs if name in run.scores] for name in score_names(runs)}
    first = runs[0]
    return Row(
        first.captioner,
        first.method,
        first.sparsity,
        first.setting,
        len(runs),
        {name: statistics.fmean(values) for name, values in scores.items()},
        {
            name: statistics.stdev(values)
            for name, values in scores.items()
            if len(values) > 1 and all(map(math.isfinite, values))
        },
        statistics.fmean(run.final_sparsity for run in runs),
        statistics.fmean(run.nonzero_weights for run in runs),
        statistics.fmean(run.weights for run in runs),
        statistics.fmean(run.seconds for run in runs),
    )


def score_names(results: Iterable[Result | Row]) -> list[str]:
    """Names of all scores, in the order in which they come."""
    return list(dict.fromkeys(name for result in results for name in result.scores))


def lines(results: Sequence[Result], missing: Iterable[Missing] = ()) -> list[Lines]:
    """Sorts a study into lines, captioner by captioner. Raises as `aggregate` does."""
    rows, missing = aggregate(results), list(missing)
    captioners = dict.fromkeys(item.captioner for item in [*rows, *missing])
    return [
        _lines(name, *([i for i in items if i.captioner == name] for items in (rows, missing)))
        for name in captioners
    ]


def _lines(captioner: str, rows: list[Row], missing: list[Missing]) -> Lines:
    cells = [*rows, *missing]
    by_setting = any(cell.setting for cell in cells)
    several = len({cell.sparsity for cell in cells if cell.sparsity is not None}) > 1

    def column(cell: Row | Missing) -> Column | None:
        return (cell.setting or None) if by_setting else cell.sparsity

    def label(cell: Row | Missing) -> str:
        at = f", {percent(cell.sparsity)}" if by_setting and several and cell.sparsity is not None else ""
        return cell.method + at

    columns = dict.fromkeys(column(cell) for cell in cells if column(cell) is not None)
    # Sorting keeps the order of those that are pruned, and of those that are not.
    ordered = sorted(cells, key=lambda cell: cell.sparsity is not None)
    found = Lines(
        captioner,
        tuple(columns if by_setting else sorted(columns)),
        tuple(dict.fromkeys(map(label, ordered))),
        {(label(row), column(row)): row for row in rows if column(row) is not None},
        {label(row): row for row in rows if column(row) is None},
    )
    for cell in missing:
        key = label(cell), column(cell)
        found.missing[key] = found.missing.get(key, 0) + 1
    return found


def csv_text(results: Sequence[Result]) -> str:
    """A line for each run, scores as fractions."""
    return _csv(Result, results)


def means_csv_text(results: Sequence[Result]) -> str:
    """A line for each row of `aggregate`, scores as fractions; `NAME_std` is the deviation of NAME."""
    return _csv(Row, aggregate(results))


def _csv(kind: type, items: Sequence[Result | Row]) -> str:
    names = score_names(items)
    titles = {"scores": names, "spreads": [f"{name}_std" for name in names]}
    header = [title for each in fields(kind) for title in titles.get(each.name, [each.name])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for item in items:
        spreads = {f"{name}_std": value for name, value in getattr(item, "spreads", {}).items()}
        values = {**spreads, **item.scores, **vars(item)}
        writer.writerow(values.get(title) for title in header)
    return text.getvalue()


def markdown_text(
    results: Sequence[Result], title: str, *, missing: Iterable[Missing] = (), score: str = "CIDEr"
) -> str:
    """Two tables a captioner, as GitHub shows them.

    The first has a line for each method and a column for each sparsity, as the papers' tables; the second,
    folded, what else there is to know of each cell.

    Args:
        title: heading; "" for none.
        missing: runs that are not finished; their cells stay empty or say how many seeds they are of.
        score: what the first table shows.

    Example:
        >>> runs = [Result("ORT", "SMP", 0.9, 1, {"CIDEr": 0.414}, 0.9, 100, 1000, 60.0, "runs/smp")]
        >>> print(markdown_text(runs, "").splitlines()[-1])
        </details>
    """
    missing = list(missing)
    parts = [f"# {escaped(title)}"] if title else []
    parts.append(_caption(results, missing, score))
    for grid in lines(results, missing):
        parts += [f"## {escaped(grid.captioner)}"] if grid.captioner else []
        parts.append(_score_table(grid, score))
        others = [name for name in OTHERS if name != score and name in score_names(results)]
        summary = html.escape(", ".join([*others, "sparsity reached, weights left, time"]))
        parts.append(f"<details>\n<summary>{summary}</summary>\n")
        parts[-1] += f"\n{_details_table(grid, others)}\n\n</details>"
    return "\n\n".join(parts) + "\n"


def _caption(results: Sequence[Result], missing: list[Missing], score: str) -> str:
    rows = aggregate(results)
    text = f"{escaped(score)} \N{MULTIPLICATION SIGN} 100"
    if any(row.seeds > 1 for row in rows):
        text += ", mean ± sample standard deviation over seeds"
    text += ". The best pruned captioner of a column is bold"
    if any(row.sparsity is not None and not row.reached for row in rows):
        text += '; "at" says where one ended that has not the sparsity of its column'
    if any(row.sparsity is None for row in rows):
        text += "; the dense one, which is not pruned, stands in every column"
    if missing:
        text += f'. Not finished: {len(missing)} of {len(results) + len(missing)} runs ("{ABSENT}")'
    return text + "."


def _score_table(grid: Lines, score: str) -> str:
    columns = grid.columns or (score,)
    body = {name: [escaped(name)] for name in grid.names}
    for column in columns:
        rows = {name: grid.row(name, column) for name in grid.names}
        # As printed, so that what looks equal is bold together; what is less sparse does not compete.
        means = {
            name: round(100 * row.scores[score], 1)
            for name, row in rows.items()
            if row and row.reached and math.isfinite(row.scores.get(score, math.nan))
        }
        best = max(means.values()) if len(means) > 1 else None
        for name, row in rows.items():
            text = score_text(row, score)
            if best is not None and means.get(name) == best:
                text = f"**{text}**"
            if row and row.sparsity is not None and not row.reached:
                text += f" at {percent(round(row.final_sparsity, 3))}"
            absent = grid.missing.get((name, column), grid.missing.get((name, None)))
            if row and absent:
                text += f" ({row.seeds} of {row.seeds + absent} seeds)"
            body[name].append(text)
    return _table(["Method", *(column_label(column) for column in columns)], list(body.values()))


def _details_table(grid: Lines, others: list[str]) -> str:
    rows = [
        row
        for name in grid.names
        for row in [grid.constant.get(name), *(grid.rows.get((name, column)) for column in grid.columns)]
        if row is not None
    ]
    header = ["Method", "Sparsity", "Seeds", *others, "Reached", "Non-zeros", "Minutes"]
    body = []
    for row in rows:
        asked = "none" if row.sparsity is None else percent(row.sparsity)
        cells = [escaped(row.method), asked, str(row.seeds), *(score_text(row, name) for name in others)]
        cells += [f"{100 * row.final_sparsity:.2f} %", short_count(row.nonzero_weights)]
        body.append([*cells, f"{row.seconds / 60:.1f}"])
    if any(row.setting for row in rows):
        header.insert(1, "Setting")
        for row, cells in zip(rows, body, strict=True):
            cells.insert(1, escaped(row.setting))
    return _table(header, body)


def _table(header: list[str], body: list[list[str]]) -> str:
    """GitHub's form; the first column is of labels, the others are of numbers."""
    header = [*map(escaped, header)]
    rule = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *body])


def score_text(row: Row | None, score: str) -> str:
    """A mean in hundredths and its deviation as papers print them, such as "41.4 ± 0.3"."""
    if row is None or score not in row.scores:
        return ABSENT
    text = f"{100 * row.scores[score]:.1f}"
    return f"{text} ± {100 * row.spreads[score]:.1f}" if score in row.spreads else text


def column_label(column: Column) -> str:
    """A sparsity in percent, a setting as it is."""
    return column if isinstance(column, str) else percent(column)


def write_tables(
    results: Sequence[Result],
    folder: str | os.PathLike,
    title: str,
    *,
    missing: Iterable[Missing] = (),
    score: str = "CIDEr",
) -> list[Path]:
    """Writes `runs.csv` (every run), `table.csv` (means) and `table.md`, each whole or not at all.

    Args:
        folder: is made where it is absent.
        title, missing, score: as `markdown_text` takes them.

    Returns:
        The three files.

    Raises:
        InputError: two runs are the same (see `aggregate`), or the folder cannot be written to.
    """
    folder = Path(folder)
    texts = {
        folder / "runs.csv": csv_text(results),
        folder / "table.csv": means_csv_text(results),
        folder / "table.md": markdown_text(results, title, missing=missing, score=score),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} ({error.strerror}): choose another") from error
    for path, text in texts.items():
        atomic_write(path, text)
    return list(texts)
