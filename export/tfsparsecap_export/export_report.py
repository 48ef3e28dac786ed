"""What an export did, layer by layer: as a table for the terminal and as a dictionary for JSON."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.encoded_file import LayerReport
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.tables import console, layer_rows, new_table
from tfsparsecap_export.verify.outputs import Verification


@dataclasses.dataclass(frozen=True)
class Speedup:
    """How much faster than the dense model a file is expected to be, by the cost model.

    Attributes:
        target: the processor, see `encode.costs.TARGETS`.
        ms: expected milliseconds of a run.
        float32, int8: expected time with dense float32, and with dense int8 layers, divided by `ms`.
    """

    target: str
    ms: float
    float32: float
    int8: float

    @classmethod
    def of(cls, content: bytes, dense: bytes, costs: KernelCosts, steps: int) -> "Speedup":
        """The speed-up of a file, compared with the dense float32 file that it was made of."""
        ms = max(network_ms(content, costs, steps), 1e-9)
        before, int8 = (network_ms(dense, costs, steps, int8=int8) for int8 in (False, True))
        return cls(costs.target, ms, before / ms, int8 / ms)


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """The result of `export_model`; `print(report)` shows it as the command does.

    Attributes:
        path: path of the file.
        bytes: size of the file.
        format: the requested format.
        words: number of words per caption that `expected_ms` assumes, or of steps of loops whose number of
            steps the file does not tell.
        layers: the constants of the file, in order.
        verification: result of the comparison with the Keras model.
        speedup: what the cost model expects.
        notes: sentences about deviations from the requested format.

    Examples:
        >>> from tfsparsecap_export import export_model
        >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256)])
        >>> report = export_model(model, "model.tflite", format="dense")
        >>> report.path.stat().st_size == report.bytes, report.format
        (True, 'dense')
    """

    path: Path
    bytes: int
    format: str
    words: int
    layers: tuple[LayerReport, ...]
    verification: Verification
    speedup: Speedup
    notes: tuple[str, ...] = ()

    @property
    def times(self) -> str:
        """Heading of the expected milliseconds."""
        return "ms"

    @property
    def sparsity(self) -> float:
        """Fraction of zeros in the layers and tables."""
        weights = sum(layer.weights for layer in self.counted())
        return 1 - sum(layer.nonzeros for layer in self.counted()) / weights if weights else 0.0

    def counted(self) -> list[LayerReport]:
        """The layers that `sparsity` is about."""
        return list(self.layers)

    def __str__(self) -> str:
        """The table and the sentences, as wide as the terminal."""
        with (shown := console()).capture() as text:
            shown.print(self.table())
            for sentence in self.sentences():
                shown.print(sentence)
        return text.get().rstrip("\n")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "path": str(self.path), "sparsity": self.sparsity}

    def table(self) -> Table:
        """For the terminal: one row per layer, and one for all convolutions with the same encoding."""
        headings = ["layer", "shape", "pattern", ">non-zero", ">", "stored as", ">KB"]
        title = f"{self.path}: format {self.format}"
        table = new_table(title, *headings, f">{self.times}", "why")
        for name, shape, group in layer_rows(self.layers, lambda layer: (layer.pattern, layer.encoding)):
            first = group[0]
            table.add_row(name, shape, first.pattern, *_figures(group, first.encoding), first.reason)
        table.add_section()
        table.add_row("total", "", "", *_figures(self.layers, ""), f"file: {self.bytes / 1e3:,.1f} KB")
        return table

    def sentences(self) -> list[str]:
        """What the table does not show."""
        speedup = self.speedup
        expected = (
            f"Expected on {speedup.target}: {speedup.float32:.1f}x as fast as dense float32,"
            f" {speedup.int8:.1f}x as dense int8 (by a cost model; measure it with"
            " python -m tfsparsecap_export.benchmark)."
        )
        return [*self.notes, *self.measured(), expected, self.verification.sentence()]

    def measured(self) -> list[str]:
        """What was measured beyond the verification."""
        return []


def _figures(layers: Sequence[LayerReport], encoding: str) -> list[str]:
    nonzeros, weights, size, expected_ms = (
        sum(getattr(layer, name) for layer in layers)
        for name in ("nonzeros", "weights", "bytes", "expected_ms")
    )
    milliseconds = f"{expected_ms:.3f}" if expected_ms else ""
    fraction = f"{nonzeros / max(1, weights):.1%}"
    return [f"{nonzeros:,}", fraction, encoding, f"{size / 1e3:,.1f}", milliseconds]
