"""Lottery tickets: the weights that became largest in training, retrained from their initial values."""

import functools
import math
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.gates import weights_except_gates
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.gradual import Gradual, closed_in_layers
from tfsparsecap.pruning.optimizer import once_for_all, run_if
from tfsparsecap.pruning.registry import register

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
        variables = _state(self.optimizer)
        first = self._first_values(variables, weights)
        scalars = [v for v in variables if _is_scalar(v) and id(v) not in first and not _counts(v)]
        if len(scalars) == len(self._initial_scalars):
            first.update(zip(map(id, scalars), self._initial_scalars, strict=True))
        count = next(filter(_counts, variables))
        self.steps_before.assign_add(tf.cast(tf.convert_to_tensor(count), tf.int64))
        for variable in variables:
            if id(variable) in first or _counts(variable) or not _is_scalar(variable):
                value = tf.cast(first.get(id(variable), 0.0), variable.dtype)
                variable.assign(tf.broadcast_to(value, variable.shape))

    def _first_values(
        self, variables: list[keras.Variable], weights: list[tuple[keras.Variable, tf.Tensor]]
    ) -> dict[int, float | tf.Tensor]:
        """Returns id of a variable that the optimizer keeps for a weight -> its value before any step."""
        kept_for = {
            id(slot): id(weight)
            for slots in keras_internals.optimizer_slots(self.optimizer).values()
            for weight, slot in zip(keras_internals.optimizer_variables(self.optimizer), slots, strict=True)
        }
        named = {
            f"{weight.path.replace('/', '_')}_{kind}": (value, constant)
            for weight, value in weights
            for kind, constant in self._initial.items()
        }
        values = {id(weight): value for weight, value in weights}
        first = {}
        for variable in variables:
            if variable.name in named:
                value, constant = named[variable.name]
                # Weights of nested models may have the same path.
                value = values.get(kept_for.get(id(variable), 0), value)
                first[id(variable)] = value if constant is None else constant
        return first


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


@register("lottery")
class LotteryTicket(FixedMask):
    """Trains, prunes by magnitude, rewinds the remaining weights to their initial values, and retrains them.

    A training of `total_steps` consists of `rounds + 1` phases of equal length. At the end of each phase but
    the last, the smallest weights are removed, to a sparsity of `1 - (1 - sparsity) ** (round / rounds)`, and
    all weights are rewound to their initial values, `m * theta_0` for the mask `m`. This includes biases and
    the moving averages of batch normalisation, but not frozen layers.

    Each round resets the optimizer: its moments, step count and bias correction start again, and moving
    averages of the weights (`use_ema`) become the weights. Its learning rate does not change, and a learning
    rate schedule continues over all rounds. `model.optimizer.iterations` counts
    the steps of all rounds.

    With `rounds=0`, the model given to `prune` must already be trained: the ticket is drawn at once, the
    weights become `initial_weights`, and the whole training trains the ticket. In a configuration,
    `training.start_from` names a run that was trained with `training.keep_initial=true`.

    Args:
        sparsity: final share of the gated weights to remove.
        total_steps: optimizer steps of all rounds together, at least `rounds + 1`. Not needed for `rounds=0`.
        block_shape: (inputs, outputs) of a block; blocks are ranked by the mean magnitude of their weights.
        allocation: which weights are kept: the largest, compared as in `Magnitude` (`"blind"`, `"uniform"`,
            `"distribution"`), or those kept by gradual pruning in the first phase (`"gradual"`; with
            `rounds=0`, those that are not zero).
        rounds: 1 is one-shot, more is iterative, and 0 draws the ticket from a trained model.
        rewind_to: when the values to rewind to are recorded, as a share of the first phase: 0 is the
            initialisation, slightly more is late rewinding.
        initial_weights: for `rounds=0`, the result of `model.get_weights()` before training.

    Raises:
        InputError: an argument out of range; `rounds=0` without initial weights, or with those of another
            model; a gradual ticket from a model with another sparsity; blocks too coarse for the sparsity.

    Reference:
        Frankle and Carbin, "The Lottery Ticket Hypothesis", section 1 (steps 1 to 4, and iterative pruning,
        which removes the same share of the remaining weights in each round),
        https://arxiv.org/abs/1803.03635; late rewinding: Frankle et al., section 3,
        https://arxiv.org/abs/1903.01611. They have no numbered equations.

    Examples:
        >>> LotteryTicket(sparsity=0.9, total_steps=900, rounds=2).pruning_steps
        [300, 600]
    """

    allocations = (*FixedMask.allocations, "gradual")

    def __init__(
        self,
        sparsity: float,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
        allocation: str = "blind",
        rounds: int = 1,
        rewind_to: float = 0.0,
        initial_weights: Sequence[np.ndarray] | None = None,
    ) -> None:
        super().__init__(sparsity, total_steps, block_shape=block_shape, allocation=allocation)
        self.rounds = check_whole("rounds", rounds, at_least=0)
        self.rewind_to = check_number("rewind_to", rewind_to, at_least=0, below=1)
        if allocation == "gradual" and rounds > 1:
            raise InputError(f"a gradual ticket is drawn in one round: got rounds={rounds!r}")
        if rounds and (total_steps is None or total_steps < rounds + 1):
            raise InputError(
                f"total_steps is {total_steps!r}: give the steps of the whole training, epochs *"
                f" steps_per_epoch, at least {rounds + 1} for {rounds} round{'s' * (rounds > 1)} and the"
                " final phase"
            )
        if not rounds and rewind_to:
            raise InputError("rewind_to is not used with rounds=0: give the initial_weights to rewind to")
        if rounds and initial_weights is not None:
            raise InputError("initial_weights are for rounds=0, which draws the ticket from a trained model")
        self.initial_weights = initial_weights
        span = (total_steps or 0) / (rounds + 1)
        #: Numbers of steps after which weights are removed.
        self.pruning_steps = [math.floor(span * number) for number in range(1, rounds + 1)]
        self.rewind_step = math.floor(span * rewind_to)
        #: Whether a ticket with `rounds=0` was drawn, or loaded from a file.
        self.drawn = False

    def attach(self, model: keras.Model) -> None:
        initial = self._checked_initial(model)
        super().attach(model)
        if self.rounds == 0:
            if initial:
                self._draw_at_once(initial)
            return
        self._gradual: Gradual | None = None
        if self.allocation == "gradual":
            self._gradual = Gradual(self.sparsity, self.pruning_steps[0], block_shape=self.block_shape)
            self._gradual.state_prefix = "gradual_"
            self._gradual.attach(model)
            self.variables.extend(self._gradual.variables)
        self._trained = _trained(model)
        self._start = [
            self.add_state("start", tuple(variable.shape), variable.dtype) for variable in self._trained
        ]
        self._record()
        self._steps_before = self.add_state("steps_before", (), "int64")
        self._optimizer: OptimizerReset | None = None

    def detach(self) -> None:
        super().detach()
        self.drawn = False

    def _check_reachable(self) -> None:
        # For a gradual ticket with `rounds=0`, the zeros are counted when the ticket is drawn.
        if self.rounds or self.allocation != "gradual":
            super()._check_reachable()

    def most_closed(self) -> int:
        if self.allocation == "gradual":
            return closed_in_layers(self.gates, self.sparsity)
        return super().most_closed()

    @property
    def complete_after(self) -> int | None:
        return self.pruning_steps[-1] if self.rounds else 0

    def wrap(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        wrapped = super().wrap(optimizer)
        if self.rounds and not isinstance(wrapped, keras.optimizers.LossScaleOptimizer):
            self._optimizer = OptimizerReset(wrapped.inner_optimizer, self._steps_before)
        return wrapped

    def iterations(self, optimizer: keras.optimizers.Optimizer) -> keras.Variable | tf.Tensor:
        if not self.rounds:
            return optimizer.iterations
        # With gradient accumulation, one optimizer step is several training steps.
        before = tf.convert_to_tensor(self._steps_before) // (optimizer.gradient_accumulation_steps or 1)
        return tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.int64) + before

    def _checked_initial(self, model: keras.Model) -> list[tuple[keras.Variable, np.ndarray]]:
        """Returns the model's variables except those of gates, each with the value to rewind to."""
        if self.rounds or self.drawn:
            return []
        if self.initial_weights is None:
            raise InputError(
                "a lottery ticket with rounds=0 needs initial_weights: give the result of model.get_weights()"
                " before training, or rounds=1 to train the model first"
            )
        variables = weights_except_gates(model)
        shapes = [tuple(np.shape(values)) for values in self.initial_weights]
        if shapes != [tuple(variable.shape) for variable in variables]:
            raise InputError(
                f"initial_weights ({len(shapes)} arrays) do not have the shapes of the {len(variables)}"
                f" weights of {model.name}: give the result of its get_weights() before training"
            )
        return list(zip(variables, self.initial_weights, strict=True))

    def _draw_at_once(self, initial: list[tuple[keras.Variable, np.ndarray]]) -> None:
        if self.allocation == "gradual":
            self.close([size > 0.0 for size in self.magnitudes()])
            reached = float(self.current_sparsity())
            if abs(reached - self.sparsity) > 0.005:
                raise InputError(
                    f"{reached:.1%} of the weights are zero, not {self.sparsity:.1%}: for a gradual ticket,"
                    ' give a model that was pruned to that sparsity, or use allocation="uniform"'
                )
        else:
            self.close_smallest(self.sparsity)
        for variable, values in initial:
            variable.assign(values)
        self.drawn = True
        self.initial_weights = None

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        if self.rounds == 0:
            super().step(gate_gradients)
        else:
            once_for_all(self._step)

    def _step(self) -> None:
        if self._gradual is not None:
            gradual = self._gradual
            first = tf.convert_to_tensor(self.steps_done) < self.pruning_steps[0]
            run_if(first, lambda: gradual.step([]))
        self.steps_done.assign_add(1)
        done = tf.convert_to_tensor(self.steps_done)
        if self.rewind_step:
            run_if(tf.equal(done, self.rewind_step), self._record)
        for number, after in enumerate(self.pruning_steps, 1):
            sparsity = 1.0 - (1.0 - self.sparsity) ** (number / self.rounds)
            run_if(tf.equal(done, after), functools.partial(self._draw, sparsity))

    def _record(self) -> None:
        """Records the values to rewind to."""
        for start, variable in zip(self._start, self._trained, strict=True):
            start.assign(variable)

    def _draw(self, sparsity: float) -> None:
        """Draws a ticket: prunes, unless gradual pruning has, and rewinds weights and optimizer."""
        if self._gradual is None:
            self.close_smallest(sparsity)
        for start, variable in zip(self._start, self._trained, strict=True):
            variable.assign(start)
        if self._optimizer is not None:
            starts = map(tf.convert_to_tensor, self._start)
            self._optimizer.reset(list(zip(self._trained, starts, strict=True)))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["initial_weights"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        method = super().from_config(config)
        # Weights and gates come from the file.
        method.drawn = method.rounds == 0
        return method


def _trained(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights that optimizer steps or forward passes change, except the logits of gates."""
    frozen = {
        id(weight)
        for layer in keras_internals.nested_layers(model)
        if not layer.trainable
        for weight in layer.weights
    }
    return [weight for weight in weights_except_gates(model) if id(weight) not in frozen]
