"""What methods have in common that choose by themselves which gates are closed: no draws, no gradients."""

import keras
import tensorflow as tf

from tfsparsecap.gates import INITIAL_LOGIT, gated_layers
from tfsparsecap.pruning.method import PruningMethod


class FixedMask(PruningMethod):
    """Base class of the methods whose gates are a fixed mask between two decisions.

    A subclass decides with `close`. The gates are not trained, so that a step costs what the masked product
    costs and no more; weights behind closed gates get no gradient.
    """

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        self.weights = [layer.stored_weight(name) for layer in gated_layers(model) for name in layer.gate_of]
        for gate in self.gates:
            gate.samples = False
            gate.trainable = False

    def magnitudes(self) -> list[tf.Tensor]:
        """Mean size of the weights of each block: float32 tensors of the logits' shapes."""
        return [
            gate.block_sum(tf.abs(tf.cast(weight, tf.float32))) / gate.block_size
            for gate, weight in zip(self.gates, self.weights, strict=True)
        ]

    def close(self, keep: list[tf.Tensor]) -> None:
        """Sets the gates: bool tensors of the logits' shapes, true for those that are open."""
        for gate, kept in zip(self.gates, keep, strict=True):
            gate.logits.assign(tf.where(kept, INITIAL_LOGIT, -INITIAL_LOGIT))

    def step(self, gate_gradients):
        self.steps_done.assign_add(1)
