"""Mean and deviation of each channel, without data: constants are exact, others follow batch normalisation.

A channel whose gamma is zero is constant: its beta, passed through the activation. The expectation of other
channels follows from beta and gamma, because batch normalisation gives them this mean and deviation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

from tfsparsecap.slimming import join_rules, layer_rules, sequence_rules, shape_rules
from tfsparsecap.slimming.graph import Node, Ref, replace_refs
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.rules import rule_of
from tfsparsecap.slimming.scope import Fold

#: Nodes and weights of the quadrature that computes expectations of a normal distribution.
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class Statistics:
    """Of the channels of one tensor.

    Attributes:
        mean: expectation, NaN if not known: float64 [channels].
        deviation: standard deviation, float64 [channels].
        constant: whether the channel has this mean at every position for every input: bool [channels].
    """

    mean: np.ndarray
    deviation: np.ndarray
    constant: np.ndarray

    @classmethod
    def unknown(cls, count: int) -> "Statistics":
        return cls(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, bool))

    @property
    def zero(self) -> np.ndarray:
        """Whether the channel is always zero."""
        return self.constant & (self.mean == 0)

    def take(self, indices: np.ndarray) -> "Statistics":
        return Statistics(self.mean[indices], self.deviation[indices], self.constant[indices])


class Propagation:
    """The statistics of all tensors with channels in their last axis, or in one other axis."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.of: dict[int, Statistics] = {}
        for node in analysis.graph.nodes:
            for position, index in enumerate(node.outputs):
                labels = self.labels(index)
                if labels is not None:
                    self.of[index] = self._propagate(node, index, labels, position)

    def labels(self, index: int) -> np.ndarray | None:
        """Labels of the only axis of a tensor that has some."""
        found = [axis for axis in self.analysis.axes[index] if axis is not None]
        return found[0] if len(found) == 1 else None

    def at(self, index: int, count: int) -> Statistics:
        """Statistics of a tensor with `count` channels."""
        found = self.of.get(index)
        return found if found is not None and len(found.mean) == count else Statistics.unknown(count)

    def _propagate(self, node: Node, index: int, labels: np.ndarray, position: int) -> Statistics:
        rule = rule_of(node.operation)
        handler = _HANDLERS.get(rule)
        if handler is not None:
            found = handler(self, node, labels)
            return found if found is not None else Statistics.unknown(len(labels))
        if rule in _MOVING:
            return self._moved(node, labels)
        return Statistics.unknown(len(labels))

    def _moved(self, node: Node, labels: np.ndarray) -> Statistics:
        """Statistics of channels that an operation moves, found by their labels."""
        source = node.inputs[0]
        before = self.labels(source)
        if before is None:
            return Statistics.unknown(len(labels))
        if rule_of(node.operation) is shape_rules.reshape and len(np.unique(before)) > len(np.unique(labels)):
            return self._merged(source, before, labels)
        order = np.argsort(before, kind="stable")
        ordered = before[order]
        place = np.clip(np.searchsorted(ordered, labels), 0, len(before) - 1)
        statistics = self.at(source, len(before)).take(order[place])
        # A label that occurs twice may stand for different values.
        ambiguous = ordered[np.minimum(place + 1, len(before) - 1)] == labels
        ambiguous &= place + 1 < len(before)
        lost = (ordered[place] != labels) | (ambiguous & (not self._is_repeated(before, source)))
        return Statistics(
            np.where(lost, np.nan, statistics.mean),
            np.where(lost, np.nan, statistics.deviation),
            statistics.constant & ~lost,
        )

    def _merged(self, source: int, before: np.ndarray, labels: np.ndarray) -> Statistics:
        """Statistics after a reshape whose channels each stand for several: constant if all are the same."""
        statistics, classes = self.at(source, len(before)), self.analysis.classes
        size = len(classes)
        lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
        known = np.where(statistics.constant, statistics.mean, np.nan)
        with np.errstate(invalid="ignore"):
            np.minimum.at(lowest, classes[before], known)
            np.maximum.at(highest, classes[before], known)
        mean = lowest[classes[labels]]
        constant = mean == highest[classes[labels]]
        mean = np.where(constant, mean, np.nan)
        return Statistics(mean, np.where(constant, 0.0, np.nan), constant)

    def _is_repeated(self, labels: np.ndarray, index: int) -> bool:
        """Whether equal labels have equal statistics, as after flattening."""
        statistics = self.at(index, len(labels))
        order = np.argsort(labels, kind="stable")
        same = labels[order][1:] == labels[order][:-1]
        means, constants = statistics.mean[order], statistics.constant[order]
        equal = (means[1:] == means[:-1]) | (np.isnan(means[1:]) & np.isnan(means[:-1]))
        return bool((~same | (equal & (constants[1:] == constants[:-1]))).all())


def into_kernel(propagation: Propagation, fold: Fold, count: int) -> Statistics:
    """Statistics of the channels that a kernel multiplies."""
    if fold.through is None:
        return propagation.at(fold.tensor, count)
    kernel = _value(fold.through)
    sums = kernel.sum(tuple(range(kernel.ndim - 2)))
    before = propagation.at(fold.tensor, sums.shape[0])
    mean = (before.mean[:, None] * sums).ravel()
    return Statistics(mean, np.full(mean.shape, np.nan), np.repeat(before.constant, sums.shape[1]))


def contributions(fold: Fold, statistics: Statistics, mask: np.ndarray) -> np.ndarray:
    """Returns what the input channels `mask` add to the outputs of a kernel, by their means.

    Means that are not known count as zero. Shape: that of the kernel without its spatial axes and input axis.
    """
    kernel = np.moveaxis(_value(fold.kernel), fold.axis, 0)
    mean = np.where(mask & ~np.isnan(statistics.mean), statistics.mean, 0.0)
    kernel = fold.share * kernel.sum(tuple(range(1, 1 + fold.spatial)))
    if fold.groups == 1:
        return np.tensordot(mean, kernel, 1)
    parts = zip(mean.reshape(fold.groups, -1), np.split(kernel, fold.groups, 1), strict=True)
    return np.concatenate([part @ of_part for part, of_part in parts])


def is_unused(fold: Fold) -> np.ndarray:
    """Whether a kernel multiplies each input channel by zero only: bool [channels]."""
    kernel = _value(fold.kernel)
    others = tuple(axis for axis in range(kernel.ndim) if axis != fold.axis)
    found = np.asarray(~kernel.any(others))
    return found if fold.groups == 1 else np.zeros(len(found) * fold.groups, bool)


def _value(variable: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable).astype(np.float64)


def _activated(layer: Any, statistics: Statistics) -> Statistics:
    activation = getattr(layer, "activation", None)
    if activation is None or activation is keras.activations.linear:
        return statistics
    return _expected(lambda values: keras.ops.convert_to_numpy(activation(values)), statistics)


def _expected(function: Callable[[Any], Any], statistics: Statistics) -> Statistics:
    """Statistics of `function` of normally distributed channels."""
    deviation = np.where(statistics.constant, 0.0, statistics.deviation)
    points = statistics.mean + _POINTS[:, None] * deviation
    values = np.asarray(function(points.astype(np.float32)), np.float64)
    if values.shape != points.shape:
        return Statistics.unknown(len(statistics.mean))
    mean = _WEIGHTS @ values
    spread = np.sqrt(np.maximum(_WEIGHTS @ np.square(values - mean), 0))
    return Statistics(
        np.where(statistics.constant, values[0], mean), np.where(statistics.constant, 0.0, spread),
        statistics.constant,
    )  # fmt: skip


def _kernel_layer(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    """A channel is constant if its kernel is zero, or multiplies constants only."""
    layer, info = node.operation, propagation.analysis.info(node.operation)
    if not info.kernels:
        return None
    key, axis = info.kernels[0]
    variable = next(one for one in layer.weights if id(one) == key)
    kernel = _value(variable)
    bias = getattr(layer, "bias", None)
    mean = np.zeros(len(labels)) if bias is None else _value(bias).ravel()
    if kernel.shape[axis] != len(labels) or len(mean) != len(labels):
        return None
    used = np.abs(kernel)
    if len(info.folds) == 1 and info.folds[0][0].groups == 1:
        fold, into = info.folds[0]
        inputs = into_kernel(propagation, fold, len(into))
        free = inputs.zero if not fold.is_exact else inputs.constant
        used = np.moveaxis(used, fold.axis, -1) * ~free
        used = np.moveaxis(used, -1, fold.axis)
        added = contributions(fold, inputs, free)
        if added.shape == mean.shape:
            mean = mean + added
    constant = ~used.any(tuple(one for one in range(used.ndim) if one != axis))
    nothing = np.where(constant, mean, np.nan)
    return _activated(layer, Statistics(nothing, np.where(constant, 0.0, np.nan), constant))


def _depthwise(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    layer = node.operation
    kernel = _value(layer.kernel)
    sums = kernel.sum(tuple(range(kernel.ndim - 2))).ravel()
    empty = ~kernel.any(tuple(range(kernel.ndim - 2))).ravel()
    repeats = len(labels) // kernel.shape[-2]
    if repeats * kernel.shape[-2] != len(labels) or len(sums) != len(labels):
        return None
    before = propagation.at(node.inputs[0], kernel.shape[-2]).take(
        np.repeat(np.arange(kernel.shape[-2]), repeats)
    )
    exact = layer.padding == "valid" or math.prod(layer.kernel_size) == 1
    constant = empty | (before.constant & (before.zero | exact))
    bias = 0.0 if layer.bias is None else _value(layer.bias)
    mean = np.where(empty, 0.0, before.mean * sums) + bias
    return _activated(layer, Statistics(mean, np.where(constant, 0.0, np.nan), constant))


def _batch_normalization(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    layer, before = node.operation, propagation.at(node.inputs[0], len(labels))
    axis = layer.axis if isinstance(layer.axis, int) else layer.axis[0]
    if propagation.analysis.axes[node.inputs[0]][axis] is None:  # the labels are those of another axis
        return None
    gamma = np.ones(len(labels)) if layer.gamma is None else _value(layer.gamma)
    beta = np.zeros(len(labels)) if layer.beta is None else _value(layer.beta)
    scale = gamma / np.sqrt(_value(layer.moving_variance) + layer.epsilon)
    constant = before.constant | (gamma == 0)
    with np.errstate(invalid="ignore"):
        fixed = np.where(gamma == 0, beta, (before.mean - _value(layer.moving_mean)) * scale + beta)
    return Statistics(np.where(constant, fixed, beta), np.where(constant, 0.0, np.abs(gamma)), constant)


def _layer_normalization(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    gamma = getattr(node.operation, "gamma", None)
    if gamma is None or propagation.analysis.axes[node.inputs[0]][-1] is None:
        return None
    beta = getattr(node.operation, "beta", None)
    gamma, mean = _value(gamma), np.zeros(len(labels)) if beta is None else _value(beta)
    return Statistics(mean, np.abs(gamma), gamma == 0)


def _elementwise(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    before = propagation.at(node.inputs[0], len(labels))
    if isinstance(node.operation, layers.Layer) and not isinstance(
        node.operation, (layers.ReLU, layers.LeakyReLU, layers.ELU, layers.Activation)
    ):
        return before  # dropout and the like
    return _expected(lambda values: _call(node, lambda index: values), before)


def _call(node: Node, replacement: Callable[[int], Any]) -> np.ndarray:
    args, kwargs = replace_refs((node.args, node.kwargs), replacement)
    return keras.ops.convert_to_numpy(node.operation(*args, **kwargs))


def _several(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    """Sums and products of channels, and of channels with numbers."""
    leaves = [one for one in keras.tree.flatten((node.args, node.kwargs)) if one is not None]
    if any(not isinstance(one, Ref) and np.ndim(one) > 0 for one in leaves):
        return None
    axes = [propagation.labels(one.index) for one in leaves if isinstance(one, Ref)]
    if any(axis is None or len(axis) != len(labels) for axis in axes):
        return None
    parts = {one.index: propagation.at(one.index, len(labels)) for one in leaves if isinstance(one, Ref)}
    kind = type(node.operation).__name__
    constant = np.all([part.constant for part in parts.values()], 0)

    def value(index: int) -> np.ndarray:
        return parts[index].mean[None].astype(np.float32)

    mean = np.asarray(_call(node, value), np.float64)[0]
    squares = np.sum([np.square(part.deviation) for part in parts.values()], 0)
    deviation = np.sqrt(squares)
    if kind == "Multiply":
        zero = np.any([part.zero for part in parts.values()], 0)
        numbers = [abs(float(one)) for one in leaves if not isinstance(one, Ref)]
        deviation = deviation * math.prod(numbers) if numbers else np.full(len(labels), np.nan)
        constant, mean = constant | zero, np.where(zero, 0.0, mean)
    elif kind not in ("Add", "Subtract"):
        mean = np.where(constant, mean, np.nan)
        deviation = np.full(len(labels), np.nan)
    return Statistics(mean, np.where(constant, 0.0, deviation), constant)


def _dropping(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    return (_elementwise if len(node.inputs) == 1 else _several)(propagation, node, labels)


def _rescaling(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    layer, before = node.operation, propagation.at(node.inputs[0], len(labels))
    if np.ndim(layer.scale) or np.ndim(layer.offset):
        return None
    mean, scale = before.mean * layer.scale + layer.offset, abs(layer.scale)
    return Statistics(mean, before.deviation * scale, before.constant)


def _custom_scale(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    first, second = (propagation.at(index, len(labels)) for index in node.inputs)
    scale = float(node.operation.scale)
    return Statistics(
        first.mean + scale * second.mean,
        np.hypot(first.deviation, scale * second.deviation),
        first.constant & second.constant,
    )


def _concatenate(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    parts = []
    for index in node.inputs:
        axis = propagation.labels(index)
        parts.append(None if axis is None else propagation.at(index, len(axis)))
    sizes = [propagation.analysis.graph.shapes[index][node.operation.axis] for index in node.inputs]
    filled = [
        Statistics.unknown(size) if part is None else part for size, part in zip(sizes, parts, strict=True)
    ]
    if sum(len(part.mean) for part in filled) != len(labels):
        return None
    return Statistics(
        np.concatenate([part.mean for part in filled]),
        np.concatenate([part.deviation for part in filled]),
        np.concatenate([part.constant for part in filled]),
    )


def _padding(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    """Zeros at the borders leave only zeros constant; operators that pad channels add zeros."""
    moved = propagation._moved(node, labels)
    if isinstance(node.operation, layers.Layer):
        return Statistics(moved.mean, moved.deviation, moved.zero)
    known = propagation.analysis.axes[node.inputs[0]][-1]
    if known is None or len(known) == len(labels):
        return Statistics(moved.mean, moved.deviation, moved.zero)
    new = ~np.isin(labels, known)
    return Statistics(
        np.where(new, 0.0, moved.mean), np.where(new, 0.0, moved.deviation), moved.constant | new
    )


def _spatial(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    layer = node.operation
    if isinstance(layer, (layers.ZeroPadding1D, layers.ZeroPadding2D, layers.ZeroPadding3D)):
        return _padding(propagation, node, labels)
    if getattr(layer, "pad_to_aspect_ratio", False):
        zeros = layer.fill_mode == "constant" and layer.fill_value == 0
        return _padding(propagation, node, labels) if zeros else None
    return propagation._moved(node, labels)


def _reduction(propagation: Propagation, node: Node, labels: np.ndarray) -> Statistics | None:
    if type(node.operation).__name__ not in ("Mean", "Max", "Min", "Amax", "Amin"):
        return None
    return propagation._moved(node, labels)


_MOVING = {
    shape_rules.flatten, shape_rules.reshape, shape_rules.permute, shape_rules.expand_dims,
    shape_rules.squeeze, shape_rules.global_pooling, shape_rules.repeat_vector, join_rules.split,
    shape_rules.get_item, shape_rules.broadcast_to,
}  # fmt: skip
_HANDLERS: dict[Any, Callable[[Propagation, Node, np.ndarray], Statistics | None]] = {
    layer_rules.convolution: lambda propagation, node, labels: (
        _depthwise if "channels" not in propagation.analysis.info(node.operation).known else _kernel_layer
    )(propagation, node, labels),
    layer_rules.transposed_convolution: _kernel_layer,
    layer_rules.separable_convolution: _kernel_layer,
    layer_rules.dense: _kernel_layer,
    layer_rules.depthwise_convolution: _depthwise,
    layer_rules.batch_normalization: _batch_normalization,
    layer_rules.layer_normalization: _layer_normalization,
    layer_rules.custom_scale: _custom_scale,
    shape_rules.unchanged: _elementwise,
    shape_rules.activation: _elementwise,
    join_rules.elementwise_of_several: _several,
    join_rules.rescaling: _rescaling,
    join_rules.dropping: _dropping,
    join_rules.concatenate: _concatenate,
    shape_rules.spatial: _spatial,
    shape_rules.pad: _padding,
    join_rules.reduction: _reduction,
    sequence_rules.time_distributed: lambda propagation, node, labels: None,
}
