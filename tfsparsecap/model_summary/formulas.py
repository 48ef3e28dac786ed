"""Formulas for the multiply-adds of layers: with each weight, and in products of two activations."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import layers

from tfsparsecap.core import keras_internals

#: Name of a layer's weight -> number of multiply-adds in one call per element of the weight; names that the
#: layer does not have are ignored. `PRODUCT` -> multiply-adds of two activations, such as attention scores.
Uses = dict[str, int]
PRODUCT = ""
#: Classes of functions of `keras.ops` that multiply matrices; in functional models they are not layers.
PRODUCT_OPERATIONS = {
    "Conv", "ConvTranspose", "DepthwiseConv", "Dot", "Einsum", "Inner", "Matmul", "SeparableConv",
    "Tensordot", "Vdot",
}  # fmt: skip
#: `formula(layer, arguments by name, output) -> Uses`. Raises ValueError if a shape is not known.
Formula = Callable[[keras.Layer, dict[str, Any], object], Uses]


def size_of(lengths: Iterable[int]) -> int:
    """Product of lengths that must all be known."""
    lengths = tuple(lengths)
    if None in lengths:
        raise ValueError("a length is not known")
    return math.prod(lengths)


def register(*kinds: type[keras.Layer], method: str = "call") -> Callable[[Formula], Formula]:
    """Registers the formula of layers, and of their subclasses, for `sc.summary` and `sc.slim`.

    Args:
        kinds: classes of layers.
        method: the method of the layers whose calls the formula counts.

    Examples:
        >>> class Gram(keras.layers.Layer):
        ...     def call(self, x):
        ...         return keras.ops.matmul(x, keras.ops.transpose(x, (0, 2, 1)))
        >>> @register(Gram)
        ... def gram(layer, arguments, output):
        ...     return {PRODUCT: size_of(output.shape) * arguments["x"].shape[-1]}
    """

    def add(formula: Formula) -> Formula:
        _FORMULAS.update(dict.fromkeys(kinds, formula))
        _METHODS.update(dict.fromkeys(kinds, method))
        return formula

    return add


def formula_of(layer: keras.Layer) -> Formula | None:
    """Returns the formula of a layer or of its base class, or None."""
    return next((_FORMULAS[kind] for kind in type(layer).__mro__ if kind in _FORMULAS), None)


def method_of(layer: keras.Layer) -> str:
    """Returns the name of the method that a layer's formula counts."""
    method = next((_METHODS[kind] for kind in type(layer).__mro__ if kind in _METHODS), "call")
    return "quantized_call" if method == "call" and layer.quantization_mode is not None else method


def has_uncounted_operations(layer: keras.Layer, method: str = "call") -> bool:
    """Whether a layer may contain products that no formula counts, given the method that computes them.

    Keras's layers without a formula only combine other layers or work element by element, except for those
    with a kernel.
    """
    if isinstance(layer, layers.RNN):
        return not all(isinstance(cell, _CELLS) for cell in cells_of(layer.cell))
    for kind in type(layer).__mro__:
        if method in vars(kind) and not kind.__module__.startswith("tfsparsecap.pruning"):
            break
    if not kind.__module__.startswith(("keras.", "tfsparsecap.")) or kind.__name__ in _ARBITRARY:
        return formula_of(layer) is None
    own = keras_internals.own_weights(layer)
    return formula_of(layer) is None and any("kernel" in variable.name for variable in own)


def cells_of(cell: keras.Layer) -> list[keras.Layer]:
    """Returns the cells of a recurrent layer; `StackedRNNCells` has several."""
    if not hasattr(cell, "cells"):
        return [cell]
    return [leaf for nested in cell.cells for leaf in cells_of(nested)]


def _first(arguments: dict[str, Any]) -> Any:
    return next(iter(arguments.values()))


def _positions(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    """Dense and recurrent layers use their matrices for every vector of the input."""
    return dict.fromkeys(("kernel", "recurrent_kernel"), size_of(_first(arguments).shape[:-1]))


def _einsum_dense(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    # The number of output elements that use the same element of the kernel.
    operands, outputs = layer.equation.replace(" ", "").split("->")
    kernel = zip(operands.split(",")[1], layer.kernel.shape, strict=True)
    return {"kernel": size_of(output.shape) // size_of(n for letter, n in kernel if letter in outputs)}


def _convolution(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    positions = size_of(output.shape) // layer.filters
    return dict.fromkeys(("kernel", "depthwise_kernel", "pointwise_kernel"), positions)


def _depthwise_convolution(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    return {"kernel": size_of(output.shape) // size_of(layer.kernel.shape[-2:])}


def _transposed_convolution(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    return {"kernel": size_of(_first(arguments).shape) // layer.kernel.shape[-1]}


def _embedding(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    if not arguments.get("reverse"):
        return {}
    name = "embeddings" if layer.tie_weights else "reverse_embeddings"
    return {name: size_of(_first(arguments).shape[:-1])}


def _multi_head_attention(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    query, value = arguments["query"].shape, arguments["value"].shape
    if isinstance(layer, layers.GroupQueryAttention):
        heads, features, axes = layer.num_query_heads, 2 * layer.head_dim, (1,)
    else:
        heads, features, axes = layer.num_heads, layer.key_dim + layer.value_dim, layer.attention_axes
    return {PRODUCT: size_of(query[:-1]) * heads * size_of(value[axis] for axis in axes) * features}


def _dot_attention(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    query, value = (tensor.shape for tensor in _first(arguments)[:2])
    features = value[-1] if isinstance(layer, layers.AdditiveAttention) else query[-1] + value[-1]
    return {PRODUCT: size_of(query[:-1]) * value[-2] * features}


def _dot(layer: Any, arguments: dict[str, Any], output: Any) -> Uses:
    axis = layer.axes if isinstance(layer.axes, int) else layer.axes[0]
    return {PRODUCT: size_of(output.shape) * _first(arguments)[0].shape[axis]}


_CELLS = (layers.LSTMCell, layers.GRUCell, layers.SimpleRNNCell)
#: Keras's layers that run user code.
_ARBITRARY = {"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"}
_FORMULAS: dict[type, Formula] = {
    **dict.fromkeys((layers.Dense, layers.RNN, *_CELLS), _positions),
    layers.EinsumDense: _einsum_dense,
    **dict.fromkeys((layers.Conv1D, layers.Conv2D, layers.Conv3D), _convolution),
    **dict.fromkeys((layers.SeparableConv1D, layers.SeparableConv2D), _convolution),
    **dict.fromkeys((layers.DepthwiseConv1D, layers.DepthwiseConv2D), _depthwise_convolution),
    **dict.fromkeys(
        (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose), _transposed_convolution
    ),
    layers.Embedding: _embedding,
    **dict.fromkeys((layers.MultiHeadAttention, layers.GroupQueryAttention), _multi_head_attention),
    **dict.fromkeys((layers.Attention, layers.AdditiveAttention), _dot_attention),
    layers.Dot: _dot,
}
#: Methods other than `call` whose calls a formula counts.
_METHODS: dict[type, str] = {}
