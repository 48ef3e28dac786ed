"""How pooling, reshaping and slicing move channels."""

import math
from typing import Any

import numpy as np
from keras import layers

from tfsparsecap.slimming.layer_rules import Rule, is_elementwise, unknown
from tfsparsecap.slimming.scope import Axes, Count, Scope, positive_axes


def unchanged(scope: Scope) -> None:
    """Each element of the output depends on the same element of the input."""
    scope.emit(scope.axes(scope.only))


def activation(scope: Scope) -> None:
    if is_elementwise(scope.operation.activation):
        return unchanged(scope)
    name = getattr(scope.operation.activation, "__name__", "function")
    scope.freeze_all(f"{scope.operation.name} applies {name}")
    scope.emit([None] * len(scope.shape(scope.only)))


def spatial(scope: Scope) -> None:
    """Pooling, padding, cropping, up-sampling and repetition: only the last axis may lose channels."""
    if getattr(scope.operation, "data_format", "channels_last") == "channels_first":
        return unknown(scope)
    scope.emit_channels(scope.channels(scope.only))


def flatten(scope: Scope) -> None:
    if getattr(scope.operation, "data_format", "channels_last") == "channels_first":
        return unknown(scope)
    reshape(scope)


def _segments(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Splits two shapes of the same size into the shortest runs of axes of the same size."""
    segments: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old_axes: list[int] = []
        new_axes: list[int] = []
        old_size = new_size = 1
        while not old_axes or not new_axes or old_size != new_size:
            if i < len(before) and (not old_axes or (new_axes and old_size < new_size) or j >= len(after)):
                old_size *= before[i]
                old_axes.append(i)
                i += 1
            elif j < len(after):
                new_size *= after[j]
                new_axes.append(j)
                j += 1
            else:
                break
        segments.append((old_axes, new_axes))
    return segments


def _merge(scope: Scope, axes: Axes, old_axes: list[int], shape: tuple[int, ...], after: list[int]) -> Axes:
    """Labels of the axes that a run of axes becomes."""
    before = [shape[i] for i in old_axes]
    labelled = [i for i in old_axes if axes[i] is not None]
    if not labelled:
        return [None] * len(after)
    chosen = axes[labelled[0]]
    assert chosen is not None
    if len(labelled) > 1:
        scope.freeze([axes[i] for i in labelled], f"{scope.operation.name} merges two axes with channels")
        return [None] * len(after)
    position = old_axes.index(labelled[0])
    column = chosen.reshape([-1 if i == position else 1 for i in range(len(old_axes))])
    table = np.broadcast_to(column, before).reshape(after)
    varying = [
        axis
        for axis in range(len(after))
        if after[axis] > 1 and not np.array_equal(table, np.broadcast_to(np.take(table, [0], axis), after))
    ]
    if len(varying) > 1 and len(old_axes) == 1:
        # The channels are split: heads if the next operation moves them away, otherwise the last axis.
        channel_axis = varying[0] if len(varying) == 2 and _becomes_heads(scope) else varying[-1]
        rows = np.moveaxis(table, channel_axis, 0).reshape(after[channel_axis], -1)
        scope.labels.unite_rows(rows)
        varying = [channel_axis]
    if len(varying) > 1:
        scope.freeze([chosen], f"{scope.operation.name} spreads channels over several axes")
        return [None] * len(after)
    channel_axis = varying[0] if varying else len(after) - 1
    first = np.moveaxis(table, channel_axis, 0).reshape(after[channel_axis], -1)[:, 0]
    return [first if axis == channel_axis else None for axis in range(len(after))]


def _becomes_heads(scope: Scope) -> bool:
    moving = {"Transpose", "Permute", "Swapaxes", "Moveaxis", "Einsum"}
    return any(type(call.operation).__name__ in moving for call in scope.consumers())


def reshape(scope: Scope) -> None:
    """Reshape and Flatten: the new target is computed from the labels of the output."""
    shape, target = scope.shape(scope.only), scope.shape(scope.node.outputs[0])
    if 0 in shape or math.prod(shape) != math.prod(target):
        return unknown(scope)
    axes = scope.axes(scope.only)
    result: Axes = []
    for old_axes, new_axes in _segments(shape, target):
        if not new_axes:
            continue
        if not old_axes:  # lengths of one
            result += [None] * len(new_axes)
        else:
            result += _merge(scope, axes, old_axes, shape, [target[j] for j in new_axes])
    config = scope.operation.get_config()
    key = next((name for name in ("target_shape", "newshape") if name in config), None)
    if key is not None:
        lengths = [config[key]] if isinstance(config[key], int) else list(config[key])
        pairs = list(zip(lengths, result[len(result) - len(lengths) :], strict=True))
        scope.info.sizes[key] = lambda count: tuple(
            length if axis is None or length in (-1, None) else count(axis) for length, axis in pairs
        )
        scope.tie_calls(range(len(axes)))
    scope.emit(result)


def permute(scope: Scope) -> None:
    axes = scope.axes(scope.only)
    config = scope.operation.get_config()
    if "dims" in config:
        order = [0, *config["dims"]]
    elif config.get("axes") is not None:
        order = list(config["axes"])
    elif "axis1" in config:
        order = list(range(len(axes)))
        first, second = config["axis1"], config["axis2"]
        order[first], order[second] = order[second], order[first]
    else:
        order = list(range(len(axes)))[::-1]
    scope.emit([axes[place] for place in order])


def expand_dims(scope: Scope) -> None:
    rank = len(scope.shape(scope.node.outputs[0]))
    old_axes = iter(scope.axes(scope.only))
    new_places = positive_axes(scope.operation.axis, rank)
    scope.emit([None if place in new_places else next(old_axes) for place in range(rank)])


def squeeze(scope: Scope) -> None:
    if scope.operation.axis is None:
        return unknown(scope)
    axes = scope.axes(scope.only)
    gone = positive_axes(scope.operation.axis, len(axes))
    scope.freeze([axes[place] for place in gone], f"{scope.operation.name} removes the axis")
    scope.emit([axis for place, axis in enumerate(axes) if place not in gone])


def get_item(scope: Scope) -> None:
    """Slices with step 1 and single positions of axes; channels may be sliced, not picked."""
    axes, shape = scope.axes(scope.only), scope.shape(scope.only)
    key = scope.argument(1, "key")
    key = list(key) if isinstance(key, (tuple, list)) else [key]
    if any(not (index is None or index is Ellipsis or isinstance(index, (int, slice))) for index in key):
        return unknown(scope)
    if Ellipsis in key:
        at = key.index(Ellipsis)
        missing = len(axes) - sum(index is not None and index is not Ellipsis for index in key)
        key[at : at + 1] = [slice(None)] * missing
    key += [slice(None)] * (len(axes) - sum(index is not None for index in key))
    result: Axes = []
    cut: dict[int, tuple[np.ndarray, int, int]] = {}
    sliced: list[int] = []
    position = 0
    for place, index in enumerate(key):
        if index is None:
            result.append(None)
            continue
        axis = axes[position]
        if isinstance(index, slice) and index != slice(None):
            sliced.append(position)
        if isinstance(index, int):
            scope.freeze([axis], f"{scope.operation.name} picks a channel")
        elif axis is None or index == slice(None):
            result.append(axis)
        elif index.step not in (None, 1):
            scope.freeze([axis], f"{scope.operation.name} picks channels")
            result.append(None)
        else:
            start, stop, _ = index.indices(shape[position])
            result.append(axis[start:stop])
            cut[place] = (axis, start, stop)
        position += 1
    scope.tie_calls(sliced)
    if cut:

        def moved(
            args: tuple[Any, ...], kwargs: dict[str, Any], count: Count
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            new = [
                slice(count(cut[place][0][: cut[place][1]]), count(cut[place][0][: cut[place][2]]))
                if place in cut
                else index
                for place, index in enumerate(key)
            ]
            return (args[0], tuple(new)), {}

        scope.info.arguments = moved
    scope.emit(result)


def pad(scope: Scope) -> None:
    """Padding with zeros; channels that are padded are new ones, which may be removed like others."""
    axes, operation = scope.axes(scope.only), scope.operation
    pad_width = operation.get_config()["pad_width"]
    if not isinstance(pad_width, (list, tuple)) or len(pad_width) != len(axes):
        return unknown(scope)
    widths = [list(width_of_axis) for width_of_axis in pad_width]
    labels = axes[-1]
    if operation.mode != "constant" or scope.argument(1, "constant_values"):
        return unknown(scope)
    before, after = widths[-1]
    if any(axis is not None and any(width) for axis, width in zip(axes[:-1], widths[:-1], strict=True)):
        return unknown(scope)
    if labels is not None and before + after:
        first, last = scope.create("zeros before", before), scope.create("zeros after", after)
        axes[-1] = np.concatenate([first, labels, last])
        scope.info.sizes["pad_width"] = lambda count: [*widths[:-1], [count(first), count(last)]]
    scope.emit(axes)


def broadcast_to(scope: Scope) -> None:
    axes = scope.axes(scope.only)
    target = scope.shape(scope.node.outputs[0])
    lengths = list(scope.operation.shape)
    result: Axes = [*([None] * (len(target) - len(axes))), *axes]
    for place, axis in enumerate(result):
        if axis is not None and len(axis) != target[place]:
            scope.freeze([axis], f"{scope.operation.name} repeats it")
            result[place] = None
    scope.tie_calls(range(len(axes)))
    scope.info.sizes["shape"] = lambda count: tuple(
        length if axis is None else count(axis) for length, axis in zip(lengths, result, strict=True)
    )
    scope.emit(result)


_UNCHANGED_LAYERS = (
    layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D,
    layers.GaussianDropout, layers.GaussianNoise, layers.AlphaDropout, layers.ActivityRegularization,
    layers.Identity, layers.ReLU, layers.LeakyReLU, layers.ELU, layers.Masking,
)  # fmt: skip
_SPATIAL = (
    layers.MaxPooling1D, layers.MaxPooling2D, layers.MaxPooling3D, layers.AveragePooling1D,
    layers.AveragePooling2D, layers.AveragePooling3D, layers.ZeroPadding1D, layers.ZeroPadding2D,
    layers.ZeroPadding3D, layers.Cropping1D, layers.Cropping2D, layers.Cropping3D, layers.UpSampling1D,
    layers.UpSampling2D, layers.UpSampling3D, layers.Resizing, layers.RepeatVector,
    layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D, layers.GlobalAveragePooling3D,
    layers.GlobalMaxPooling1D, layers.GlobalMaxPooling2D, layers.GlobalMaxPooling3D,
)  # fmt: skip
LAYERS: dict[type, Rule] = {
    **dict.fromkeys(_UNCHANGED_LAYERS, unchanged),
    **dict.fromkeys((layers.Activation,), activation),
    **dict.fromkeys(_SPATIAL, spatial),
    layers.Flatten: flatten,
    layers.Reshape: reshape,
    layers.Permute: permute,
}
