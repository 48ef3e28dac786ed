"""The figures of a summary: of a tensor, a layer, all of a model."""

from collections.abc import Sequence
from dataclasses import dataclass

ALL, PRUNABLE, ENCODER, DECODER = "all weights", "prunable weights", "encoder", "decoder"


@dataclass(frozen=True)
class WeightCost:
    """One tensor of weights.

    Attributes:
        name: such as `kernel`.
        shape: as Keras has it.
        prunable: whether it has a gate, or `prune` could give it one.
        weights, nonzeros: counts; a weight behind a closed gate counts as zero.
        flops: of all that it multiplies, 2 for each multiply-add.
        flops_left: those with weights that are not zero.
        bytes: format -> bytes, see `storage.stored_bytes` and `storage.compressed_bytes`.
    """

    name: str
    shape: tuple[int, ...]
    prunable: bool
    weights: int
    nonzeros: int
    flops: int
    flops_left: int
    bytes: dict[str, int]

    @property
    def sparsity(self) -> float:
        return _sparsity(self)

    def as_dict(self) -> dict:
        return {"name": self.name, "shape": list(self.shape), "prunable": self.prunable, **_figures(self)}


@dataclass(frozen=True)
class LayerCost:
    """A layer that has weights of its own, or multiplies what is none.

    Attributes:
        name: its path in the model, such as `encoder_0/attention/query`.
        kind: its class.
        weights_of: its tensors.
        own_flops: of products of two things that are no weights, such as attention's.
        part: `encoder` or `decoder` in a captioner that has an encoder.
    """

    name: str
    kind: str
    weights_of: tuple[WeightCost, ...]
    own_flops: int = 0
    part: str | None = None

    def total(self) -> "Total":
        return Total.of(self.weights_of, self.own_flops)

    def as_dict(self) -> dict:
        tensors = [weight.as_dict() for weight in self.weights_of]
        part = {} if self.part is None else {"part": self.part}
        return {"name": self.name, "kind": self.kind, **part, **_figures(self.total()), "tensors": tensors}


@dataclass(frozen=True)
class Total:
    """The sum of some tensors; attributes as those of `WeightCost`."""

    weights: int
    nonzeros: int
    flops: int
    flops_left: int
    bytes: dict[str, int]

    @classmethod
    def of(cls, tensors: Sequence[WeightCost], own_flops: int = 0) -> "Total":
        names = dict.fromkeys(name for tensor in tensors for name in tensor.bytes)
        return cls(
            sum(tensor.weights for tensor in tensors),
            sum(tensor.nonzeros for tensor in tensors),
            sum(tensor.flops for tensor in tensors) + own_flops,
            sum(tensor.flops_left for tensor in tensors) + own_flops,
            {name: sum(tensor.bytes[name] for tensor in tensors) for name in names},
        )

    @property
    def sparsity(self) -> float:
        return _sparsity(self)

    def as_dict(self) -> dict:
        return _figures(self)


@dataclass(frozen=True, repr=False)
class Summary:
    """What a model costs.

    Attributes:
        name: of the model.
        rows: its layers, in the order in which they were made.
        totals: by name: `all weights`, `prunable weights` and, of a captioner that has an encoder, `encoder`
            and `decoder`, each also as `encoder, prunable`.
        about: what the FLOPs are of.
        notes: what was assumed, and what could not be counted.
        index_bytes: of an index of COO.
    """

    name: str
    rows: tuple[LayerCost, ...]
    totals: dict[str, Total]
    about: str
    notes: tuple[str, ...]
    index_bytes: int

    def as_dict(self) -> dict:
        """Everything, as JSON has it."""
        return {
            "name": self.name,
            "flops_of": self.about,
            "index_bytes": self.index_bytes,
            "notes": list(self.notes),
            "totals": {name: total.as_dict() for name, total in self.totals.items()},
            "layers": [row.as_dict() for row in self.rows],
        }

    def __repr__(self) -> str:
        whole = self.totals[ALL]
        return f"<Summary of {self.name}: {whole.nonzeros} of {whole.weights} weights, {whole.flops} FLOPs>"


def _sparsity(counted) -> float:
    return 1.0 - counted.nonzeros / counted.weights if counted.weights else 0.0


def _figures(counted) -> dict:
    names = ("weights", "nonzeros", "sparsity", "flops", "flops_left")
    return {**{name: getattr(counted, name) for name in names}, "bytes": dict(counted.bytes)}
