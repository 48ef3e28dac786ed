"""SNIP: before the training, the connections go whose loss the loss would feel least."""

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.selection import keep_masks


@register("snip")
class SNIP(PruningMethod):
    """Single-shot pruning at initialisation, by connection sensitivity.

    The first `batches` steps train nothing: they add up `dL/dc`, the slope of the loss with respect to each
    connection's switch `c` (which is `w dL/dw`; for a block the sum over its weights). Then the connections
    with the smallest sizes of that sum go, over all layers together, and the training begins.

    In these steps the optimizer is not asked: no weight decay, no constraint, no average moves a weight, and
    a schedule of the learning rate begins with the first step that trains. What a forward pass itself changes
    (the moving averages of batch normalisation) it changes in them, too.

    Args:
        sparsity: share of the gated weights to remove.
        total_steps: optimizer steps of the training, which must be more than `batches`; None does not check.
        block_shape: (inputs, outputs) of a block.
        batches: how many are looked at.

    Raises:
        InputError: an argument out of range.

    Reference:
        Lee et al., "SNIP: Single-shot Network Pruning based on Connection Sensitivity",
        https://arxiv.org/abs/1810.02340, equations 5 and 6.

    Example:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(2)])
        >>> model = sc.prune(model, SNIP(0.5))
        >>> model.compile("adam", "mse")
        >>> history = model.fit(tf.random.normal([32, 8]), tf.ones([32, 2]), verbose=0)
        >>> round(float(model.pruning.current_sparsity()), 3)
        0.5
    """

    def __init__(
        self, sparsity: float, total_steps: int | None = None, *, block_shape=(1, 1), batches: int = 1
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if batches < 1:
            raise InputError(f"batches must be at least 1, to look at the loss: got {batches!r}")
        if total_steps is not None and batches >= total_steps:
            raise InputError(
                f"batches is {batches} and the training has {total_steps} steps: give fewer, or train longer"
            )
        self.total_steps, self.batches = total_steps, batches

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        for gate in self.gates:
            gate.samples = False
        self._slopes = [self.add_state("slope", tuple(gate.logits.shape)) for gate in self.gates]

    def weights_learn(self) -> tf.Tensor:
        """Whether the step that is being taken trains the weights: bool scalar."""
        return tf.convert_to_tensor(self.steps_done) >= self.batches

    def iterations(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        looked_at = tf.minimum(tf.convert_to_tensor(self.steps_done), self.batches)
        return tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.int64) + looked_at

    def finalize(self) -> str | None:
        steps = int(tf.convert_to_tensor(self.steps_done))
        if 0 < steps < self.batches:
            return (
                f"SNIP looks at {self.batches} batches before it prunes, and the training stopped after"
                f" {steps}, so nothing was pruned and nothing learned: train on, or give it batches={steps}"
            )
        return super().finalize()

    def step(self, gate_gradients):
        step = tf.convert_to_tensor(self.steps_done)
        looking = step < self.batches

        def look() -> tf.Operation:
            for slope, gradient in zip(self._slopes, gate_gradients, strict=True):
                if gradient is not None:
                    # All gates are at the same logit, so dL/dG is dL/dc times one number.
                    slope.assign_add(gradient)
            return tf.no_op()

        tf.cond(looking, look, lambda: tf.no_op())
        tf.cond(tf.equal(step, self.batches - 1), self._prune, lambda: tf.no_op())
        self.steps_done.assign_add(1)

    def _prune(self) -> tf.Operation:
        scores = [
            tf.abs(tf.convert_to_tensor(slope)) / gate.block_size
            for slope, gate in zip(self._slopes, self.gates, strict=True)
        ]
        closed = tf.constant(round(self.sparsity * self.gated_size), tf.int64)
        self.close(keep_masks(scores, [gate.block_size for gate in self.gates], closed))
        return tf.no_op()

    def get_config(self) -> dict:
        return {**super().get_config(), "total_steps": self.total_steps, "batches": self.batches}
