"""Importance of channels: RTIC's global batch-norm importance, L1 and L2 norms, and Taylor expansion."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core.progress import Progress, progress_bar, with_count
from tfsparsecap.errors import InputError, first_line
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import Node
from tfsparsecap.slimming.regression import SamplesError, model_inputs
from tfsparsecap.slimming.scope import Info

CRITERIA = ("rtic", "l1", "l2", "taylor")
#: Gradients of the outputs that are computed at least.
_DRAWS = 32


def importance(analysis: Analysis, criterion: str, model: keras.Model, samples: Any = None) -> np.ndarray:
    """Returns the importance of each class, float64 [labels]; only the entries of classes are used.

    `rtic` is the paper's global importance score (equation 3): the square of gamma times the sum of the
    squared weights by which the next layers multiply the channel. The paper sets this sum to one by rescaling
    the weights, so that gamma takes it over: a factor that moves from gamma to the next weights changes
    nothing. It is the mean over the layers that come next, and over the batch normalisations of a channel.
    Channels without gamma have the squared norm of their kernel, scaled to the mean score of the others. `l1`
    and `l2` are norms of all kernels that create a channel, each divided by its mean in the layer. `taylor`
    is the mean over batches of the squared change to first order, `(w * dL/dw)^2`
    (https://arxiv.org/abs/1906.10771), where L is the sum of the outputs with random weights, each output
    having the mean square one.

    Args:
        analysis: of `model`.
        criterion: one of `CRITERIA`.
        model: the model; only `taylor` calls it.
        samples: for `taylor`: batches of inputs.

    Raises:
        InputError: `taylor` lacks samples, or they do not fit the model or are not finite.
    """
    if criterion == "taylor":
        return _taylor(analysis, model, samples)
    power = 1 if criterion == "l1" else 2
    norms = _mean_of(analysis, _kernel_norms(analysis, power))
    if criterion != "rtic":
        return norms
    variances = _mean_of(analysis, _variances(analysis))
    has_variance = ~np.isnan(variances)
    level = float(np.mean(variances[has_variance])) if has_variance.any() else 1.0
    return np.where(has_variance, variances, norms * level)


def _variances(analysis: Analysis) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Labels and equation 3 of each batch normalisation."""
    for node in analysis.graph.nodes:
        info = analysis.info(node.operation)
        for variable in info.operation.weights if info.scales else ():
            labels = (info.slots.get(id(variable)) or (None,))[0]
            if id(variable) in info.scales and labels is not None:
                norms = np.array([np.full(len(labels), np.nan), *_next_norms(analysis, node, labels)])
                known, total = (~np.isnan(norms)).sum(0), np.nansum(norms, 0)
                yield labels, np.square(_value(variable)) * np.where(known, total / np.maximum(known, 1), 1.0)


def _next_norms(analysis: Analysis, node: Node, labels: np.ndarray) -> Iterable[np.ndarray]:
    """Sums of the squared weights by which each next kernel multiplies the channels of a call.

    Kernels behind the next normalisation or kernel do not count: those see other values.

    Args:
        analysis: of the model.
        node: the call.
        labels: int64 [channels].

    Returns:
        For each kernel, float64 [channels]; NaN for channels that it does not take.
    """
    classes, seen, pending = np.unique(analysis.classes[labels]), {id(node)}, list(node.outputs)
    while pending:
        for other in analysis.consumers[pending.pop()]:
            if id(other) in seen:
                continue
            seen.add(id(other))
            info = analysis.info(other.operation)
            kernels = list(_multiplying(analysis, info, classes))
            for into, norms in kernels:
                yield _of_channels(analysis, labels, into, norms)
            if not kernels and not info.scales:
                pending += other.outputs


def _multiplying(
    analysis: Analysis, info: Info, classes: np.ndarray
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Labels of the channels that each kernel of a layer multiplies, and their sums of squared weights.

    Only kernels that multiply some of `classes`. The kernels of `SeparableConv2D` are one after the other:
    only the depthwise one sees the channels.
    """
    full: list[tuple[np.ndarray, np.ndarray]] = []
    depthwise: list[tuple[np.ndarray, np.ndarray]] = []
    for variable in info.operation.weights:
        slots = info.slots.get(id(variable), ())
        axes = {axis: labels for axis, labels in enumerate(slots) if labels is not None}
        # The one axis of a depthwise kernel has the channels that it multiplies.
        found = depthwise if len(axes) == 1 else full
        created = {axis for key, axis in info.kernels if key == id(variable)} if len(axes) > 1 else set()
        for axis, labels in axes.items() if len(slots) > 1 else ():
            folded = [into for fold, into in info.folds if fold.kernel is variable and fold.axis == axis]
            (into, *_) = [*folded, labels]
            if axis not in created and np.isin(analysis.classes[into], classes).any():
                found.append((into, _kernel_sums(np.square(_value(variable)), axis, len(into))))
    return depthwise or full


def _kernel_sums(squares: np.ndarray, axis: int, channels: int) -> np.ndarray:
    """Sums of the squared weights of each channel that a kernel multiplies, float64 [channels].

    Channels of a grouped convolution are multiplied by the filters of their group, in its last axis.
    """
    if channels == squares.shape[axis]:
        return _sum_per_channel(squares, axis)
    groups = np.split(squares, channels // squares.shape[axis], -1)
    return np.concatenate([_sum_per_channel(group, axis) for group in groups])


def _of_channels(analysis: Analysis, labels: np.ndarray, into: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Values of the channels `labels` [n] from those of the channels `into` [m]; NaN where there is none.

    Channels behind a sum have labels of the other summand: their classes are compared then. Channels with the
    same label are taken in their order or, if there are more of `into`, have equal shares.
    """
    if not np.isin(labels, into).any():
        labels, into = analysis.classes[labels], analysis.classes[into]
    if np.array_equal(np.sort(labels), np.sort(into)):
        values = np.empty(len(labels))
        values[np.argsort(labels, kind="stable")] = norms[np.argsort(into, kind="stable")]
        return values
    size = analysis.labels.size
    shares = np.bincount(into, norms, size) / np.maximum(np.bincount(labels, minlength=size), 1)
    return np.where(np.isin(labels, into), shares[labels], np.nan)


def _value(variable: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable), np.float64)


def _sum_per_channel(values: np.ndarray, axis: int) -> np.ndarray:
    """Sums over all axes but that of the channels."""
    sums: np.ndarray = values.sum(tuple(other for other in range(values.ndim) if other != axis))
    return sums


def _kernel_norms(analysis: Analysis, power: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Labels and norms of the channels of each kernel, with a mean of one."""
    for labels, axis, variable in _kernels(analysis):
        norm = _sum_per_channel(np.abs(_value(variable)) ** power, axis)
        yield labels, norm / max(float(norm.mean()), 1e-30)


def _kernels(analysis: Analysis) -> Iterable[tuple[np.ndarray, int, Any]]:
    """Labels, axis and variable of each kernel that creates channels."""
    for info in analysis.infos.values():
        if not info.kernels:
            continue
        variables = {id(weight): weight for weight in info.operation.weights}
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


def _taylor(analysis: Analysis, model: keras.Model, samples: Any) -> np.ndarray:
    if samples is None:
        raise InputError("the criterion taylor needs samples=, batches of inputs")
    batches = list(samples)
    if not batches:
        raise SamplesError("samples are empty: give at least one batch, or leave samples= out")
    try:
        inputs = [model_inputs(analysis.graph, batch) for batch in batches]
        with progress_bar() as progress:
            return _squared_changes(analysis, model, inputs, progress)
    except InputError:
        raise
    except FloatingPointError as error:
        raise SamplesError(
            f"the outputs of {model.name} or the gradients are NaN or infinite on {error} of the samples:"
            " check the inputs and the weights"
        ) from error
    except (TypeError, ValueError, LookupError, tf.errors.OpError) as error:
        raise SamplesError(
            f"the outputs of {model.name} cannot be computed on samples ({first_line(error)}): give batches"
            " of inputs"
        ) from error


def _compiled(analysis: Analysis, function: Callable[..., Any]) -> Callable[..., Any]:
    """A graph of the function if the model is recurrent: without, each step of a sequence is slow."""
    recurrent = (keras.layers.RNN, keras.layers.Bidirectional, keras.layers.TimeDistributed)
    if any(isinstance(operation, recurrent) for operation in analysis.graph.operations()):
        compiled: Callable[..., Any] = tf.function(function, reduce_retracing=True)
        return compiled
    return function


def _squared_changes(
    analysis: Analysis, model: keras.Model, batches: list[Any], progress: Progress
) -> np.ndarray:
    """Mean square of the change of a weighted sum of the outputs without each class, to first order.

    The weights are drawn again for each gradient. Those of different images are independent, so the square of
    a sum over images has the expectation of the sum of the squares: batches may have any size.

    Raises:
        FloatingPointError: a change is not finite; the message names the batch.
    """
    kernels = list(_kernels(analysis))
    sources = [variable.value for _, _, variable in kernels]

    def outputs(batch: Any) -> list[tf.Tensor]:
        return [tf.cast(output, tf.float32) for output in keras.tree.flatten(model(batch, training=False))]

    def gradients(batch: Any, weights: list[tf.Tensor]) -> list[tf.Tensor | None]:
        with tf.GradientTape() as tape:
            tape.watch(sources)  # frozen ones, too
            pairs = zip(outputs(batch), weights, strict=True)
            result = tf.add_n([tf.reduce_sum(output * weight) for output, weight in pairs])
        derivatives: list[tf.Tensor | None] = tape.gradient(result, sources)
        return derivatives

    plain, gradients = _compiled(analysis, outputs), _compiled(analysis, gradients)
    shapes, squares = [], []
    for number, batch in enumerate(batches):
        values = plain(batch)
        if not all(np.isfinite(value).all() for value in values):
            raise FloatingPointError(f"batch {number}")
        shapes.append([value.shape for value in values])
        squares.append([float(tf.reduce_mean(value**2)) for value in values])
    levels = np.maximum(np.sqrt(np.mean(squares, axis=0)), 1e-30)
    rng, total = np.random.default_rng(0), np.zeros(analysis.labels.size)
    numbers = [*range(len(batches))] * -(-_DRAWS // len(batches))
    for number in with_count(progress, "measuring the channels on samples", numbers):
        pairs = zip(shapes[number], levels, strict=True)
        weights = [tf.constant(rng.standard_normal(shape) / level, tf.float32) for shape, level in pairs]
        changes = np.zeros(analysis.labels.size)
        results = gradients(batches[number], weights)
        for (labels, axis, variable), gradient in zip(kernels, results, strict=True):
            if gradient is None:
                continue
            product = keras.ops.convert_to_numpy(gradient * variable.value).astype(np.float64)
            np.add.at(changes, analysis.classes[labels], _sum_per_channel(product, axis))
        if not np.isfinite(changes).all():
            raise FloatingPointError(f"batch {number}")
        total += np.square(changes)
    return total / len(numbers)
