"""SNIP: removes the connections to which the loss is least sensitive before training."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError, check_whole
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.optimizer import run_if
from tfsparsecap.pruning.registry import register


@register("snip")
class SNIP(PruningMethod):
    """Single-shot pruning at initialisation, by connection sensitivity.

    The first `batches` steps train nothing. They accumulate `dL/dc`, the derivative of the loss with respect
    to the switch `c` of each connection, which is `w dL/dw` (for a block the sum over its weights). Then the
    connections with the smallest absolute sums are removed, over all layers together, and training starts.

    In these steps the optimizer is not called: weight decay, constraints and averages do not change the
    weights, and a learning rate schedule starts with the first step that trains. The
    forward passes of these steps still update the moving averages of batch normalisation.

    Args:
        sparsity: share of the gated weights to remove.
        total_steps: optimizer steps of the training, which must be more than `batches`; None does not check.
        block_shape: (inputs, outputs) of a block.
        batches: number of batches that the sensitivity is computed on.

    Raises:
        InputError: an argument out of range.

    Reference:
        Lee et al., "SNIP: Single-shot Network Pruning based on Connection Sensitivity", equations 5 and 6,
        https://arxiv.org/abs/1810.02340.

    Examples:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(2)])
        >>> model = sc.prune(model, SNIP(0.5))
        >>> model.compile("adam", "mse")
        >>> history = model.fit(tf.random.normal([32, 8]), tf.ones([32, 2]), verbose=0)
        >>> round(float(model.pruning.current_sparsity()), 3)
        0.5
    """

    samples_gates = False

    def __init__(
        self,
        sparsity: float,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
        batches: int = 1,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape)
        self.batches = check_whole("batches", batches, at_least=1)
        if total_steps is not None and batches >= total_steps:
            raise InputError(
                f"batches is {batches}, but the training has {total_steps} steps: give fewer batches, or"
                " train longer"
            )

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        self._sums = [self.add_state("slope", tuple(gate.logits.shape)) for gate in self.gates]

    def weights_learn(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.steps_done) >= self.batches

    def iterations(self, optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
        skipped = tf.minimum(tf.convert_to_tensor(self.steps_done), self.batches)
        return tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.int64) + skipped

    @property
    def complete_after(self) -> int:
        return int(self.batches)

    def finalize(self) -> str | None:
        steps = int(tf.convert_to_tensor(self.steps_done))
        if 0 < steps < self.batches:
            return (
                f"SNIP evaluates {self.batches} batches before it prunes, but the training stopped after"
                f" {steps}, so nothing was pruned or learned: continue the training, or give batches={steps}"
            )
        return super().finalize()

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        step = tf.convert_to_tensor(self.steps_done)

        def accumulate() -> None:
            for total, gradient in zip(self._sums, gate_gradients, strict=True):
                if gradient is not None:
                    # All gates have the same logit, so dL/dG is dL/dc times a constant.
                    total.assign_add(gradient)

        run_if(step < self.batches, accumulate)
        run_if(tf.equal(step, self.batches - 1), self._prune)
        self.steps_done.assign_add(1)

    def _prune(self) -> None:
        scores = [
            tf.abs(tf.convert_to_tensor(total)) / gate.block_size
            for total, gate in zip(self._sums, self.gates, strict=True)
        ]
        self.close_lowest(scores, round(self.sparsity * self.moving_size))
