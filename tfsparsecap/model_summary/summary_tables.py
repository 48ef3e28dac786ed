"""Prints a summary as tables."""

import io
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tfsparsecap.model_summary.figures import Figures, LayerRow, Summary

#: Width of the tables in characters.
WIDTH = 120
#: Format -> heading.
FORMATS = {name: name for name in ("float32", "float16")}
FORMATS |= {"coo": "COO", "csr": "CSR", "int8_blocks": "int8 blocks", "gzip": "gzip", "bzip2": "bzip2"}


def show(summary: Summary, print_fn: Callable[[str], None] | None = None) -> None:
    """Prints a summary, or passes its text to `print_fn` in one call."""
    text = io.StringIO()
    console = Console() if print_fn is None else Console(file=text, width=WIDTH)
    if print_fn is None and not (console.is_terminal or console.is_jupyter):
        console = Console(width=WIDTH)  # a file or pipe has no width
    for table in tables(summary):
        console.print(table)
    if print_fn is not None:
        print_fn(text.getvalue())


def tables(summary: Summary) -> list[Table | Text]:
    """Returns a table of weights and FLOPs, a table of bytes, and notes on how they were counted."""
    computed = Table(title=f"{summary.name}: FLOPs of {summary.about}", title_justify="left")
    computed.add_column("layer", overflow="fold")
    computed.add_column("shapes", overflow="fold")
    for heading in ("weights", "non-zeros", "sparsity", "FLOPs", "FLOPs left"):
        computed.add_column(heading, justify="right", no_wrap=True)
    formats = [name for name in FORMATS if name in next(iter(summary.totals.values())).bytes]
    stored = Table(title=f"{summary.name}: bytes", title_justify="left")
    stored.add_column("layer", overflow="fold")
    for name in formats:
        stored.add_column(FORMATS[name], justify="right", no_wrap=True)
    for row in summary.rows:
        figures = row.figures
        computed.add_row(row.name, _shapes(row), *_counts(figures, row.counted))
        if row.weights:
            stored.add_row(row.name, *(_bytes(figures.bytes[name]) for name in formats))
    for table in (computed, stored):
        table.add_section()
    is_complete = all(row.counted for row in summary.rows)
    for name, total in summary.totals.items():
        *weights, flops, flops_left = _counts(total)
        at_least = "" if is_complete else "≥ "
        computed.add_row(name, "", *weights, at_least + flops, at_least + flops_left, style="bold")
        stored.add_row(name, *(_bytes(total.bytes.get(one, 0)) for one in formats), style="bold")
    # Without formats, the model has no weights.
    return [computed, *([stored] if formats else []), Text("\n".join(_notes(summary)))]


def amount(number: float) -> str:
    """Formats a number with three digits: 950, 1.23 k, 45.6 M, 789 G.

    Examples:
        >>> [amount(number) for number in (0, 999, 1234, 45_600_000)]
        ['0', '999', '1.23 k', '45.6 M']
    """
    units = ["", " k", " M", " G", " T"]
    while number >= 999.5 and units[1:]:  # 999.5 would round to 1000 of this unit
        number /= 1000
        units.pop(0)
    digits = 0 if not units[0] or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{units[0]}"


def _counts(figures: Figures, counted: bool = True) -> list[str]:
    weights = [f"{figures.weights:,}", f"{figures.nonzeros:,}", f"{figures.sparsity:.1%}"]
    flops = [amount(figures.flops), amount(figures.flops_left)]
    return [*(weights if figures.weights else [""] * 3), *(flops if counted else ["?", "?"])]


def _shapes(row: LayerRow) -> str:
    return ", ".join("x".join(map(str, weight.shape)) or "1" for weight in row.weights) or "(no weights)"


def _bytes(number: int) -> str:
    return f"{amount(number)}B" if number >= 999.5 else f"{number} B"


def _notes(summary: Summary) -> list[str]:
    return [
        "FLOPs: 2 for each multiply-add of matrix products and convolutions; left: with non-zero weights.",
        "Bytes: COO has a float32 and 8 bytes for the index of each axis, CSR a float32"
        " and an int32 per non-zero weight; both keep vectors dense. int8 blocks: the non-zero blocks of 16,"
        " or a whole layer in int8 if that is smaller.",
        *(f"Note: {note}." for note in summary.notes),
    ]
