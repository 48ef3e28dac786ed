"""`sc.Schedule`: when a pruning method closes gates during the training."""

import dataclasses
import math
from numbers import Real
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError, check_number, check_whole

#: Names of a schedule's options in configurations and in `sc.prune(model, "NAME", ...)`.
OPTIONS = ("begin", "end", "frequency", "power", "constant")


@keras.saving.register_keras_serializable("tfsparsecap")
@dataclasses.dataclass(frozen=True)
class Schedule:
    """When the sparsity rises, how often it is updated, and how steeply it rises.

    Between the first update, at step `n_0`, and the last one, at `n_1`, the sparsity is

        s(n) = sparsity * (1 - (1 - (n - n_0) / (n_1 - n_0)) ** power)

    Each method has its own defaults for options that are None, and documents which options it uses.

    Args:
        begin: start of the updates, as a share of the training, 0 to 1. A whole number above 1 is an
            optimizer step, which the method turns into a share of its `total_steps`.
        end: end of the updates, as `begin`. The last update is there, or up to `frequency` steps before.
        frequency: optimizer steps between two updates. None uses a hundredth of the steps from `begin` to
            `end`, from 1 to 1000.
        power: exponent of the polynomial, above 0.
        constant: True uses the full sparsity from the first update; later updates only change which gates are
            closed.
        initial_sparsity: 0, as in tensorflow-model-optimization: the sparsity always rises from 0.

    Raises:
        InputError: an argument out of range.

    Reference:
        Zhu and Gupta, "To prune, or not to prune", equation 1 (with `power` 3),
        https://arxiv.org/abs/1710.01878.

    Examples:
        >>> import tfsparsecap as sc
        >>> method = sc.Supermask(0.9, total_steps=1000, schedule=sc.Schedule(begin=0.2, end=0.6))
        >>> method.updates.first, method.updates.last, method.updates.frequency
        (200, 596, 4)
    """

    begin: float | None = None
    end: float | None = None
    frequency: int | None = None
    power: float = 3.0
    constant: bool = False
    initial_sparsity: dataclasses.InitVar[float] = 0.0

    def __post_init__(self, initial_sparsity: float) -> None:
        if initial_sparsity != 0:
            raise InputError(
                f"initial_sparsity is {initial_sparsity!r}: the sparsity always rises from 0; leave it out"
            )
        for name in ("begin", "end"):
            value = getattr(self, name)
            if value is not None and not _is_step(value):
                check_number(name, value, at_least=0, at_most=1)
        begin, end = self.begin, self.end
        if begin is not None and end is not None and _is_step(begin) == _is_step(end) and not begin < end:
            raise _not_before(begin, end)
        if self.frequency is not None:
            check_whole("frequency", self.frequency, at_least=1)
        check_number("power", self.power, above=0)

    def in_shares(self, total_steps: int | None) -> "Schedule":
        """Returns the schedule with steps as shares of the training.

        Raises:
            InputError: `begin` or `end` is a step, and `total_steps` is not known, or is below it.

        Examples:
            >>> Schedule(begin=100, end=0.5).in_shares(1000).begin
            0.1
        """
        shares = {}
        for name in ("begin", "end"):
            step = getattr(self, name)
            if step is None or not _is_step(step):
                continue
            if total_steps is None or step > total_steps:
                problem = "needs total_steps," if total_steps is None else f"is above {total_steps},"
                raise InputError(
                    f"{name} is step {step}, which {problem} the optimizer steps of the training: give a"
                    " share of them, 0 to 1, or correct the steps"
                )
            shares[name] = step / total_steps
        return dataclasses.replace(self, **shares) if shares else self

    def updates(self, total_steps: int, *, begin: float, end: float) -> "Updates":
        """Returns the steps at which a training of `total_steps` has updates.

        Args:
            total_steps: optimizer steps of the training.
            begin: default of the method; half of `end` if `end` is not later.
            end: default of the method.

        Raises:
            InputError: `begin` is not before `end`, or the sparsity cannot rise between them with this
                `frequency`.
        """
        total_steps = check_whole("total_steps", total_steps, at_least=1)
        end = end if self.end is None else self.end
        default = begin if begin < end else end / 2.0
        begin = default if self.begin is None else self.begin
        if not begin < end:
            raise _not_before(begin, end)
        first = step_at(begin, total_steps)
        rise = max(1, step_at(end, total_steps) - 1 - first)
        frequency = self.frequency or max(1, min(1000, round(rise / 100)))
        if frequency > rise and not self.constant:
            raise InputError(
                f"frequency is {frequency}, but the sparsity rises during only {rise} steps, from step"
                f" {first} to {first + rise} of {total_steps}: give at most {rise}, or none"
            )
        last = first + rise // frequency * frequency
        if last >= total_steps:  # the shortest trainings have a single update
            first = last = total_steps - 1
        return Updates(first, last, frequency, self.power, self.constant)

    def get_config(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Schedule":
        return cls(**config)


@dataclasses.dataclass(frozen=True)
class Updates:
    """A schedule in optimizer steps, counted from 0."""

    first: int
    last: int
    frequency: int
    power: float
    constant: bool

    def due(self, step: tf.Tensor) -> tf.Tensor:
        """Whether there is an update at `step`: bool scalar."""
        return (step >= self.first) & (step <= self.last) & ((step - self.first) % self.frequency == 0)

    def share(self, step: tf.Tensor) -> tf.Tensor:
        """The scheduled share of the final sparsity at `step`: float32 scalar in [0, 1]."""
        if self.constant or self.first == self.last:
            return tf.constant(1.0)
        progress = tf.cast(step - self.first, tf.float32) / (self.last - self.first)
        return 1.0 - (1.0 - tf.clip_by_value(progress, 0.0, 1.0)) ** self.power


def _not_before(begin: object, end: object) -> InputError:
    return InputError(
        f"begin is {begin!r} and end is {end!r}: begin must be below end; up to 1 they are shares of the"
        " training (0 is its first step, 1 its end), above it steps"
    )


def _is_step(value: object) -> bool:
    """Whether a begin or end is a step, not a share: a whole number above 1."""
    return isinstance(value, Real) and float(value) > 1 and float(value).is_integer()


def step_at(share: float, total_steps: int) -> int:
    """Returns the step at a share of the training, rounded down (with a tolerance for rounding errors).

    Examples:
        >>> step_at(0.29, 100), step_at(0.5, 5)
        (29, 2)
    """
    return math.floor(share * total_steps + 1e-6)
