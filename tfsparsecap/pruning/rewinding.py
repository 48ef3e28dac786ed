"""Starting an optimizer anew in the middle of a training, while the schedule of its rate goes on."""

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap import keras_internals

#: A value that no state of an optimizer starts with by itself.
_PROBED = 0.40625


@keras.saving.register_keras_serializable("tfsparsecap")
class GoesOn(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that does not begin again when its optimizer's count of steps does.

    Saved as the schedule that it holds.

    Args:
        schedule: any Keras schedule.
        steps_before: int64 scalar variable, the steps that the optimizer took before its count was last set
            to 0.

    Example:
        >>> halving = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
        >>> float(GoesOn(halving, keras.Variable(10, dtype="int64"))(10))
        0.25
    """

    def __init__(self, schedule, steps_before: keras.Variable):
        self.schedule, self.steps_before = schedule, steps_before

    def __call__(self, step):
        return self.schedule(keras.ops.cast(step, "int64") + tf.convert_to_tensor(self.steps_before))

    def get_config(self) -> dict:
        return {"schedule": keras.saving.serialize_keras_object(self.schedule)}

    @classmethod
    def from_config(cls, config: dict):
        """The schedule itself."""
        return keras.saving.deserialize_keras_object(config["schedule"])


class FreshStart:
    """Sets an optimizer back to what it was before its first step, learning rate and schedule left out.

    Moments and counts become those of an optimizer that has just been made, so that the updates that follow
    are a fresh one's, bias correction and all. Moving averages of the weights become the weights.

    Args:
        optimizer: any Keras optimizer; the schedule of its learning rate, if it has one, is made to go on.
        steps_before: int64 scalar variable, which adds up the steps before each start.

    Example:
        >>> weight = keras.Variable(1.0)
        >>> adam = keras.optimizers.Adam(0.1)
        >>> start = FreshStart(adam, keras.Variable(0, dtype="int64"))
        >>> adam.apply([keras.ops.ones(())], [weight])
        >>> start.again([(weight, keras.ops.ones(()))])
        >>> [float(variable) for variable in adam.variables if "momentum" in variable.name]
        [0.0]
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, steps_before: keras.Variable):
        self.optimizer, self.steps_before = optimizer, steps_before
        self._first, self._first_scalars = _first_values(optimizer)
        schedule = keras_internals.learning_rate_source(optimizer)
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            schedule = schedule.schedule if isinstance(schedule, GoesOn) else schedule
            optimizer.learning_rate = GoesOn(schedule, steps_before)

    def again(self, weights: list[tuple[keras.Variable, tf.Tensor]]) -> None:
        """Starts anew; in a compiled step, too, but outside of replicas.

        Args:
            weights: the variables that the optimizer moves, each with the value that it has now.
        """
        first = {
            f"{weight.path.replace('/', '_')}_{kind}": value if constant is None else constant
            for weight, value in weights
            for kind, constant in self._first.items()
        }
        variables = _state(self.optimizer)
        scalars = [one for one in variables if _is_scalar(one) and one.name not in first and not _counts(one)]
        known = len(scalars) == len(self._first_scalars)
        if known:
            first.update(zip((one.name for one in scalars), self._first_scalars, strict=True))
        self.steps_before.assign_add(tf.cast(_count_of(self.optimizer), tf.int64))
        for variable in variables:
            if variable.name in first or _counts(variable) or not _is_scalar(variable):
                value = tf.cast(first.get(variable.name, 0.0), variable.dtype)
                variable.assign(tf.broadcast_to(value, variable.shape))


def _state(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """What the optimizer remembers. Its rate is not remembered but set, by callbacks among others."""
    return [variable for variable in optimizer.variables if variable.name != "learning_rate"]


def _is_scalar(variable: keras.Variable) -> bool:
    return len(variable.shape) == 0


def _counts(variable: keras.Variable) -> bool:
    return variable.name == "iteration"


def _count_of(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    return tf.convert_to_tensor(next(filter(_counts, optimizer.variables)))


def _first_values(optimizer: keras.optimizers.Optimizer) -> tuple[dict[str, float | None], list[float]]:
    """What an optimizer's variables are before its first step.

    Found by building another one of the same settings on a single weight.

    Returns:
        Kind of variable ("momentum") -> its value, None where it is the weight's own; and the values of the
        scalars that belong to no weight, in their order.
    """
    probe = keras.Variable(np.full((1, 1), _PROBED, "float32"), name="probe")
    try:
        # The rate plays no part, and a schedule of the user's own may have no configuration.
        twin = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": 0.1})
        twin.build([probe])
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return {"average": None}, []  # one that cannot be made from its settings: as of most, the rest is 0
    kinds, scalars = {}, []
    for variable in _state(twin):
        value = float(tf.reshape(tf.convert_to_tensor(variable), [-1])[0])
        if variable.name.startswith("probe_"):
            kinds[variable.name.removeprefix("probe_")] = None if value == _PROBED else value
        elif _is_scalar(variable) and not _counts(variable):
            scalars.append(value)
    # An average over nothing is 0, but the first step would make it the weight.
    return {**kinds, "average": None}, scalars
