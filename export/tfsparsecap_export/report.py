"""What an export did, layer by layer: as a table for people and as a dictionary for programs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from tfsparsecap_export.encode.sparse import CONVOLUTION, FULLY_CONNECTED
from tfsparsecap_export.verify.outputs import Verification
from tfsparsecap_export.verify.quality import Quality


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """One constant of the file.

    Attributes:
        name: of the Keras weight where it can be told, else of the tensor.
        role: "fully connected", "table" or "convolution".
        shape: in the file, [outputs, inputs] for a fully connected layer.
        pattern: "dense", "unstructured", "1x4 blocks" or "1x16 blocks".
        weights: of the model, zeros included; what the layout filled up with zeros does not count.
        nonzeros: weights that are not zero.
        encoding: how it is stored.
        bytes: of values, indices and scales in the file.
        expected_ms: milliseconds a caption, by the cost model; 0 where encodings do not differ in time.
        reason: why it is stored so.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    pattern: str
    weights: int
    nonzeros: int
    encoding: str
    bytes: int
    expected_ms: float
    reason: str


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """What `export_model` wrote.

    Attributes:
        path: the file.
        bytes: its size.
        format: the format that was asked for.
        words: words a caption that `expected_ms` reckons with.
        layers: the file's constants in its order.
        verification: what the check against the Keras model found.
        notes: sentences on what was done otherwise than asked.
        quality: what int8 costs in captions, or None where that was not measured.
    """

    path: Path
    bytes: int
    format: str
    words: int
    layers: tuple[LayerReport, ...]
    verification: Verification
    notes: tuple[str, ...] = ()
    quality: Quality | None = None

    @property
    def sparsity(self) -> float:
        """Share of zeros in fully connected layers and tables."""
        counted = [layer for layer in self.layers if layer.role != CONVOLUTION]
        weights = sum(layer.weights for layer in counted)
        return 1 - sum(layer.nonzeros for layer in counted) / weights if weights else 0.0

    def as_dict(self) -> dict:
        """Plain values, for JSON."""
        quality = self.quality and self.quality.as_dict()
        plain = {**dataclasses.asdict(self), "quality": quality}
        return {**plain, "path": str(self.path), "sparsity": self.sparsity}

    def table(self) -> Table:
        """For the terminal: a row a layer, convolutions with the same encoding in one row."""
        table = Table(
            title=f"{self.path}: format {self.format}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=0,
            pad_edge=False,
        )
        table.add_column("layer", overflow="fold")
        for name in ("shape", "pattern", "non-zero", "", "stored as", "KB", f"ms/{self.words} words", "why"):
            number = name in ("non-zero", "", "KB")
            table.add_column(name, justify="right" if number or "ms" in name else "left", no_wrap=number)
        for group in self._groups():
            first, many = group[0], len(group) > 1
            self._add_row(
                table,
                f"{len(group)} convolutions" if many else self._short_name(first),
                "" if many else "x".join(map(str, first.shape)),
                first.pattern,
                first.encoding,
                group,
                first.reason,
            )
        table.add_section()
        self._add_row(table, "all of these", "", "", "", self.layers, f"the file: {self.bytes / 1e3:,.1f} KB")
        return table

    @staticmethod
    def _add_row(table: Table, name, shape, pattern, encoding, layers: Sequence[LayerReport], reason) -> None:
        nonzeros, weights = (sum(getattr(x, count) for x in layers) for count in ("nonzeros", "weights"))
        expected_ms = sum(layer.expected_ms for layer in layers)
        table.add_row(
            name,
            shape,
            pattern,
            f"{nonzeros:,}",
            f"{nonzeros / max(1, weights):.1%}",
            encoding,
            f"{sum(layer.bytes for layer in layers) / 1e3:,.1f}",
            f"{expected_ms:.3f}" if expected_ms else "",
            reason,
        )

    def _of_int8(self) -> list[str]:
        if self.quality is None:
            return []
        kept = self.quality.kept_float
        if self.quality.not_computed:
            return [f"What int8 costs in captions was not measured: {self.quality.not_computed}."]
        return [
            f"CIDEr on {self.quality.images} validation pictures: {self.quality.float_cider:.4f} in float32,"
            f" {self.quality.cider:.4f} in this file ({-self.quality.loss:+.2%})."
            + (f" Kept float: {', '.join(kept)}." if kept else "")
        ]

    def _short_name(self, layer: LayerReport) -> str:
        """Without the model's name, which all Keras weights begin with, and the names of fused operations."""
        name = layer.name.split(";")[0]
        first = [other.name.split("/")[0] for other in self.layers if other.role == FULLY_CONNECTED]
        return name.removeprefix(f"{first[0]}/") if len(set(first)) == 1 else name

    def _groups(self) -> list[list[LayerReport]]:
        """Layers as the table shows them."""
        groups: dict[object, list[LayerReport]] = {}
        for number, layer in enumerate(self.layers):
            key = (layer.pattern, layer.encoding) if layer.role == CONVOLUTION else number
            groups.setdefault(key, []).append(layer)
        return list(groups.values())

    def sentences(self) -> list[str]:
        """What the table does not say."""
        check = self.verification
        checked = (
            f"Checked on {check.runtime} against the Keras model with {check.samples} inputs"
            f" ({check.source}):"
        )
        if check.equal is None:
            return [*self.notes, f"{checked} outputs differ by at most {check.error:.2%} of the largest one."]
        ties = f", {check.ties} counting as equal because both are equally good" if check.ties else ""
        return [
            *self.notes,
            *self._of_int8(),
            f"{checked} {check.equal:.1%} of the best captions are equal{ties}; with the other beams"
            f" {check.equal_beams:.1%} are. Scores differ by at most {check.error:.1g} nats a word.",
        ]
