"""How sums, products, concatenation, splits and reductions couple channels."""

from typing import Any

import keras
import numpy as np
from keras import layers

from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.layer_rules import Rule, unknown
from tfsparsecap.slimming.operation_graph import Ref
from tfsparsecap.slimming.scope import Axes, Scope, positive_axes, refs


def along_axis(scope: Scope) -> None:
    """Softmax and sums along one axis keep the channels of that axis; the others pass."""
    axes = scope.axes(scope.only)
    for axis in positive_axes(getattr(scope.operation, "axis", -1), len(axes)):
        scope.freeze([axes[axis]], f"{scope.operation.name} works along the channels")
        axes[axis] = None
    scope.emit(axes)


def reduction(scope: Scope) -> None:
    """Means, sums and extrema: an axis with channels that is reduced stays whole."""
    axes, layer = scope.axes(scope.only), scope.operation
    gone = positive_axes(layer.axis, len(axes))
    scope.freeze([axes[place] for place in gone], f"{layer.name} reduces the channels")
    if layer.keepdims:
        scope.emit([None if place in gone else axis for place, axis in enumerate(axes)])
    else:
        scope.emit([axis for place, axis in enumerate(axes) if place not in gone])


def elementwise_of_several(scope: Scope) -> None:
    """Sums, products, maxima …: the channels of all operands are removed together."""
    leaves = [leaf for leaf in keras.tree.flatten((scope.node.args, scope.node.kwargs)) if leaf is not None]
    scope.emit(scope.broadcast(leaves, f"{scope.operation.name} combines it with a constant"))


def dropping(scope: Scope) -> None:
    """Stochastic depth: of one tensor, or in keras-cv's way of `[shortcut, residual]`, which it adds."""
    tensors = refs(scope.node.args) or refs(scope.node.kwargs)
    if len(tensors) == 1:
        return scope.emit(scope.axes(scope.only))
    scope.emit(scope.broadcast(list(tensors), f"{scope.operation.name} adds to it"))


def rescaling(scope: Scope) -> None:
    constants = [scope.operation.scale, scope.operation.offset]
    tensor = Ref(scope.only)
    scope.emit(scope.broadcast([tensor, *constants], f"{scope.operation.name} has a scale for each channel"))


def concatenate(scope: Scope) -> None:
    indices = [ref.index for ref in refs(scope.node.args[0])]
    if len(indices) != len(scope.node.args[0]):
        return unknown(scope)
    rank = len(scope.shape(indices[0]))
    along = scope.operation.axis % rank
    result: Axes = [None] * rank
    for axis in range(rank):
        parts = [scope.axes(index)[axis] for index in indices]
        labelled = [part for part in parts if part is not None]
        if axis == along:
            if labelled:
                result[axis] = np.concatenate(
                    [
                        _fixed(scope, scope.shape(index)[axis]) if part is None else part
                        for index, part in zip(indices, parts, strict=True)
                    ]
                )
        elif len(labelled) < len(parts):
            scope.freeze(labelled, f"{scope.operation.name} joins it with channels that stay")
        else:
            for part in labelled[1:]:
                scope.labels.unite(labelled[0], part)
            result[axis] = labelled[0]
    scope.emit(result)


def _fixed(scope: Scope, count: int) -> np.ndarray:
    """Labels of channels that stay, next to channels that may go."""
    labels = scope.labels.create(scope.operation.name, "fixed", count)
    scope.freeze([labels], f"{scope.operation.name} takes them from a tensor without channels")
    return labels


def stack(scope: Scope) -> None:
    indices = [ref.index for ref in refs(scope.node.args[0])]
    if len(indices) != len(scope.node.args[0]):
        return unknown(scope)
    axes = scope.broadcast(list(refs(scope.node.args[0])), f"{scope.operation.name} joins it")
    axes.insert(scope.operation.axis % (len(axes) + 1), None)
    scope.emit(axes)


def split(scope: Scope) -> None:
    """Slices of the channels; the new operation gets the new boundaries."""
    axes, operation = scope.axes(scope.only), scope.operation
    along = operation.axis % len(axes)
    lengths = [scope.shape(index)[along] for index in scope.node.outputs]
    starts = [sum(lengths[:place]) for place in range(len(lengths))]
    labels = axes[along]
    scope.tie_calls([along])
    for position, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        part = None if labels is None else labels[start : start + length]
        scope.emit([part if place == along else axis for place, axis in enumerate(axes)], position)
    if labels is not None:
        scope.info.sizes["indices_or_sections"] = lambda count: [
            count(labels[:start]) for start in starts[1:]
        ]


def matmul(scope: Scope) -> None:
    """Products of two tensors: the contracted channels are removed together."""
    operands = [scope.argument(0, "x1"), scope.argument(1, "x2")]
    if any(not isinstance(operand, Ref) for operand in operands):
        return unknown(scope)
    first, second = (scope.axes(operand.index) for operand in operands)
    if min(len(first), len(second)) < 2:
        return unknown(scope)
    _contract(scope, first[-1], second[-2])
    rank = max(len(first), len(second))
    batch: Axes = []
    for back in range(rank, 2, -1):
        pair = [axes[-back] for axes in (first, second) if back <= len(axes)]
        labelled = [operand for operand in pair if operand is not None]
        if len(labelled) == 2:
            scope.labels.unite(labelled[0], labelled[1])
        elif len(pair) == 2:
            scope.freeze(labelled, f"{scope.operation.name} multiplies it with channels that stay")
            labelled = []
        batch.append(labelled[0] if labelled else None)
    scope.emit([*batch, first[-2], second[-1]])


def _contract(scope: Scope, first: Axis, second: Axis) -> None:
    if first is None or second is None:
        scope.freeze([first, second], f"{scope.operation.name} multiplies it with channels that stay")
        return
    scope.labels.unite(first, second)
    scope.labels.mix(first)


def einsum(scope: Scope) -> None:
    subscripts = scope.operation.subscripts.replace(" ", "")
    operands = list(scope.node.args)
    if "..." in subscripts or "->" not in subscripts or not all(isinstance(leaf, Ref) for leaf in operands):
        return unknown(scope)
    terms, result = subscripts.split("->")
    axes_of: dict[str, list[Axis]] = {}
    lengths: dict[str, int] = {}
    for term, operand in zip(terms.split(","), operands, strict=True):
        lengths |= zip(term, scope.shape(operand.index), strict=True)
        for letter, axis in zip(term, scope.axes(operand.index), strict=True):
            axes_of.setdefault(letter, []).append(axis)
    labels_of: dict[str, Any] = {}
    for letter, axes in axes_of.items():
        labelled = [axis for axis in axes if axis is not None]
        if len(labelled) < len(axes) or (letter not in result and len(axes) == 1):
            scope.freeze(labelled, f"{scope.operation.name} combines it with channels that stay")
            continue
        for axis in labelled[1:]:
            scope.labels.unite(labelled[0], axis)
        if letter not in result:
            scope.labels.mix(labelled[0])
        labels_of[letter] = labelled[0]
    if len(operands) < 3:  # of more, it depends on the order; one alone is not multiplied
        scope.count(len(operands) - 1, lengths.values(), tuple(map(labels_of.get, lengths)))
    scope.emit([labels_of.get(letter) for letter in result])


LAYERS: dict[type, Rule] = {
    **dict.fromkeys(
        (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum),
        elementwise_of_several,
    ),
    layers.Concatenate: concatenate,
    layers.Softmax: along_axis,
    layers.UnitNormalization: along_axis,
    layers.Rescaling: rescaling,
}
