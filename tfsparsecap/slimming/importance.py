"""Importance of channels: RTIC's global batch-norm importance, L1 and L2 norms, and Taylor expansion."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.errors import InputError, first_line
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.regression import model_inputs

CRITERIA = ("rtic", "l1", "l2", "taylor")
#: Gradients of the outputs that are computed at least.
_DRAWS = 32


def importance(
    analysis: Analysis, criterion: str, model: keras.Model, samples: Any = None, loss: Any = None
) -> np.ndarray:
    """Returns the importance of each class, float64 [labels]; only the entries of classes are used.

    `rtic` is the paper's global importance score (equations 1 to 3 with the sum over the next layer's weights
    set to one): the square of gamma, the mean over the batch normalisations of a channel. Channels without
    gamma have the squared norm of their kernel, scaled to the mean of one layer's. `l1` and `l2` are norms of
    all kernels that create a channel, each divided by its mean in the layer. `taylor` is the mean over
    batches of the squared change of the loss to first order, `(w * dL/dw)^2`
    (https://arxiv.org/abs/1906.10771). Without a loss, it is that of the outputs: of their sum with random
    weights, each output having the mean square one.

    Args:
        analysis: of `model`.
        criterion: one of `CRITERIA`.
        model: the model; only `taylor` calls it.
        samples: for `taylor`: batches of (inputs, targets), or of inputs without a loss.
        loss: for `taylor`: as in Keras's `compile`, or None.

    Raises:
        InputError: `taylor` lacks samples, or they do not fit the model or are not finite.
    """
    if criterion == "taylor":
        return _taylor(analysis, model, samples, loss)
    power = 1 if criterion == "l1" else 2
    norms = _mean_of(analysis, _kernel_norms(analysis, power))
    if criterion != "rtic":
        return norms
    gammas = _mean_of(analysis, _squared_gammas(analysis))
    known = ~np.isnan(gammas)
    level = float(np.mean(gammas[known])) if known.any() else 1.0
    return np.where(known, gammas, norms * level)


def _squared_gammas(analysis: Analysis) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Labels and gamma² of each batch normalisation."""
    for info in analysis.infos.values():
        for variable in info.operation.weights if info.scales else ():
            labels = (info.slots.get(id(variable)) or (None,))[0]
            if id(variable) in info.scales and labels is not None:
                yield labels, np.square(keras.ops.convert_to_numpy(variable).astype(np.float64))


def _kernel_norms(analysis: Analysis, power: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Labels and norms of the channels of each kernel, with a mean of one."""
    for labels, axis, variable in _kernels(analysis):
        value = np.abs(keras.ops.convert_to_numpy(variable).astype(np.float64)) ** power
        norm = value.sum(tuple(one for one in range(value.ndim) if one != axis))
        yield labels, norm / max(float(norm.mean()), 1e-30)


def _kernels(analysis: Analysis) -> Iterable[tuple[np.ndarray, int, Any]]:
    """Labels, axis and variable of each kernel that creates channels."""
    for info in analysis.infos.values():
        if not info.kernels:
            continue
        variables = {id(one): one for one in info.operation.weights}
        for key, axis in info.kernels:
            labels = info.slots[key][axis]
            if labels is not None:
                yield labels, axis, variables[key]


def _mean_of(analysis: Analysis, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Mean over the parts of each class; NaN for classes without one."""
    total, number = np.zeros(analysis.labels.size), np.zeros(analysis.labels.size)
    for labels, values in parts:
        classes = analysis.classes[labels]
        np.add.at(total, classes, values)
        np.add.at(number, classes, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / number


def _taylor(analysis: Analysis, model: keras.Model, samples: Any, loss: Any) -> np.ndarray:
    if samples is None:
        raise InputError(
            "the criterion taylor needs samples=, batches of inputs, or of (inputs, targets) with loss="
        )
    batches = list(samples)
    if not batches:
        raise InputError("samples are empty: give at least one batch, or leave samples= out")
    what = "outputs" if loss is None else "loss"
    try:
        compute = None if loss is None else keras.losses.get(loss)
    except (TypeError, ValueError) as error:
        raise InputError(f"loss is {loss!r:.100}, which is none of Keras: give it as in compile") from error
    try:
        if compute is None:
            return _mean_of_squares(analysis, _of_outputs(analysis, model, batches))
        return _mean_of_squares(analysis, _of_loss(model, batches, compute))
    except InputError:
        raise
    except FloatingPointError as error:
        raise InputError(
            f"the {what} of {model.name} or the gradients are NaN or infinite on {error} of the samples:"
            " check the inputs, the targets and the weights"
        ) from error
    except (TypeError, ValueError, LookupError, tf.errors.OpError) as error:
        raise InputError(
            f"the {what} of {model.name} cannot be computed on samples ({first_line(error)}): give batches of"
            " inputs, or of (inputs, targets) as in fit with the loss of compile"
        ) from error


def _mean_of_squares(analysis: Analysis, values: Iterable[tuple[int, Callable]]) -> np.ndarray:
    """Mean over the values of the squared change without each class, to first order.

    Args:
        values: number of a batch, and a function that computes what changes.

    Raises:
        FloatingPointError: a change is not finite; the message names the batch.
    """
    kernels = list(_kernels(analysis))
    sources = [variable.value for _, _, variable in kernels]
    total, draws = np.zeros(analysis.labels.size), 0
    for number, value in values:
        with tf.GradientTape() as tape:
            tape.watch(sources)  # frozen ones, too
            result = value()
        changes = np.zeros(analysis.labels.size)
        for (labels, axis, variable), gradient in zip(kernels, tape.gradient(result, sources), strict=True):
            if gradient is None:
                continue
            product = keras.ops.convert_to_numpy(gradient * variable.value).astype(np.float64)
            change = product.sum(tuple(one for one in range(product.ndim) if one != axis))
            np.add.at(changes, analysis.classes[labels], change)
        if not np.isfinite(changes).all():
            raise FloatingPointError(f"batch {number}")
        total += np.square(changes)
        draws += 1
    return total / draws


def _of_loss(model: keras.Model, batches: list[Any], loss: Callable) -> Iterator[tuple[int, Callable]]:
    """Functions that compute the loss of each batch."""

    def value(inputs: Any, targets: Any) -> tf.Tensor:
        return tf.reduce_mean(loss(targets, model(inputs, training=False)))

    for number, batch in enumerate(batches):
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise InputError(
                "samples of the criterion taylor must be batches of (inputs, targets) if a loss is given"
            )
        yield number, partial(value, *batch[:2])


def _of_outputs(analysis: Analysis, model: keras.Model, batches: list[Any]) -> Iterator[tuple[int, Callable]]:
    """Functions that compute sums of the outputs, with other random weights in each.

    Weights of different images are independent, so the square of a sum over images has the expectation of
    the sum of the squares: batches may have any size.
    """
    rng, inputs = np.random.default_rng(0), [model_inputs(analysis.graph, batch) for batch in batches]

    def outputs(number: int) -> list[tf.Tensor]:
        flat = keras.tree.flatten(model(inputs[number], training=False))
        return [tf.cast(output, tf.float32) for output in flat]

    squares = [
        [float(tf.reduce_mean(output**2)) for output in outputs(number)] for number in range(len(inputs))
    ]
    levels = np.sqrt(np.mean(squares, axis=0))

    def value(number: int) -> tf.Tensor:
        total = tf.constant(0.0)
        for output, level in zip(outputs(number), levels, strict=True):
            weights = rng.standard_normal(output.shape).astype("float32")
            total += tf.reduce_sum(output * weights) / max(level, 1e-30)
        return total

    for number in [*range(len(inputs))] * -(-_DRAWS // len(inputs)):
        yield number, partial(value, number)
