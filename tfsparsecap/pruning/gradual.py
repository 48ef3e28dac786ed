"""Gradual magnitude pruning: tensorflow-model-optimization's schedules and mask update, on Keras 3."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import check_whole
from tfsparsecap.gates import Gate
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.optimizer import once_for_all, run_if
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.schedule import OPTIONS, Schedule


@register("gradual")
class Gradual(FixedMask):
    """Removes the smallest weights of each layer on a schedule of tensorflow-model-optimization.

    All layers have the same sparsity: that of `PolynomialDecay`, which rises from 0 (see `Schedule` for the
    formula), or of `ConstantSparsity` with `Schedule(constant=True)`. At each update, that package's
    `Pruning` class selects the mask from the magnitudes of weights, or the mean magnitudes of blocks.

    Args:
        sparsity: final share of the weights of each layer to remove.
        total_steps: optimizer steps of the training.
        block_shape: (inputs, outputs) of a block.
        schedule: when weights are removed. `begin` defaults to the end of the first epoch, as in the SMP
            paper, if `steps_per_epoch` is given and the first epoch ends before `end`; otherwise to 0.05.
            `end` defaults to 0.5.
        steps_per_epoch: optimizer steps of an epoch, for `begin`. The training command sets it.

    Raises:
        InputError: an argument out of range; a `frequency` with which the sparsity could not rise between
            `begin` and `end`; tensorflow-model-optimization is not installed; blocks too coarse for the
            sparsity.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", equation 1, https://arxiv.org/abs/1710.01878. In the SMP
        paper (section 5.1) this baseline begins after the first epoch, ends after half of the epochs and has
        a frequency of 1000, as in RNN-SMP (https://arxiv.org/abs/1908.10797, section 4.1).

    Examples:
        >>> Gradual(sparsity=0.9, total_steps=1000).updates.last
        498
        >>> Gradual(sparsity=0.9, total_steps=1000, steps_per_epoch=100).updates.first
        100
    """

    supports_encoder_schemes = True
    schedule_options = OPTIONS

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape: Sequence[int] = (1, 1),
        schedule: Schedule | None = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape, schedule=schedule)
        if steps_per_epoch is not None:
            check_whole("steps_per_epoch", steps_per_epoch, at_least=1)
        self.steps_per_epoch = steps_per_epoch
        begin, end = 0.05, 0.5
        first_epoch = (steps_per_epoch or total_steps) / total_steps
        if first_epoch < (end if self.schedule.end is None else self.schedule.end):
            begin = first_epoch
        self.updates = self.schedule.updates(total_steps, begin=begin, end=end)

    def attach(self, model: keras.Model) -> None:
        schedules, implementation = keras_internals.model_optimization()
        super().attach(model)
        updates = self.updates
        span = {"begin_step": updates.first, "end_step": updates.last, "frequency": updates.frequency}
        if updates.constant or updates.last == updates.first:
            schedule = schedules.ConstantSparsity(self.sparsity, **span)
        else:
            schedule = schedules.PolynomialDecay(0.0, self.sparsity, power=updates.power, **span)
        # tfmot gets the magnitudes of blocks instead of weights; for single weights the result is the same.
        self._variables = []
        for gate in self.gates:
            shape = tuple(gate.logits.shape)
            sizes, masks = (self.add_state(name, shape) for name in ("sizes", "mask"))
            self._variables.append((sizes.value, masks.value, self.add_state("threshold", ()).value))
        self._update = implementation.Pruning(
            lambda: tf.convert_to_tensor(self.steps_done), self._variables, schedule, (1, 1), "AVG"
        )
        self._due: Callable[[tf.Tensor], tf.Tensor] = lambda step: schedule(step)[0]

    def most_closed(self) -> int:
        return closed_in_layers(self.gates, self.sparsity)

    @property
    def complete_after(self) -> int | None:
        return self.updates.last + 1

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        # tfmot's update waits for all replicas, which is impossible inside a branch of one replica.
        once_for_all(self._rank_if_due)
        super().step(gate_gradients)

    def _rank_if_due(self) -> None:
        run_if(self._due(tf.convert_to_tensor(self.steps_done)), self._rank)

    def _rank(self) -> None:
        for (sizes, _, _), magnitudes in zip(self._variables, self.magnitudes(), strict=True):
            sizes.assign(magnitudes)
        self._update.conditional_mask_update()
        self.close([tf.convert_to_tensor(mask) > 0.5 for _, mask, _ in self._variables])


def closed_in_layers(gates: list[Gate], sparsity: float) -> int:
    """Total number of weights that tensorflow-model-optimization removes at this sparsity of each layer."""
    share, closed = np.float32(1.0) - np.float32(sparsity), 0
    for gate in gates:
        blocks = gate.size // gate.block_size
        # As in tfmot: float32, rounded half to even, and at least one block per layer is kept.
        kept_blocks = max(int(np.round(np.float32(blocks) * share)), 1)
        closed += (blocks - kept_blocks) * gate.block_size
    return closed
