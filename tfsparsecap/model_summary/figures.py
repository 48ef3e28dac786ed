"""The figures of a summary: for a weight, a layer, and the whole model."""

from collections.abc import Iterable
from dataclasses import dataclass

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
        whole = self.totals[ALL]
        return f"<Summary of {self.name}: {whole.nonzeros} of {whole.weights} weights, {whole.flops} FLOPs>"


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
