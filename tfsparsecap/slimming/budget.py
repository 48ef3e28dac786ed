"""Parameters, multiply-adds, bytes and estimated latency of a model with any of its channels removed."""

import inspect
import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

from tfsparsecap.model_summary import formulas
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.labels import Axis
from tfsparsecap.slimming.operation_graph import Node, Ref, replace_refs

#: Multiply-adds per second of one desktop core: of dense layers and convolutions, and of depthwise ones,
#: elements that it moves per second, and seconds per operation. For estimates only.
DENSE_RATE, DEPTHWISE_RATE, ELEMENT_RATE, OVERHEAD = 2.5e10, 5e9, 1e9, 2e-6
_DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)


@dataclass(frozen=True)
class Cost:
    """What a model costs.

    Attributes:
        channels: sum of the channels of all layers that can lose some.
        parameters: number of weights.
        flops: multiply-adds of one example.
        bytes: of the weights as float32.
        latency: estimated milliseconds of one example on one desktop core.
    """

    channels: int
    parameters: int
    flops: int
    bytes: int
    latency: float


@dataclass(frozen=True)
class _Term:
    """`factor` times the product of the lengths of axes (numbers into `ChannelCosts._axes`)."""

    factor: float
    axes: tuple[int, ...]


class ChannelCosts:
    """Computes the costs of an analysed model quickly for many choices of channels."""

    def __init__(self, analysis: Analysis) -> None:
        self._axes: list[np.ndarray] = []
        self._numbers: dict[bytes, int] = {}
        self._parameters: list[_Term] = []
        self._products: list[_Term] = []
        self._seconds: list[_Term] = []
        sources = dict.fromkeys(source for group in analysis.groups for source in group.sources)
        self._channels = [np.arange(source.first, source.first + source.count) for source in sources]
        #: Names of layers and operations whose multiply-adds are not known.
        self.uncounted: list[str] = []
        for operation in analysis.graph.operations():
            if isinstance(operation, keras.Layer):
                for variable in operation.weights:
                    axes = analysis.info(operation).slots.get(id(variable))
                    self._parameters.append(self._term(1, tuple(variable.shape), axes))
        for node in analysis.graph.nodes:
            self._count(analysis, node)

    def __call__(self, alive: np.ndarray) -> Cost:
        """Returns the costs if the labels `alive` stay, bool [labels]."""
        lengths = [int(alive[axis].sum()) for axis in self._axes]

        def total(terms: list[_Term]) -> float:
            return sum(term.factor * math.prod(lengths[axis] for axis in term.axes) for term in terms)

        channels = sum(int(alive[axis].sum()) for axis in self._channels)
        parameters = round(total(self._parameters))
        latency = 1e3 * total(self._seconds)
        return Cost(channels, parameters, round(total(self._products)), 4 * parameters, latency)

    def _term(self, factor: float, shape: tuple[int, ...], axes: tuple[Axis, ...] | None) -> _Term:
        numbers = []
        for length, axis in zip(shape, axes or [None] * len(shape), strict=True):
            if axis is None:
                factor *= length
            else:
                numbers.append(self._number(axis))
        return _Term(factor, tuple(numbers))

    def _number(self, axis: np.ndarray) -> int:
        key = axis.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._axes)
            self._axes.append(axis)
        return self._numbers[key]

    def _count(self, analysis: Analysis, node: Node) -> None:
        shapes = analysis.graph.shapes
        for index in node.outputs:
            moved = self._term(1, shapes[index], tuple(analysis.axes[index]))
            self._seconds.append(_Term(moved.factor / ELEMENT_RATE, moved.axes))
        self._seconds.append(_Term(OVERHEAD, ()))
        operation, products = node.operation, self._products_of(analysis, node)
        depthwise = isinstance(operation, _DEPTHWISE) or getattr(operation, "groups", 1) > 8
        rate = DEPTHWISE_RATE if depthwise else DENSE_RATE
        self._products += products
        self._seconds += [_Term(product.factor / rate, product.axes) for product in products]

    def _products_of(self, analysis: Analysis, node: Node) -> list[_Term]:
        shapes, operation, info = analysis.graph.shapes, node.operation, analysis.info(node.operation)
        if node.outputs[0] in info.products:
            return [self._term(*product) for product in info.products[node.outputs[0]]]
        if not isinstance(operation, keras.Layer):
            if type(operation).__name__ != "Matmul":
                if type(operation).__name__ in formulas.PRODUCT_OPERATIONS:
                    self.uncounted.append(operation.name)
                return []
            first = node.inputs[0]
            out = node.outputs[0]
            every = (*shapes[out], shapes[first][-1])
            return [self._term(1, every, (*analysis.axes[out], analysis.axes[first][-1]))]
        parts = [operation]
        if isinstance(operation, layers.Bidirectional):
            parts = [operation.forward_layer, operation.backward_layer]
        elif isinstance(operation, layers.TimeDistributed):
            parts = [operation.layer]
        elif isinstance(operation, layers.MultiHeadAttention):
            parts = [operation.query_dense, operation.key_dense, operation.value_dense]
        products = []
        for part in parts:
            products += self._kernels(analysis, node, part)
        if isinstance(operation, layers.MultiHeadAttention) and info.slots:
            products += self._attention(analysis, node)
        return products

    def _kernels(self, analysis: Analysis, node: Node, layer: Any) -> list[_Term]:
        formula = formulas.formula_of(layer)
        if formula is None:
            if formulas.has_uncounted_operations(layer):
                self.uncounted.append(layer.name)
            return []
        shapes, info = analysis.graph.shapes, analysis.info(node.operation)
        specs = {index: keras.KerasTensor(shapes[index]) for index in [*node.inputs, *node.outputs]}
        args, kwargs = replace_refs((node.args, node.kwargs), specs.__getitem__)
        try:
            arguments = inspect.signature(node.operation.call).bind(*args, **kwargs).arguments
            if layer is not node.operation:
                position = {"key": 1, "value": 1}.get(layer.name, 0)
                arguments = {"inputs": list(arguments.values())[min(position, len(arguments) - 1)]}
            if isinstance(layer, layers.EinsumDense) and layer is not node.operation:
                size = math.prod(arguments["inputs"].shape[:-1])
                uses = {"kernel": size}
            else:
                uses = formula(layer, arguments, specs[node.outputs[0]])
        except (TypeError, ValueError, AttributeError, KeyError):
            self.uncounted.append(layer.name)
            return []
        return [
            self._term(uses[variable.name], tuple(variable.shape), info.slots.get(id(variable)))
            for variable in layer.weights
            if variable.name in uses
        ]

    def _attention(self, analysis: Analysis, node: Node) -> list[_Term]:
        """Scores, weighted values, and the output layer of MultiHeadAttention."""
        shapes, labels_of = analysis.graph.shapes, analysis.info(node.operation).labels_of
        refs = [leaf for leaf in [*node.args, *node.kwargs.values()] if isinstance(leaf, Ref)]
        queries = math.prod(shapes[refs[0].index][:-1])
        values = math.prod(shapes[refs[1].index][1:-1])
        heads = labels_of["heads"]
        scores = self._term(queries * values, (0, 0), (heads, labels_of["key size"]))
        weighted_values = self._term(queries * values, (0, 0), (heads, labels_of["value size"]))
        kernel = node.operation.output_dense.kernel
        slots = analysis.info(node.operation).slots.get(id(kernel))
        output = self._term(queries, tuple(kernel.shape), slots)
        return [scores, weighted_values, output]
