"""What methods have in common that choose by themselves which gates are closed: no draws, no gradients."""

import keras
import tensorflow as tf

from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.selection import keep_masks

SCHEMES = ("blind", "uniform", "distribution")


class FixedMask(PruningMethod):
    """Base class of the methods whose gates are a fixed mask between two decisions.

    A subclass decides with `close`. The gates are not trained, so that a step costs what the masked product
    costs and no more; weights behind closed gates get no gradient.
    """

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        for gate in self.gates:
            gate.samples = False
            gate.trainable = False

    def magnitudes(self) -> list[tf.Tensor]:
        """Mean size of the weights of each block: float32 tensors of the logits' shapes."""
        return [
            gate.block_sum(tf.abs(tf.cast(weight, tf.float32))) / gate.block_size
            for gate, weight in zip(self.gates, self.weights, strict=True)
        ]

    def smallest_kept(self, sparsity: float | tf.Tensor, scheme: str) -> list[tf.Tensor]:
        """Which gates stay open when the smallest weights go; gates that are closed already stay closed.

        Args:
            sparsity: share of the weights that go.
            scheme: `"blind"` compares all weights with each other, `"uniform"` those of a layer,
                `"distribution"` all by how many deviations of their layer's weights they are large.

        Returns:
            Bool tensors of the logits' shapes.
        """
        sizes, scores = [gate.block_size for gate in self.gates], self.magnitudes()
        if scheme == "distribution":
            deviations = [tf.math.reduce_std(tf.cast(weight, tf.float32)) for weight in self.weights]
            scores = [score / (one + 1e-30) for score, one in zip(scores, deviations, strict=True)]
        # Open gates on weights of exactly 0 must not tie with those that are closed, and open in their place.
        scores = [
            tf.where(gate.logits > 0.0, tf.maximum(score, 1e-30), 0.0)
            for gate, score in zip(self.gates, scores, strict=True)
        ]
        if scheme != "uniform":
            return keep_masks(scores, sizes, _share_of(sparsity, self.gated_size))
        return [
            keep_masks([score], [size], _share_of(sparsity, gate.size))[0]
            for score, size, gate in zip(scores, sizes, self.gates, strict=True)
        ]

    def most_closed(self) -> int:
        if getattr(self, "scheme", None) != "uniform":
            return super().most_closed()
        return sum(
            round(self.sparsity * gate.size) // gate.block_size * gate.block_size for gate in self.gates
        )

    def step(self, gate_gradients):
        self.steps_done.assign_add(1)


def _share_of(sparsity: float | tf.Tensor, size: int) -> tf.Tensor:
    return tf.cast(tf.round(tf.cast(sparsity, tf.float64) * size), tf.int64)
