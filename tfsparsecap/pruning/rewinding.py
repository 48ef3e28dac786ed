"""Resets an optimizer during training, while its learning rate schedule continues."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals

#: A weight that differs from the initial values of all optimizer variables.
_PROBE = 0.40625


@keras.saving.register_keras_serializable("tfsparsecap")
class ContinuedSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate schedule that continues when its optimizer's step count is reset.

    It is saved as the wrapped schedule.

    Args:
        schedule: any Keras schedule.
        steps_before: int64 scalar variable, the optimizer's steps before the last reset of its count.

    Examples:
        >>> halving = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
        >>> float(ContinuedSchedule(halving, keras.Variable(10, dtype="int64"))(10))
        0.25
    """

    def __init__(
        self, schedule: keras.optimizers.schedules.LearningRateSchedule, steps_before: keras.Variable
    ) -> None:
        self.schedule, self.steps_before = schedule, steps_before

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        return self.schedule(keras.ops.cast(step, "int64") + tf.convert_to_tensor(self.steps_before))

    def get_config(self) -> dict[str, Any]:
        return {"schedule": keras.saving.serialize_keras_object(self.schedule)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Returns the wrapped schedule."""
        return keras.saving.deserialize_keras_object(config["schedule"])


class OptimizerReset:
    """Resets an optimizer to its state before its first step, except learning rate and schedule.

    Later updates are then those of a new optimizer, including bias correction. Moving averages of the weights
    become the weights.

    Args:
        optimizer: any Keras optimizer; its learning rate schedule, if any, continues after a reset.
        steps_before: int64 scalar variable, to which each reset adds the optimizer's steps.

    Examples:
        >>> weight = keras.Variable(1.0)
        >>> adam = keras.optimizers.Adam(0.1)
        >>> resetting = OptimizerReset(adam, keras.Variable(0, dtype="int64"))
        >>> adam.apply([keras.ops.ones(())], [weight])
        >>> resetting.reset([(weight, keras.ops.ones(()))])
        >>> [float(variable) for variable in adam.variables if "momentum" in variable.name]
        [0.0]
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, steps_before: keras.Variable) -> None:
        self.optimizer, self.steps_before = optimizer, steps_before
        self._initial, self._initial_scalars = _initial_values(optimizer)
        schedule = keras_internals.learning_rate_source(optimizer)
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            schedule = schedule.schedule if isinstance(schedule, ContinuedSchedule) else schedule
            optimizer.learning_rate = ContinuedSchedule(schedule, steps_before)

    def reset(self, weights: list[tuple[keras.Variable, tf.Tensor]]) -> None:
        """Resets the optimizer. Also works in compiled steps, but outside of replicas.

        Args:
            weights: the variables that the optimizer updates, each with its current value.
        """
        first = {
            f"{weight.path.replace('/', '_')}_{kind}": value if constant is None else constant
            for weight, value in weights
            for kind, constant in self._initial.items()
        }
        variables = _state(self.optimizer)
        scalars = [v for v in variables if _is_scalar(v) and v.name not in first and not _counts(v)]
        if len(scalars) == len(self._initial_scalars):
            first.update(zip((scalar.name for scalar in scalars), self._initial_scalars, strict=True))
        count = next(filter(_counts, variables))
        self.steps_before.assign_add(tf.cast(tf.convert_to_tensor(count), tf.int64))
        for variable in variables:
            if variable.name in first or _counts(variable) or not _is_scalar(variable):
                value = tf.cast(first.get(variable.name, 0.0), variable.dtype)
                variable.assign(tf.broadcast_to(value, variable.shape))


def _state(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns all variables except the learning rate, which is a setting, not state."""
    return [variable for variable in optimizer.variables if variable.name != "learning_rate"]


def _is_scalar(variable: keras.Variable) -> bool:
    return len(variable.shape) == 0


def _counts(variable: keras.Variable) -> bool:
    return bool(variable.name == "iteration")


def _initial_values(optimizer: keras.optimizers.Optimizer) -> tuple[dict[str, float | None], list[float]]:
    """Returns the values of an optimizer's variables before its first step.

    Builds another optimizer with the same settings for a single weight and reads its variables.

    Returns:
        Kind of variable ("momentum") -> its value, or None for the value of the weight; and the values of
        scalars that do not belong to a weight, in order.
    """
    probe = keras.Variable(np.full((1, 1), _PROBE, "float32"), name="probe")
    try:
        # The learning rate does not matter, and a custom schedule may have no configuration.
        twin = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": 0.1})
        twin.build([probe])
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return {"average": None}, []  # not configurable: assume 0, as in most optimizers
    kinds, scalars = {}, []
    for variable in _state(twin):
        value = float(tf.reshape(tf.convert_to_tensor(variable), [-1])[0])
        if variable.name.startswith("probe_"):
            kinds[variable.name.removeprefix("probe_")] = None if value == _PROBE else value
        elif _is_scalar(variable) and not _counts(variable):
            scalars.append(value)
    # An average starts at 0, but the first step sets it to the weight.
    return {**kinds, "average": None}, scalars
