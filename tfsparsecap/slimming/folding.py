"""Moves constant channels into the bias of the next layer before they are removed."""

import operator
from typing import Any

import keras
import numpy as np

from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.rebuild import Bias, Changes
from tfsparsecap.slimming.regression import Prediction
from tfsparsecap.slimming.scope import Fold, Info
from tfsparsecap.slimming.statistics import Propagation, Statistics, contributions, into_kernel, is_unused


def dead(analysis: Analysis, propagation: Propagation) -> np.ndarray:
    """Returns whether removing each class leaves the model's outputs unchanged, bool [labels].

    Each kernel that takes such a channel has zeros for it, or the channel is a constant that its bias can
    take over: zero before a convolution with padding, any constant before other layers.
    """
    used = analysis.mixed | analysis.fixed
    for info in analysis.infos.values():
        for fold, labels in info.folds:
            statistics = into_kernel(propagation, fold, len(labels))
            free = statistics.zero | (statistics.constant & fold.is_exact & _has_target(analysis, info, fold))
            if _is_shared(analysis, info.operation):
                free[:] = False
            used[analysis.classes[labels[~(free | is_unused(fold))]]] = True
    return ~used


def fold_means(
    analysis: Analysis,
    propagation: Propagation,
    alive: np.ndarray,
    predicted: dict[tuple[int, int], Prediction] | None = None,
) -> Changes:
    """Returns the biases that take over the means of the channels that go.

    Constant channels are replaced exactly, except at borders that are padded; the others by the mean that
    their batch normalisation gives them. A convolution without bias before a batch normalisation changes its
    moving mean instead; other layers without bias get one. If channels are predicted from others, the weights
    of these take over the weights of the channels that go, and the bias only the rest.
    """
    changes = Changes()
    for info in analysis.infos.values():
        for fold, labels in info.folds:
            gone = ~alive[labels]
            if not gone.any() or _is_shared(analysis, info.operation):
                continue
            statistics = into_kernel(propagation, fold, len(labels))
            prediction = (predicted or {}).get((fold.tensor, fold.position))
            if prediction is not None and len(prediction.offset) == gone.sum() and fold.through is None:
                _take_over(changes, fold, gone, prediction)
                mean = np.zeros(len(labels))
                mean[gone] = prediction.offset
                statistics = Statistics(mean, np.zeros(len(labels)), np.zeros(len(labels), bool))
            added = contributions(fold, statistics, gone)
            if added.any():
                _add(analysis, info, fold, added, changes)
    return changes


def _add(analysis: Analysis, info: Info, fold: Fold, added: np.ndarray, changes: Changes) -> None:
    bias = _bias(info, fold)
    if bias is not None:
        _change(changes, bias, added.reshape(bias.shape))
        return
    normalization = _next_normalization(analysis, info, fold)
    if normalization is not None:
        _change(changes, normalization.moving_mean, -added)
    elif fold.new_bias is not None:
        changes.biases[id(info.operation)] = Bias(added, _created(info, fold), fold.new_bias)


def _take_over(changes: Changes, fold: Fold, gone: np.ndarray, prediction: Prediction) -> None:
    """Adds the weights of the channels that go to those of the channels that they are predicted from."""
    kernel = np.moveaxis(keras.ops.convert_to_numpy(fold.kernel).astype(np.float64), fold.axis, 0)
    added = np.zeros_like(kernel)
    added[~gone] = np.tensordot(prediction.weights, kernel[gone], 1)
    _change(changes, fold.kernel, np.moveaxis(added, 0, fold.axis))


def _change(changes: Changes, variable: Any, added: np.ndarray) -> None:
    value = changes.values.get(id(variable))
    value = keras.ops.convert_to_numpy(variable) if value is None else value
    changes.values[id(variable)] = value + added


def _created(info: Info, fold: Fold) -> tuple[Axis, ...]:
    """Labels of the axes of what a kernel makes of one channel: those that `contributions` returns."""
    axes = enumerate(info.slots[id(fold.kernel)])
    return tuple(axis for place, axis in axes if place >= fold.spatial and place != fold.axis)


def _bias(info: Info, fold: Fold) -> Any:
    return None if fold.bias is None else operator.attrgetter(fold.bias)(info.operation)


def _has_target(analysis: Analysis, info: Info, fold: Fold) -> bool:
    if _bias(info, fold) is not None or fold.new_bias is not None:
        return True
    return _next_normalization(analysis, info, fold) is not None


def _next_normalization(analysis: Analysis, info: Info, fold: Fold) -> keras.layers.BatchNormalization | None:
    """What alone takes the output of a linear layer, if it normalises the axis that the kernel creates."""
    owner = (fold.bias or "").rpartition(".")[0]
    layer = operator.attrgetter(owner)(info.operation) if owner else info.operation
    if getattr(layer, "activation", None) not in (None, keras.activations.linear):
        return None
    outputs = [node.outputs for node in analysis.graph.nodes if node.operation is info.operation]
    if len(outputs) != 1 or len(outputs[0]) != 1:
        return None
    output, created = outputs[0][0], _created(info, fold)
    last = analysis.axes[output][-1]
    if last is None or len(created) != 1 or created[0] is None or not np.array_equal(last, created[0]):
        return None
    after = analysis.consumers[output]
    is_returned = any(leaf.index == output for leaf in keras.tree.flatten(analysis.graph.outputs))
    if is_returned or len(after) != 1 or type(after[0].operation) is not keras.layers.BatchNormalization:
        return None
    following = after[0].operation
    same = following.axis in (-1, len(analysis.axes[output]) - 1)
    return following if same and not _is_shared(analysis, following) else None


def _is_shared(analysis: Analysis, layer: Any) -> bool:
    return analysis.calls[id(layer)] > 1
