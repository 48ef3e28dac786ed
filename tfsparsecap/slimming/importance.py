"""Importance of channels: RTIC's global batch-norm importance, L1 and L2 norms, and Taylor expansion."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.slimming.groups import Analysis

CRITERIA = ("rtic", "l1", "l2", "taylor")


def importance(
    analysis: Analysis, criterion: str, model: keras.Model, samples: Any = None, loss: Any = None
) -> np.ndarray:
    """Returns the importance of each class, float64 [labels]; only the entries of classes are used.

    `rtic` is the paper's global importance score (equations 1 to 3 with the sum over the next layer's weights
    set to one): the square of gamma, the mean over the batch normalisations of a channel. Channels without
    gamma have the squared norm of their kernel, scaled to the mean of one layer's. `l1` and `l2` are norms of
    all kernels that create a channel, each divided by its mean in the layer. `taylor` is the sum over batches
    of the squared change of the loss to first order, `(w * dL/dw)^2` (https://arxiv.org/abs/1906.10771).

    Args:
        analysis: of `model`.
        criterion: one of `CRITERIA`.
        model: the model; only `taylor` calls it.
        samples: for `taylor`: batches of (inputs, targets).
        loss: for `taylor`: as in Keras's `compile`.

    Raises:
        InputError: the criterion is unknown, or `taylor` lacks samples or a loss.
    """
    if criterion not in CRITERIA:
        raise unknown_name("importance criterion", criterion, CRITERIA)
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
    if samples is None or loss is None:
        raise InputError(
            "the criterion taylor needs samples=, batches of (inputs, targets), and loss=, as in compile"
        )
    compute: Callable = keras.losses.get(loss)
    kernels = list(_kernels(analysis))
    sources = [variable.value for _, _, variable in kernels]
    total = np.zeros(analysis.labels.size)
    batches = 0
    for batch in samples:
        if not isinstance(batch, (tuple, list)) or len(batch) < 2:
            raise InputError("samples of the criterion taylor must be batches of (inputs, targets)")
        with tf.GradientTape() as tape:
            tape.watch(sources)  # frozen ones, too
            value = tf.reduce_mean(compute(batch[1], model(batch[0], training=False)))
        changes = np.zeros(analysis.labels.size)
        for (labels, axis, variable), gradient in zip(kernels, tape.gradient(value, sources), strict=True):
            if gradient is None:
                continue
            product = keras.ops.convert_to_numpy(gradient * variable.value).astype(np.float64)
            change = product.sum(tuple(one for one in range(product.ndim) if one != axis))
            np.add.at(changes, analysis.classes[labels], change)
        total += np.square(changes)
        batches += 1
    if not batches:
        raise InputError("samples of the criterion taylor are empty: give at least one batch")
    return total / batches
