"""How convolutions, dense layers, embeddings and normalisations create, pass on and couple channels."""

import functools
import string
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.scope import Scope, positive_axes

#: `rule(scope)` sets the labels of the outputs.
Rule = Callable[[Scope], None]

#: Activations that compute each element by itself.
ELEMENTWISE = {
    "celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish",
    "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
    "soft_shrink", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
    "tanh_shrink", "threshold",
}  # fmt: skip


def is_elementwise(activation: Any) -> bool:
    """Whether an activation function is one of Keras's that compute each element by itself."""
    if activation is None or isinstance(activation, (layers.ReLU, layers.LeakyReLU, layers.ELU)):
        return True
    name, module = getattr(activation, "__name__", ""), getattr(activation, "__module__", "")
    return name in ELEMENTWISE and module.startswith("keras.")


def _check_activation(scope: Scope, created: list[Axis]) -> None:
    if not is_elementwise(getattr(scope.operation, "activation", None)):
        name = getattr(scope.operation.activation, "__name__", type(scope.operation.activation).__name__)
        scope.freeze(created, f"{scope.operation.name} has the activation {name}")


def _channels_last(rule: Callable[[Scope, Axis], Axis]) -> Rule:
    """A rule from a function that takes the channels of the input and returns those of the output."""

    @functools.wraps(rule)
    def channels_last_rule(scope: Scope) -> None:
        if getattr(scope.operation, "data_format", "channels_last") == "channels_first":
            scope.info.is_unknown = True
            scope.freeze_all(f"{scope.operation.name} has channels first")
            return scope.emit_channels(None)
        channels = rule(scope, scope.tie("inputs", scope.channels(scope.only)))
        _check_activation(scope, [channels])
        scope.emit_channels(channels)

    return channels_last_rule


@_channels_last
def convolution(scope: Scope, into: Axis) -> Axis:
    layer = scope.operation
    spatial: list[Axis] = [None] * len(layer.kernel_size)
    if into is not None and layer.groups == len(into):  # as a depthwise convolution
        passed = np.repeat(into, layer.filters // len(into))
        scope.kernel(layer.kernel, *spatial, None, passed, creates=(len(spatial) + 1,))
        scope.slot(layer.bias, passed)
        scope.info.sizes |= {"filters": lambda count: count(passed), "groups": lambda count: count(into)}
        return passed
    created = scope.create("channels", layer.filters, size="filters")
    if layer.groups > 1:
        if into is not None:
            scope.labels.unite_rows(into.reshape(layer.groups, -1).T)
        scope.labels.unite_rows(created.reshape(layer.groups, -1).T)
    kernel_into = into if into is None else into[: len(into) // layer.groups]
    scope.kernel(layer.kernel, *spatial, kernel_into, created, creates=(len(spatial) + 1,))
    scope.slot(layer.bias, created)
    scope.fold(layer.kernel, len(spatial), into)
    return created


@_channels_last
def transposed_convolution(scope: Scope, into: Axis) -> Axis:
    layer = scope.operation
    created = scope.create("channels", layer.filters, size="filters")
    spatial: list[Axis] = [None] * len(layer.kernel_size)
    scope.kernel(layer.kernel, *spatial, created, into, creates=(len(spatial),))
    scope.slot(layer.bias, created)
    scope.fold(layer.kernel, len(spatial) + 1, into)
    return created


@_channels_last
def depthwise_convolution(scope: Scope, into: Axis) -> Axis:
    layer = scope.operation
    passed = None if into is None else np.repeat(into, layer.depth_multiplier)
    spatial: list[Axis] = [None] * len(layer.kernel_size)
    # A depthwise kernel scales channels that others create; it counts for importance only.
    scope.kernel(layer.kernel, *spatial, into, None, creates=() if into is None else (len(spatial),))
    scope.slot(layer.bias, passed)
    return passed


@_channels_last
def separable_convolution(scope: Scope, into: Axis) -> Axis:
    layer = scope.operation
    passed = None if into is None else np.repeat(into, layer.depth_multiplier)
    created = scope.create("channels", layer.filters, size="filters")
    spatial: list[Axis] = [None] * len(layer.kernel_size)
    scope.slot(layer.depthwise_kernel, *spatial, into, None)
    scope.kernel(layer.pointwise_kernel, *spatial, passed, created, creates=(len(spatial) + 1,))
    scope.slot(layer.bias, created)

    def depthwise(inputs: Any) -> Any:
        options = {"padding": layer.padding, "dilation_rate": layer.dilation_rate}
        return keras.ops.depthwise_conv(inputs, layer.depthwise_kernel, layer.strides, **options)

    scope.fold(layer.pointwise_kernel, len(spatial), passed, before=depthwise)
    return created


def dense(scope: Scope) -> None:
    layer, inputs = scope.operation, scope.axes(scope.only)
    into = scope.tie("inputs", inputs[-1])
    created = scope.create("units", layer.units, size="units")
    scope.kernel(layer.kernel, into, created, creates=(1,))
    scope.slot(layer.bias, created)
    scope.fold(layer.kernel, 0, into)
    _check_activation(scope, [created])
    scope.emit([*inputs[:-1], created])


def einsum_dense(scope: Scope) -> None:
    layer, inputs = scope.operation, scope.axes(scope.only)
    operands, result = layer.equation.replace(" ", "").split("->")
    first, second = operands.split(",")
    # The output shape does not contain the axes of an ellipsis at the end.
    from_second_axis = first.endswith("...")
    if "..." in first:
        missing = len(inputs) - len(first.replace("...", ""))
        free = [letter for letter in string.ascii_letters if letter not in layer.equation]
        extra = "".join(free[:missing])
        first, result = first.replace("...", extra), result.replace("...", extra)
    labels_of = dict(zip(first, inputs, strict=True))
    sizes = dict(zip(second, layer.kernel.shape, strict=True))
    created = [letter for letter in second if letter not in labels_of]
    for letter in second:
        if letter in labels_of:
            labels_of[letter] = scope.tie(f"inputs {letter}", labels_of[letter])
        else:
            labels_of[letter] = scope.create(f"units {letter}", sizes[letter])
    into = [letter for letter in second if letter in first]
    creates = tuple(second.index(letter) for letter in created)
    scope.kernel(layer.kernel, *(labels_of[letter] for letter in second), creates=creates)
    summed = [labels_of[letter] for letter in first if letter not in second and letter not in result]
    scope.freeze(summed, f"{layer.name} sums the channels")
    if layer.bias is not None:
        letters = result[len(result) - len(layer.bias.shape) :]
        lengths = list(zip(letters, layer.bias.shape, strict=True))
        scope.slot(layer.bias, *(labels_of[letter] if length > 1 else None for letter, length in lengths))
        if layer.bias.shape[-1] == 1 and sum(length > 1 for _, length in lengths) == 1:
            # keras.ops.add takes such a bias for one of another axis that happens to be as long.
            scope.freeze(
                [labels_of[letter] for letter in result], f"{layer.name} has no bias in its last axis"
            )
    for letter in into:
        if letter in result:
            continue
        if len(into) == 1:
            position = first.index(letter) - len(first)
            scope.fold(layer.kernel, second.index(letter), labels_of[letter], position=position)
        else:
            scope.labels.mix(labels_of[letter])
    shape = layer.get_config()["output_shape"]
    shape = [shape] if isinstance(shape, int) else list(shape)
    start = 1 if from_second_axis else len(result) - len(shape)
    of_shape = [labels_of.get(letter) for letter in result[start : start + len(shape)]]
    scope.info.sizes["output_shape"] = lambda count: [
        length if length is None or axis is None else count(axis)
        for length, axis in zip(shape, of_shape, strict=True)
    ]
    _check_activation(scope, [labels_of[letter] for letter in created])
    scope.emit([labels_of[letter] for letter in result])


def embedding(scope: Scope) -> None:
    layer = scope.operation
    scope.freeze_all(f"{layer.name} looks up its input")
    created = scope.create("units", layer.output_dim, size="output_dim")
    scope.kernel(layer.embeddings, None, created, creates=(1,))
    scope.emit_channels(created)


def batch_normalization(scope: Scope) -> None:
    layer, inputs = scope.operation, scope.axes(scope.only)
    axis, *others = positive_axes(layer.axis, len(inputs))
    if others:
        return unknown(scope)
    passed = scope.tie("inputs", inputs[axis])
    for variable in (layer.gamma, layer.beta, layer.moving_mean, layer.moving_variance):
        scope.slot(variable, passed)
    if layer.gamma is not None:
        scope.info.scales = [id(layer.gamma)]
    scope.emit(inputs)


def layer_normalization(scope: Scope) -> None:
    """Layer and RMS normalisation of the last axis."""
    layer, inputs = scope.operation, scope.axes(scope.only)
    if positive_axes(getattr(layer, "axis", -1), len(inputs)) != [len(inputs) - 1]:
        return unknown(scope)
    passed = scope.tie("inputs", inputs[-1])
    for name in ("gamma", "beta", "scale"):
        variable = getattr(layer, name, None)
        if variable is not None and not isinstance(variable, bool):
            scope.slot(variable, passed)
    scope.labels.mix(passed)
    scope.emit(inputs)


def group_normalization(scope: Scope) -> None:
    layer, inputs = scope.operation, scope.axes(scope.only)
    if layer.axis not in (-1, len(inputs) - 1):
        return unknown(scope)
    passed = scope.tie("inputs", inputs[-1])
    if passed is not None:
        groups = len(passed) if layer.groups == -1 else layer.groups
        if groups == len(passed):  # the new layer has as many groups as channels
            scope.info.sizes["groups"] = lambda count: -1
        else:
            scope.labels.unite_rows(passed.reshape(groups, -1).T)
            scope.labels.mix(passed)
    for variable in (layer.gamma, layer.beta):
        scope.slot(variable, passed)
    scope.emit(inputs)


def scaling(scope: Scope) -> None:
    """Layers with one weight or none for each channel: PReLU, and LayerScale of ConvNeXt."""
    layer, inputs = scope.operation, scope.axes(scope.only)
    for variable in layer.weights:
        same = len(variable.shape) > 0 and variable.shape[-1] > 1
        if same and inputs[-1] is not None:
            if variable.shape[-1] != len(inputs[-1]):
                return unknown(scope)
            scope.slot(variable, *([None] * (len(variable.shape) - 1)), scope.tie("inputs", inputs[-1]))
        elif same:
            scope.freeze([*inputs], f"{layer.name} scales a fixed number of channels")
    if "projection_dim" in layer.get_config() and inputs[-1] is not None:
        passed = inputs[-1]
        scope.info.sizes["projection_dim"] = lambda count: count(passed)
    scope.emit(inputs)


def custom_scale(scope: Scope) -> None:
    """InceptionResNetV2's `inputs[0] + scale * inputs[1]`."""
    scope.emit(scope.broadcast([*keras.tree.flatten(scope.node.args)], f"{scope.operation.name} adds to it"))


def unknown(scope: Scope) -> None:
    """A layer or operation without a rule keeps all channels that it takes, and those of its weights."""
    kind = type(scope.operation).__name__
    reason = f"{scope.operation.name} ({kind}) has no rule"
    scope.info.is_unknown = True
    scope.freeze_all(reason)
    # An earlier call may have had a rule.
    scope.freeze([axis for axes in scope.info.slots.values() for axis in axes], reason)
    for position, index in enumerate(scope.node.outputs):
        scope.emit([None] * len(scope.shape(index)), position)


LAYERS: dict[type, Rule] = {
    **dict.fromkeys((layers.Conv1D, layers.Conv2D, layers.Conv3D), convolution),
    **dict.fromkeys(
        (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose), transposed_convolution
    ),
    **dict.fromkeys((layers.DepthwiseConv1D, layers.DepthwiseConv2D), depthwise_convolution),
    **dict.fromkeys((layers.SeparableConv1D, layers.SeparableConv2D), separable_convolution),
    layers.Dense: dense,
    layers.EinsumDense: einsum_dense,
    layers.Embedding: embedding,
    layers.BatchNormalization: batch_normalization,
    layers.LayerNormalization: layer_normalization,
    layers.RMSNormalization: layer_normalization,
    layers.GroupNormalization: group_normalization,
    layers.PReLU: scaling,
}
#: Layers that `keras.applications` defines for itself.
BY_NAME: dict[str, Rule] = {"LayerScale": scaling, "CustomScaleLayer": custom_scale}
