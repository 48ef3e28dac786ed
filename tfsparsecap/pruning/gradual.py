"""Gradual magnitude pruning: tensorflow-model-optimization's schedules and mask update, on Keras 3."""

import math

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import tfmot
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.registry import register

SCHEDULES = ("polynomial", "constant")


@register("gradual")
class Gradual(FixedMask):
    """Closes the smallest weights of each layer as a schedule of tensorflow-model-optimization says.

    Every layer has the same sparsity. Which weights go is decided anew at each update, by that package's own
    `Pruning`, for single weights or for the mean sizes of blocks.

    Args:
        sparsity: share of the weights of each layer to remove in the end.
        total_steps: optimizer steps of the training.
        block_shape: (inputs, outputs) of a block.
        schedule: `"polynomial"`, which rises from 0, steeply at first (`PolynomialDecay`), or `"constant"`,
            at the sparsity from the start (`ConstantSparsity`).
        begin, end: of the updates, as shares of `total_steps`.
        frequency: steps between two updates; None is 1000, or a hundredth of the rise in short trainings.
        power: of the polynomial.

    Raises:
        InputError: an argument out of range; tensorflow-model-optimization is not installed.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", https://arxiv.org/abs/1710.01878; the baseline of the SMP
        paper, which starts after the first epoch and ends at half of the training.

    Example:
        >>> Gradual(sparsity=0.9, total_steps=1000).last_step
        498
    """

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape=(1, 1),
        schedule: str = "polynomial",
        begin: float = 0.05,
        end: float = 0.5,
        frequency: int | None = None,
        power: int = 3,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if total_steps < 1:
            raise InputError(
                f"total_steps must be at least 1, the optimizer steps of the training: got {total_steps!r}"
            )
        if schedule not in SCHEDULES:
            raise InputError(f"schedule is {schedule!r}: choose one of {', '.join(SCHEDULES)}")
        if not 0.0 <= begin < end <= 1.0:
            raise InputError(
                "begin and end are shares of total_steps with 0 <= begin < end <= 1: "
                f"got {begin!r} and {end!r}"
            )
        if frequency is not None and frequency < 1:
            raise InputError(f"frequency must be at least 1 step: got {frequency!r}")
        self.total_steps, self.schedule, self.begin, self.end = int(total_steps), schedule, begin, end
        self.power = power
        self.first_step = math.floor(begin * self.total_steps)
        rise = max(1, math.floor(end * self.total_steps) - 1 - self.first_step)
        self.frequency = frequency or max(1, min(1000, rise // 100))
        # The last update is the one at the sparsity asked for.
        self.last_step = self.first_step + max(1, rise // self.frequency) * self.frequency
        if self.last_step >= self.total_steps:
            self.frequency, self.last_step = 1, max(self.first_step, self.total_steps - 1)

    def attach(self, model: keras.Model) -> None:
        schedules, implementation = tfmot.load()
        super().attach(model)
        span = {"begin_step": self.first_step, "end_step": self.last_step, "frequency": self.frequency}
        # Where there is one update only, nothing can rise.
        if self.schedule == "polynomial" and self.last_step > self.first_step:
            schedule = schedules.PolynomialDecay(0.0, self.sparsity, power=self.power, **span)
        else:
            schedule = schedules.ConstantSparsity(self.sparsity, **span)
        # What it is given in place of weights are the sizes of blocks: of single weights their own.
        self._variables = []
        for gate in self.gates:
            shape = tuple(gate.logits.shape)
            sizes, masks = (self.add_state(name, shape) for name in ("sizes", "mask"))
            self._variables.append((sizes.value, masks.value, self.add_state("threshold", ()).value))
        self._update = implementation.Pruning(
            lambda: tf.convert_to_tensor(self.steps_done), self._variables, schedule, (1, 1), "AVG"
        )
        self._due = lambda step: schedule(step)[0]

    def step(self, gate_gradients):
        due = self._due(tf.convert_to_tensor(self.steps_done))
        tf.cond(due, self._rank, lambda: tf.no_op())
        super().step(gate_gradients)

    def _rank(self) -> tf.Operation:
        for (sizes, _, _), magnitudes in zip(self._variables, self.magnitudes(), strict=True):
            sizes.assign(magnitudes)
        self._update.conditional_mask_update()
        self.close([tf.convert_to_tensor(mask) > 0.5 for _, mask, _ in self._variables])
        return tf.no_op()

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "schedule": self.schedule,
            "begin": self.begin,
            "end": self.end,
            "frequency": self.frequency,
            "power": self.power,
        }
