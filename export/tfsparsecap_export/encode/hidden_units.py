"""Removing hidden units that pruning left without inputs or without outputs.

Between two fully connected layers, a unit without outputs changes nothing, and one without inputs is a
constant, which the bias of the second layer can contain. Without them both matrices are smaller, and the
outputs are the same.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import numpy as np

from tfsparsecap_export.encode import sparse
from tfsparsecap_export.encode.sparse import FULLY_CONNECTED, FileWeight
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

_ACTIVATIONS = schema.ActivationFunctionType
_BLOCK = 16
#: Layers without the units must take less than this share of the time.
_FASTER = 0.98


def _gelu(x: np.ndarray, operator: schema.OperatorT) -> np.ndarray:
    if operator.builtinOptions.approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


#: Operations on each number by itself that may stand between the layers.
_ELEMENTWISE = {
    "GELU": _gelu,
    "RELU": lambda x, operator: np.maximum(x, 0),
    "RELU6": lambda x, operator: np.clip(x, 0, 6),
    "TANH": lambda x, operator: np.tanh(x),
    "LOGISTIC": lambda x, operator: 1 / (1 + np.exp(-x)),
    "HARD_SWISH": lambda x, operator: x * np.clip(x + 3, 0, 6) / 6,
    "ELU": lambda x, operator: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
}
_FUSED = {
    _ACTIVATIONS.NONE: lambda x: x,
    _ACTIVATIONS.RELU: lambda x: np.maximum(x, 0),
    _ACTIVATIONS.RELU6: lambda x: np.clip(x, 0, 6),
}


@dataclasses.dataclass(frozen=True)
class Hidden:
    """The units between two layers.

    Attributes:
        graph: their graph.
        first, second: the weights of the layers, float32 [units, inputs] and [outputs, units].
        operators: the two FULLY_CONNECTED.
        between: the operations between them.
        kept: bool [units], which units stay.
        bias: float32 [outputs], the bias of the second layer.
        contribution: float64 [outputs, units], what units without inputs, which are constants, add to it.
    """

    graph: schema.SubGraphT
    first: FileWeight
    second: FileWeight
    operators: tuple[schema.OperatorT, schema.OperatorT]
    between: tuple[schema.OperatorT, ...]
    kept: np.ndarray
    bias: np.ndarray
    contribution: np.ndarray

    def slim(self) -> Self:
        """The weights without the units that do not stay."""
        rows = self.first.values[self.kept]
        columns = np.ascontiguousarray(self.second.values[:, self.kept])
        return dataclasses.replace(
            self,
            first=dataclasses.replace(self.first, values=rows, shape=rows.shape),
            second=dataclasses.replace(self.second, values=columns, shape=columns.shape),
        )


def find(model: schema.ModelT, weights: list[FileWeight]) -> list[Hidden]:
    """The places of a dense float32 file where units can be removed.

    Args:
        model: from `flatfile.read_model`.
        weights: its weights, from `sparse.find_weights`.
    """
    products = {
        id(model.subgraphs[use.graph].operators[use.operator]): weight
        for weight in weights
        if weight.role == FULLY_CONNECTED and len(weight.uses) == 1
        for use in weight.uses
    }
    places = []
    for graph in model.subgraphs:
        readers = flatfile.readers(graph)
        for operator in graph.operators:
            first = products.get(id(operator))
            if first is None or operator.builtinOptions.fusedActivationFunction not in _FUSED:
                continue
            between: list[schema.OperatorT] = []
            tensor = int(operator.outputs[0])
            while len(readers[tensor]) == 1 and tensor not in graph.outputs:
                ((following, position),) = readers[tensor]
                second = products.get(id(following))
                if second is not None and position == 0:
                    if second.values.shape[1] == len(first.values):
                        hidden = _hidden(model, graph, first, second, operator, following, between)
                        if hidden is not None:
                            places.append(hidden)
                    break
                if flatfile.builtin_name(model, following) not in _ELEMENTWISE:
                    break
                between.append(following)
                tensor = int(following.outputs[0])
    return places


def worth_removing(model: schema.ModelT, costs_of: Callable[[Hidden], tuple[float, int]]) -> Hidden | None:
    """The first place where removing units makes a file faster, and not larger, or None.

    Blocks are 16 neighbouring inputs, so that a layer in blocks is faster only if whole blocks are removed.

    Args:
        model: a dense float32 file.
        costs_of: expected time and bytes of two layers.
    """
    for hidden in find(model, sparse.find_weights(model)):
        time, size = costs_of(hidden)
        in_blocks = np.repeat(
            np.add.reduceat(hidden.kept, np.arange(0, hidden.kept.size, _BLOCK)) > 0, _BLOCK
        )
        candidates = []
        for kept in (hidden.kept, in_blocks[: hidden.kept.size]):
            if kept.all():
                continue
            candidate = dataclasses.replace(hidden, kept=kept)
            faster, smaller = costs_of(candidate.slim())
            if faster < _FASTER * time and smaller <= size:
                candidates.append((faster, candidate))
        if candidates:
            return min(candidates, key=lambda pair: pair[0])[1]
    return None


def remove(model: schema.ModelT, hidden: Hidden) -> list[np.ndarray]:
    """Removes units, in place; returns the new weights of both layers.

    Results of `find` and `sparse.find_weights` become invalid.
    """
    graph, units = hidden.graph, int(hidden.kept.sum())
    first, second = hidden.operators
    slim = hidden.slim()
    for operator, weight in ((first, slim.first), (second, slim.second)):
        tensor = graph.tensors[int(operator.inputs[1])]
        tensor.buffer = flatfile.add_buffer(model, weight.values)
        tensor.shape = np.array(weight.shape, np.int32)
    bias = flatfile.constant(model, graph, flatfile.input_of(first, 2))
    if bias is not None:
        slim_bias = flatfile.add_constant(model, graph, bias.view(np.float32)[hidden.kept], "bias")
        first.inputs = np.array([*first.inputs[:2], slim_bias], np.int32)
    total = hidden.bias + hidden.contribution[:, ~hidden.kept].sum(axis=1)
    folded = flatfile.add_constant(model, graph, total.astype(np.float32), "bias")
    second.inputs = np.array([*second.inputs[:2], folded], np.int32)
    for operator in (first, *hidden.between):
        tensor = graph.tensors[int(operator.outputs[0])]
        for name in ("shape", "shapeSignature"):
            shape = getattr(tensor, name)
            if shape is not None and len(shape):
                setattr(tensor, name, np.array([*shape[:-1], units], np.int32))
    return [slim.first.values, slim.second.values]


def _hidden(model, graph, first, second, operator, following, between) -> Hidden | None:
    """What can be removed between two layers, or None."""
    biases = []
    for weight, product in ((first, operator), (second, following)):
        index = flatfile.input_of(product, 2)
        values = flatfile.constant(model, graph, index)
        if values is None and index >= 0:
            return None
        biases.append(np.zeros(len(weight.values), np.float32) if values is None else values.view(np.float32))
    constant = ~first.values.any(axis=1)
    removed = constant | ~second.values.any(axis=0)
    if removed.all():
        removed[0] = False
    if not removed.any():
        return None
    values = _FUSED[operator.builtinOptions.fusedActivationFunction](biases[0].astype(np.float64))
    for operation in between:
        values = _ELEMENTWISE[flatfile.builtin_name(model, operation)](values, operation)
    contribution = second.values * np.where(constant, values, 0.0)
    return Hidden(
        graph, first, second, (operator, following), tuple(between), ~removed, biases[1], contribution
    )
