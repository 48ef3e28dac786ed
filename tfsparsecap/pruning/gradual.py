"""Gradual magnitude pruning: tensorflow-model-optimization's schedules and mask update, on Keras 3."""

import math

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.registry import register
from tfsparsecap.pruning.replicas import once_for_all

SCHEDULES = ("polynomial", "constant")
#: Where updates begin when nobody says how long an epoch is, as a share of the training.
_BEGIN = 0.05


@register("gradual")
class Gradual(FixedMask):
    """Closes the smallest weights of each layer as a schedule of tensorflow-model-optimization says.

    Every layer has the same sparsity. At step `n`, from the first update at `n_0` to the last one at `n_1`,
    it is (Zhu and Gupta, equation 1, which has `power` 3)

        s(n) = sparsity * (1 - (1 - (n - n_0) / (n_1 - n_0)) ** power)

    Which weights go is decided anew at each update, by that package's own `Pruning`, for single weights or
    for the mean sizes of blocks.

    Args:
        sparsity: share of the weights of each layer to remove in the end.
        total_steps: optimizer steps of the training.
        block_shape: (inputs, outputs) of a block.
        schedule: `"polynomial"`, which rises from 0, steeply at first (`PolynomialDecay`), or `"constant"`,
            at the sparsity from the start (`ConstantSparsity`).
        begin: of the updates, as a share of `total_steps`. None is the end of the first epoch where
            `steps_per_epoch` is given and that is before `end`, as in the SMP paper; otherwise 0.05.
        end: of the updates, as a share of `total_steps`: the last one is made there or up to `frequency`
            steps before.
        frequency: steps between two updates. None is a hundredth of the steps from `begin` to `end`, from 1
            to 1000: 1000, as in the SMP paper, where these are at least 100 000.
        power: of the polynomial.
        steps_per_epoch: optimizer steps of an epoch, for `begin`. A training of this package gives it.

    Raises:
        InputError: an argument out of range; a `frequency` with which the sparsity could not rise between
            `begin` and `end`; tensorflow-model-optimization is not installed; blocks too coarse for the
            sparsity.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", equation 1, https://arxiv.org/abs/1710.01878; the baseline
        of the SMP paper, which starts after the first epoch, ends at half of the training and updates every
        1000 steps.

    Example:
        >>> Gradual(sparsity=0.9, total_steps=1000).last_step
        498
        >>> Gradual(sparsity=0.9, total_steps=1000, steps_per_epoch=100).first_step
        100
    """

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape=(1, 1),
        schedule: str = "polynomial",
        begin: float | None = None,
        end: float = 0.5,
        frequency: int | None = None,
        power: int = 3,
        steps_per_epoch: int | None = None,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if total_steps < 1:
            raise InputError(
                f"total_steps must be at least 1, the optimizer steps of the training: got {total_steps!r}"
            )
        if schedule not in SCHEDULES:
            raise InputError(f"schedule is {schedule!r}: choose one of {', '.join(SCHEDULES)}")
        if not 0.0 <= (0.0 if begin is None else begin) < end <= 1.0:
            raise InputError(
                "begin and end are shares of total_steps with 0 <= begin < end <= 1: "
                f"got {begin!r} and {end!r}"
            )
        for name, count in (("frequency", frequency), ("steps_per_epoch", steps_per_epoch)):
            if count is not None and count < 1:
                raise InputError(f"{name} must be at least 1 step: got {count!r}")
        self.total_steps, self.schedule, self.begin, self.end = int(total_steps), schedule, begin, end
        self.power, self.asked_frequency, self.steps_per_epoch = power, frequency, steps_per_epoch
        self.first_step = self._first_step()
        rise = max(1, math.floor(end * self.total_steps) - 1 - self.first_step)
        self.frequency = frequency or max(1, min(1000, rise // 100))
        if self.frequency > rise and schedule == "polynomial":
            raise InputError(
                f"frequency is {frequency}, and there are {rise} steps in which the sparsity can rise, from"
                f" step {self.first_step} to {self.first_step + rise} of {self.total_steps}: give {rise} at"
                " most, or none"
            )
        # The last update is the one at the sparsity asked for; the shortest trainings have no other one.
        self.last_step = self.first_step + rise // self.frequency * self.frequency
        if self.last_step >= self.total_steps:
            self.first_step = self.last_step = self.total_steps - 1

    def _first_step(self) -> int:
        if self.begin is not None:
            return math.floor(self.begin * self.total_steps)
        if self.steps_per_epoch is not None and self.steps_per_epoch < math.floor(
            self.end * self.total_steps
        ):
            return self.steps_per_epoch
        return math.floor(min(_BEGIN, self.end / 2.0) * self.total_steps)

    def attach(self, model: keras.Model) -> None:
        schedules, implementation = keras_internals.model_optimization()
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

    def most_closed(self) -> int:
        return closed_in_layers(self.gates, self.sparsity)

    def step(self, gate_gradients):
        # The package's update waits for all replicas by itself, which it cannot within a branch of one.
        once_for_all(self._rank_when_due)
        super().step(gate_gradients)

    def _rank_when_due(self) -> None:
        due = self._due(tf.convert_to_tensor(self.steps_done))
        tf.cond(due, self._rank, lambda: tf.no_op())

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
            "frequency": self.asked_frequency,
            "power": self.power,
            "steps_per_epoch": self.steps_per_epoch,
        }


def closed_in_layers(gates: list[Gate], sparsity: float) -> int:
    """How many weights the package's mask update closes in all, given a sparsity for each layer."""
    share, closed = np.float32(1.0) - np.float32(sparsity), 0
    for gate in gates:
        blocks = gate.size // gate.block_size
        # In single precision, to even halves, and one block of each layer stays: as the package has it.
        kept = max(int(np.round(np.float32(blocks) * share)), 1)
        closed += (blocks - kept) * gate.block_size
    return closed
