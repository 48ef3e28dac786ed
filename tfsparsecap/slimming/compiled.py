"""Compiles a slim model like the whole one, with the optimizer's state of the channels that stay."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, first_line
from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.rebuild import Pair, cut


def compile_like(model: keras.Model, slim: keras.Model, pairs: Sequence[Pair], alive: np.ndarray) -> None:
    """Compiles `slim` with the settings of `model`: optimizer, loss and metrics.

    Step count, learning rate, momenta and averages carry over.

    Args:
        model: a compiled model.
        slim: the model made from it.
        pairs: their weights.
        alive: whether each label stays, bool [labels].

    Raises:
        InputError: the optimizer or a metric cannot be copied.
    """
    try:
        settings = keras_internals.compile_arguments(model)
        for name in ("metrics", "weighted_metrics"):
            settings[name] = keras.tree.map_structure(_copy_of, settings[name])
        settings["optimizer"] = keras_internals.new_optimizer_like(model.optimizer)
        slim.compile(**settings)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise InputError(
            f"{model.name} cannot be compiled again with its optimizer, loss and metrics"
            f" ({first_line(error)}): give their classes get_config, or compile the slim model"
        ) from error
    slim.optimizer.build(slim.trainable_variables)
    if model.optimizer.built:
        carry_state(model.optimizer, slim.optimizer, pairs, alive)


def _copy_of(metric: Any) -> Any:
    """A new metric in the place of an object, which counts for the model that it was made for."""
    return keras_internals.copy_of_metric(metric) if isinstance(metric, keras.Metric) else metric


def carry_state(
    old: keras.optimizers.Optimizer,
    new: keras.optimizers.Optimizer,
    pairs: Sequence[Pair],
    alive: np.ndarray,
) -> None:
    """Copies step count, momenta and averages from an optimizer to one of the same kind, both built.

    Variables that both update keep their state. Also applies to the optimizers inside the two.

    Args:
        pairs: weights of the whole and of the slim model.
        alive: whether each label stays, bool [labels].
    """
    origins = {
        id(variable): Pair(variable, variable, None) for variable in keras_internals.optimizer_variables(old)
    }
    origins |= {id(pair.new): pair for pair in pairs}
    for name, slots in keras_internals.optimizer_slots(new).items():
        before = keras_internals.optimizer_slots(old).get(name)
        if before is None:
            continue
        for variable, slot in zip(keras_internals.optimizer_variables(new), slots, strict=True):
            pair = origins.get(id(variable))
            if pair is not None and slot is not None:
                source = before[keras_internals.variable_index(old, pair.old)]
                _carry_over(source, slot, pair.axes, alive)
    in_slots = {
        id(slot)
        for slots in keras_internals.optimizer_slots(new).values()
        for slot in slots
        if slot is not None
    }
    for source, target in zip(old.variables, new.variables, strict=True):
        if id(target) not in in_slots and source.shape == target.shape:
            target.assign(source)
    if hasattr(old, "inner_optimizer") and hasattr(new, "inner_optimizer"):
        carry_state(old.inner_optimizer, new.inner_optimizer, pairs, alive)


def _carry_over(source: Any, target: Any, axes: tuple[Axis, ...] | None, alive: np.ndarray) -> None:
    """Copies the state of a weight, if it has the weight's shape."""
    if source is None:
        return
    value = keras.ops.convert_to_numpy(source)
    if axes is not None and len(axes) == value.ndim:
        lengths = zip(axes, value.shape, strict=True)
        if any(labels is not None and len(labels) != length for labels, length in lengths):
            return
        value = cut(value, axes, alive)
    if value.shape == tuple(target.shape):
        target.assign(value)
