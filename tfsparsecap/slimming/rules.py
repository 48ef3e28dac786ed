"""Which rule a layer or operation has."""

from collections.abc import Callable
from typing import Any

import keras

from tfsparsecap.slimming import join_rules, layer_rules, sequence_rules, shape_rules
from tfsparsecap.slimming.layer_rules import Rule, unknown

_LAYERS: dict[type, Rule] = {
    **layer_rules.LAYERS,
    **shape_rules.LAYERS,
    **join_rules.LAYERS,
    **sequence_rules.LAYERS,
}
_ELEMENTWISE = """
    Absolute Cast Ceil Celu Clip Copy Cos Elu Erf Exp Expm1 Floor Gelu HardSigmoid HardSilu HardTanh LeakyRelu
    Log Log1p LogSigmoid Negative OnesLike Reciprocal Relu Relu6 Round Rsqrt Selu Sigmoid Sign Silu Sin
    Softplus Softsign Sqrt Square Squareplus StopGradient Tanh ZerosLike
"""
_SEVERAL = "Add Divide Maximum Minimum Multiply Power Subtract TrueDivide"
_REDUCTIONS = "Amax Amin Max Mean Min Prod Std Sum Var"
#: Operations of `keras.ops`, by the name of their class.
_OPERATIONS: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), shape_rules.unchanged),
    **dict.fromkeys(_SEVERAL.split(), join_rules.elementwise_of_several),
    **dict.fromkeys(("Cumsum", "LogSoftmax", "Softmax"), join_rules.along_axis),
    **dict.fromkeys(_REDUCTIONS.split(), join_rules.reduction),
    **dict.fromkeys(("Swapaxes", "Transpose"), shape_rules.permute),
    "Reshape": shape_rules.reshape,
    "BroadcastTo": shape_rules.broadcast_to,
    "Concatenate": join_rules.concatenate,
    "Einsum": join_rules.einsum,
    "ExpandDims": shape_rules.expand_dims,
    "GetItem": shape_rules.get_item,
    "Matmul": join_rules.matmul,
    "Pad": shape_rules.pad,
    "Split": join_rules.split,
    "Squeeze": shape_rules.squeeze,
    "Stack": join_rules.stack,
}
#: Layers of other packages that drop whole examples or regions.
_DROPPING = {"StochasticDepth", "DropPath", "DropBlock2D"}


def register(*kinds: type[keras.Layer]) -> Callable[[Rule], Rule]:
    """Registers the rule of layers, for `sc.slim`; subclasses need rules of their own.

    Args:
        kinds: classes of layers.

    Examples:
        >>> class Scaled(keras.layers.Layer):
        ...     def call(self, x):
        ...         return 2 * x
        >>> @register(Scaled)
        ... def scaled(scope):
        ...     scope.emit(scope.axes(scope.only))
    """

    def add(rule: Rule) -> Rule:
        _LAYERS.update(dict.fromkeys(kinds, rule))
        return rule

    return add


def rule_of(operation: Any) -> Rule:
    """Returns the rule of a layer or operation; that of unknown ones keeps all channels.

    Only the classes themselves have rules: a subclass may compute anything.
    """
    kind = type(operation)
    if isinstance(operation, keras.Layer):
        if getattr(operation, "lora_enabled", False) or operation.quantization_mode is not None:
            return unknown
        if kind.__name__ in _DROPPING:
            return join_rules.dropping
        if kind.__module__.startswith("keras.src.applications"):
            return layer_rules.BY_NAME.get(kind.__name__, unknown)
        if kind.__module__.startswith("keras_hub."):
            return sequence_rules.OF_HUB.get(kind.__name__, unknown)
        return _LAYERS.get(kind, unknown)
    if not kind.__module__.startswith("keras.src."):
        return unknown
    return _OPERATIONS.get(kind.__name__, unknown)
