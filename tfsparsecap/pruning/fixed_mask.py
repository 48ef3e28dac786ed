"""Base class of methods that set masks at certain steps, and `FrozenMask`, which never changes its mask."""

from collections.abc import Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.selection import keep_masks


class FixedMask(PruningMethod):
    """Base class of methods whose gates are neither sampled nor trained.

    A subclass sets the mask with `close`. The only cost in a training step is the multiplication by the mask;
    weights behind closed gates get no gradient.

    Args:
        sparsity, total_steps, options: see `PruningMethod`.
        allocation: which weights are compared with each other when the smallest are removed: `"blind"`
            compares all weights, `"uniform"` those of each layer, `"distribution"` all weights in units of
            their layer's standard deviation.

    Raises:
        InputError: as `PruningMethod`, and for another allocation than those in `allocations`.
    """

    samples_gates = trains_gates = False
    #: Values of `allocation` that the method supports.
    allocations: tuple[str, ...] = ("blind", "uniform", "distribution")

    def __init__(
        self, sparsity: float, total_steps: int | None = None, *, allocation: str = "blind", **options: Any
    ) -> None:
        super().__init__(sparsity, total_steps, **options)
        if allocation not in self.allocations:
            raise unknown_name("allocation", allocation, self.allocations)
        self.allocation = allocation

    def magnitudes(self) -> list[tf.Tensor]:
        """Mean absolute weight of each block: float32 tensors of the logits' shapes."""
        return [
            gate.block_sum(tf.abs(tf.cast(weight, tf.float32))) / gate.block_size
            for gate, weight in zip(self.gates, self.weights, strict=True)
        ]

    def close_smallest(self, sparsity: float) -> None:
        """Closes the gates of the smallest weights, a share of `sparsity`; closed gates stay closed."""
        scores = self.magnitudes()
        if self.allocation == "distribution":
            deviations = [tf.math.reduce_std(tf.cast(weight, tf.float32)) for weight in self.weights]
            scores = [score / (std + 1e-30) for score, std in zip(scores, deviations, strict=True)]
        scores = self.below_open(scores)
        if self.allocation != "uniform":
            self.close_lowest(scores, round(sparsity * self.moving_size))
            return
        self.close(
            [
                keep_masks([score], [gate.block_size], tf.constant(round(sparsity * gate.size), tf.int64))[0]
                for score, gate in zip(scores, self.gates, strict=True)
            ]
        )

    def below_open(self, scores: list[tf.Tensor]) -> list[tf.Tensor]:
        """Ranks closed gates below all open ones, including open gates on weights of exactly 0."""
        return [
            tf.where(gate.logits > 0.0, tf.maximum(score, 1e-30), 0.0)
            for gate, score in zip(self.gates, scores, strict=True)
        ]

    def most_closed(self) -> int:
        if self.allocation != "uniform":
            return super().most_closed()
        return sum(
            round(self.sparsity * gate.size) // gate.block_size * gate.block_size for gate in self.gates
        )

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        self.steps_done.assign_add(1)


@register("frozen")
class FrozenMask(FixedMask):
    """Keeps zero weights at zero while the others are trained.

    For further training of a sparse model with other data, another learning rate or another loss. A gate is
    closed if all weights of its block are zero.

    Args:
        sparsity: expected share of zeros among the gated weights, as a check; None accepts any.
        total_steps: not used.
        block_shape: (inputs, outputs) of a block.

    Raises:
        InputError: in `prune`, the model has another sparsity, or no zeros.

    Examples:
        >>> import keras
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64)])
        >>> model = sc.strip_pruning(sc.prune(model, "magnitude", sparsity=0.75))
        >>> round(float(sc.prune(model, sc.FrozenMask()).pruning.current_sparsity()), 2)
        0.75
    """

    def __init__(
        self,
        sparsity: float | None = None,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
    ) -> None:
        super().__init__(sparsity or 0.0, total_steps, block_shape=block_shape)
        self.requested = sparsity
        #: Whether a model without zeros is accepted; its gates then all stay open.
        self.accept_dense = False
        #: Whether the mask is loaded from a file, together with the weights.
        self.restored = False

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        if self.restored:
            return
        self.close([size > 0.0 for size in self.magnitudes()])
        sparsity = float(self.current_sparsity())
        if sparsity == 0.0 and not self.accept_dense:
            raise InputError(
                f"{model.name} has no zero weights, so there is no mask to keep: give a pruned model"
                " (training.start_from in a configuration)"
            )
        if self.requested is not None and abs(sparsity - self.requested) > 0.005:
            raise InputError(
                f"{sparsity:.1%} of the weights of {model.name} are zero, not {self.requested:.1%}: give the"
                " sparsity of the model, or none"
            )
        self.sparsity = sparsity

    def _check_reachable(self) -> None:
        """Nothing to check: the mask is the model's current one."""

    @property
    def target(self) -> float | None:
        """The sparsity of the mask; before `attach` the requested one."""
        return float(self.current_sparsity()) if self.gates else self.requested

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sparsity": self.requested}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        method = super().from_config(config)
        method.restored = True
        return method
