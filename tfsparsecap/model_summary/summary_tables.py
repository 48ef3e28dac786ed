"""The figures of a summary, for a weight, a layer and the whole model, and their tables."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

ALL, PRUNABLE, ENCODER, DECODER = "all weights", "prunable weights", "encoder", "decoder"


@dataclass(frozen=True)
class Figures:
    """Counts of a weight, or sums of such counts.

    Attributes:
        weights, nonzeros: numbers of weights; a weight behind a closed gate counts as zero.
        flops: two for each multiply-add.
        flops_left: FLOPs with non-zero weights.
        bytes: format -> bytes, see `storage.stored_bytes` and `storage.compressed_bytes`.
    """

    weights: int
    nonzeros: int
    flops: int
    flops_left: int
    bytes: dict[str, int]

    @classmethod
    def sum(cls, parts: Iterable["Figures"], own_flops: int = 0) -> "Figures":
        """Adds figures, and FLOPs of products without weights."""
        parts = list(parts)
        return cls(
            sum(part.weights for part in parts),
            sum(part.nonzeros for part in parts),
            sum(part.flops for part in parts) + own_flops,
            sum(part.flops_left for part in parts) + own_flops,
            {name: sum(part.bytes[name] for part in parts) for name in (parts[0].bytes if parts else ())},
        )

    @property
    def sparsity(self) -> float:
        return 1.0 - self.nonzeros / self.weights if self.weights else 0.0


@dataclass(frozen=True)
class WeightRow:
    """One weight of a layer: its name and shape in Keras, whether it can be pruned, and its figures."""

    name: str
    shape: tuple[int, ...]
    prunable: bool
    figures: Figures


@dataclass(frozen=True)
class LayerRow:
    """A layer with weights, or with products of two activations.

    Attributes:
        name: path in the model, such as `encoder_0/attention/query`.
        kind: name of the class.
        weights: the layer's weights, without those of sublayers.
        own_flops: FLOPs of products of two activations, such as attention scores.
        counted: False if a formula for its products is missing; its FLOPs are then incomplete.
        part: `encoder` or `decoder` in a captioner with an encoder.
    """

    name: str
    kind: str
    weights: tuple[WeightRow, ...]
    own_flops: int = 0
    counted: bool = True
    part: str | None = None

    @property
    def figures(self) -> Figures:
        return Figures.sum((weight.figures for weight in self.weights), self.own_flops)


@dataclass(frozen=True, repr=False)
class Summary:
    """Weights, FLOPs and bytes of a model.

    Attributes:
        name: name of the model.
        rows: its layers, in order of creation.
        totals: by name: `all weights`, `prunable weights` and, of a captioner with an encoder, `encoder` and
            `decoder`, each also as `encoder, prunable`.
        about: what the FLOPs are counted for, such as one example.
        notes: assumptions, and operations that could not be counted.

    Examples:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
        >>> costs = sc.summary(model, print_fn=lambda text: None)
        >>> costs.totals["all weights"].weights, costs.notes
        (7850, ())
    """

    name: str
    rows: tuple[LayerRow, ...]
    totals: dict[str, Figures]
    about: str
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        total = self.totals[ALL]
        return f"<Summary of {self.name}: {total.nonzeros} of {total.weights} weights, {total.flops} FLOPs>"


def totals(rows: list[LayerRow]) -> dict[str, Figures]:
    """Sums over all layers, over the prunable weights, and over encoder and decoder if there is an
    encoder."""

    def total(part: str | None, only_prunable: bool) -> Figures:
        of_part = [row for row in rows if part in (None, row.part)]
        weights = [w.figures for row in of_part for w in row.weights if w.prunable or not only_prunable]
        return Figures.sum(weights, 0 if only_prunable else sum(row.own_flops for row in of_part))

    figures = {ALL: total(None, False), PRUNABLE: total(None, True)}
    for part in (ENCODER, DECODER):
        if any(row.part == part for row in rows):
            figures |= {part: total(part, False), f"{part}, prunable": total(part, True)}
    return figures


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
    for table in tables_of_summary(summary):
        console.print(table)
    if print_fn is not None:
        print_fn(text.getvalue())


def tables_of_summary(summary: Summary) -> list[Table | Text]:
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
        stored.add_row(
            name, *(_bytes(total.bytes.get(format_name, 0)) for format_name in formats), style="bold"
        )
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
