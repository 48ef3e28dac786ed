"""What an export did, layer by layer: as a table for the terminal and as a dictionary for JSON."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.encoded_file import LayerReport
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.encode.sparse import CONVOLUTION
from tfsparsecap_export.tables import console, layer_rows, new_table
from tfsparsecap_export.verify.outputs import Verification

if TYPE_CHECKING:
    from tfsparsecap.captioning.inference.confidence import Calibration
    from tfsparsecap_export.caption_files.quality import Quality


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
    def of(cls, content: bytes, dense: bytes, costs: KernelCosts, words: int) -> "Speedup":
        """The speed-up of a file, compared with the dense float32 file that it was made of."""
        ms = max(network_ms(content, costs, words), 1e-9)
        before, int8 = (network_ms(dense, costs, words, int8=int8) for int8 in (False, True))
        return cls(costs.target, ms, before / ms, int8 / ms)


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """The result of `export_model`; `print(report)` shows it as the command does.

    Attributes:
        path: path of the file.
        bytes: size of the file.
        format: the requested format.
        words: number of words per caption, or of time steps, that `expected_ms` assumes.
        layers: the constants of the file, in order.
        verification: result of the comparison with the Keras model.
        speedup: what the cost model expects.
        notes: sentences about deviations from the requested format.
        quality: loss of CIDEr due to int8, or None if it was not measured.
        confidence: calibration of the confidence, or None if the file has none.

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
    quality: "Quality | None" = None
    confidence: "Calibration | None" = None

    @property
    def sparsity(self) -> float:
        """Fraction of zeros in the layers and tables of a model; of a captioner, not in its encoder."""
        captioner = self.verification.equal is not None
        counted = [layer for layer in self.layers if not (captioner and layer.role == CONVOLUTION)]
        weights = sum(layer.weights for layer in counted)
        return 1 - sum(layer.nonzeros for layer in counted) / weights if weights else 0.0

    def __str__(self) -> str:
        """The table and the sentences, as wide as the terminal."""
        with (shown := console()).capture() as text:
            shown.print(self.table())
            for sentence in self.sentences():
                shown.print(sentence)
        return text.get().rstrip("\n")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        quality = self.quality and self.quality.as_dict()
        plain = {**dataclasses.asdict(self), "quality": quality}
        return {**plain, "path": str(self.path), "sparsity": self.sparsity}

    def table(self) -> Table:
        """For the terminal: one row per layer, and one for all convolutions with the same encoding."""
        headings = ["layer", "shape", "pattern", ">non-zero", ">", "stored as", ">KB"]
        title = f"{self.path}: format {self.format}"
        is_captioner = self.verification.equal is not None
        table = new_table(title, *headings, f">ms/{self.words} words" if is_captioner else ">ms", "why")
        for name, shape, group in layer_rows(self.layers, lambda layer: (layer.pattern, layer.encoding)):
            first = group[0]
            table.add_row(name, shape, first.pattern, *_figures(group, first.encoding), first.reason)
        table.add_section()
        table.add_row("total", "", "", *_figures(self.layers, ""), f"file: {self.bytes / 1e3:,.1f} KB")
        return table

    def sentences(self) -> list[str]:
        """What the table does not show."""
        check, quality, speedup = self.verification, self.quality, self.speedup
        expected = (
            f"Expected on {speedup.target}: {speedup.float32:.1f}x as fast as dense float32,"
            f" {speedup.int8:.1f}x as dense int8 (by a cost model; measure it with"
            " python -m tfsparsecap_export.benchmark)."
        )
        compared = (
            f"Compared with the Keras model on {check.runtime} with {check.samples} inputs ({check.source}):"
        )
        if check.equal is None:
            return [
                *self.notes,
                expected,
                f"{compared} outputs differ by at most {check.error:.2%} of the largest output, and by"
                f" {check.rms_error:.2%} in the mean (root mean square)."
                + (
                    f" The most probable class is the same for {check.same_class:.1%}."
                    if check.same_class is not None
                    else ""
                ),
            ]
        notes = list(self.notes)
        if quality is not None and quality.not_computed:
            notes.append(f"The loss of CIDEr due to int8 was not measured: {quality.not_computed}.")
        elif quality is not None:
            notes.append(
                f"CIDEr on {quality.images} validation images: {quality.float_cider:.4f} in float32,"
                f" {quality.cider:.4f} in this file ({-quality.loss:+z.2%} ± {quality.loss_error:.2%})."
                + (f" Stored as float: {', '.join(quality.kept_float)}." if quality.kept_float else "")
            )
        if self.confidence is not None:
            notes.append(
                f"Confidence: calibrated on {self.confidence.images} validation images, of which"
                f" {self.confidence.good:.1%} have a good caption."
            )
        ties = f" ({check.ties} of them are different captions with equal scores)" if check.ties else ""
        return [
            *notes,
            expected,
            f"{compared} {check.equal:.1%} of the best captions are equal{ties}, and"
            f" {check.equal_beams:.1%} of the captions of all beams. Scores differ by at most"
            f" {check.error:.1g} nats per word.",
        ]


def _figures(layers: Sequence[LayerReport], encoding: str) -> list[str]:
    nonzeros, weights, size, expected_ms = (
        sum(getattr(layer, name) for layer in layers)
        for name in ("nonzeros", "weights", "bytes", "expected_ms")
    )
    milliseconds = f"{expected_ms:.3f}" if expected_ms else ""
    fraction = f"{nonzeros / max(1, weights):.1%}"
    return [f"{nonzeros:,}", fraction, encoding, f"{size / 1e3:,.1f}", milliseconds]
