"""Resets an optimizer during training, while its learning rate schedule continues."""

from typing import Any

import keras
import tensorflow as tf

from tfsparsecap import keras_internals


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

    def get_config(self) -> dict:
        return {"schedule": keras.saving.serialize_keras_object(self.schedule)}

    @classmethod
    def from_config(cls, config: dict) -> Any:
        """Returns the wrapped schedule."""
        return keras.saving.deserialize_keras_object(config["schedule"])


class OptimizerReset:
    """Resets an optimizer to its state before its first step, except learning rate and schedule.

    Later updates are then those of a new optimizer, including bias correction. Moving averages of the weights
    become the weights.

    Args:
        optimizer: a built Keras optimizer before its first step. Its learning rate schedule, if any,
            continues after a reset.
        steps_before: int64 scalar variable, to which each reset adds the optimizer's steps.

    Examples:
        >>> weight = keras.Variable(1.0)
        >>> adam = keras.optimizers.Adam(0.1)
        >>> adam.build([weight])
        >>> resetting = OptimizerReset(adam, keras.Variable(0, dtype="int64"))
        >>> adam.apply([keras.ops.ones(())], [weight])
        >>> resetting.reset([(weight, keras.ops.ones(()))])
        >>> [float(variable) for variable in adam.variables if "momentum" in variable.name]
        [0.0]
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, steps_before: keras.Variable) -> None:
        self.steps_before = steps_before
        # The learning rate is a setting, not state.
        self._state = [variable for variable in optimizer.variables if variable.name != "learning_rate"]
        with tf.init_scope():
            # Keras's optimizers fill each variable with a constant, such as 0.1 in Adagrad.
            self._initial = [float(tf.reshape(tf.convert_to_tensor(v), [-1])[0]) for v in self._state]
        schedule = keras_internals.learning_rate_source(optimizer)
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            schedule = schedule.schedule if isinstance(schedule, ContinuedSchedule) else schedule
            optimizer.learning_rate = ContinuedSchedule(schedule, steps_before)

    def reset(self, weights: list[tuple[keras.Variable, tf.Tensor]]) -> None:
        """Resets the optimizer. Also works in compiled steps, but outside of replicas.

        Args:
            weights: the variables that the optimizer updates, each with its current value.
        """
        count = next(variable for variable in self._state if variable.name == "iteration")
        self.steps_before.assign_add(tf.cast(tf.convert_to_tensor(count), tf.int64))
        # An average starts at 0, but the first step sets it to the weight.
        averages = {f"{weight.path.replace('/', '_')}_average": value for weight, value in weights}
        for variable, initial in zip(self._state, self._initial, strict=True):
            value = tf.cast(averages.get(variable.name, initial), variable.dtype)
            variable.assign(tf.broadcast_to(value, variable.shape))
