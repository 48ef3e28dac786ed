"""A faster sparse layer whose best outputs are searched: its outputs are sorted by their stored weights.

A sparse kernel loops over the weights of each output. If their number differs from the previous output's, the
processor mispredicts the end of the loop; with ten thousand outputs of three blocks each, this takes more
than half of the time. In a sorted layer the predictions are right. Where TOPK_V2 selects the best outputs,
such as the likeliest words of a captioner, one GATHER of as many ids restores their numbers. Restoring all
outputs of another layer takes longer than mispredictions.
"""

import dataclasses

import numpy as np

from tfsparsecap_export.encode import sparse
from tfsparsecap_export.encode.encodings import ENCODINGS
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

#: Operators between the product and TOPK_V2 that do not depend on the order of the outputs.
_ORDER_INDEPENDENT = ("SOFTMAX", "LOG_SOFTMAX")


@dataclasses.dataclass(frozen=True)
class Product:
    """A layer whose outputs can be sorted.

    Attributes:
        graph: its graph.
        operator: its FULLY_CONNECTED.
        pick: the TOPK_V2 that selects the best outputs; nothing else reads them.
    """

    graph: schema.SubGraphT
    operator: schema.OperatorT
    pick: schema.OperatorT


def products(model: schema.ModelT, weights: list[sparse.FileWeight]) -> dict[int, Product]:
    """The layers whose outputs can be sorted, by the buffer of their weight.

    Args:
        model: model from `flatfile.read_model`.
        weights: its weights from `sparse.find_weights`.
    """
    layers = {}
    for weight in weights:
        if weight.role != sparse.FULLY_CONNECTED or len(weight.uses) != 1:
            continue
        (use,) = weight.uses
        graph = model.subgraphs[use.graph]
        product = graph.operators[use.operator]
        bias = flatfile.input_of(product, 2)
        if bias >= 0 and flatfile.constant(model, graph, bias) is None:
            continue
        pick = _pick(model, graph, int(product.outputs[0]), len(weight.values))
        if pick is not None:
            layers[weight.buffer] = Product(graph, product, pick)
    return layers


def order_of(values: np.ndarray, encoding: str) -> np.ndarray:
    """Rows sorted by the number of blocks that the kernel finds in them, int32 [rows], ascending.

    Args:
        values: float32 [rows, columns].
        encoding: `CSR`, `BLOCK4` or `BLOCK16` of `encodings`.
    """
    blocks = (values != 0).reshape(len(values), -1, ENCODINGS[encoding].block).any(axis=2).sum(axis=1)
    return np.argsort(blocks, kind="stable").astype(np.int32)


def apply_order(model: schema.ModelT, product: Product, order: np.ndarray) -> None:
    """Adapts a graph to the sorted outputs of a layer.

    Args:
        model: changed in place.
        product: a layer of this model; its weight is stored as `values[order]`.
        order: int32 [rows].
    """
    graph, operator, pick = product.graph, product.operator, product.pick
    bias = flatfile.constant(model, graph, flatfile.input_of(operator, 2))
    if bias is not None:
        constant = flatfile.add_constant(model, graph, bias.view(np.float32)[order], "bias")
        operator.inputs = np.array([*operator.inputs[:2], constant], np.int32)
    # The selected rows are converted to numbers of outputs.
    numbers = int(pick.outputs[1])
    rows = flatfile.add_tensor(graph, numbers, "row")
    pick.outputs = np.array([pick.outputs[0], rows], np.int32)
    ids = flatfile.add_constant(model, graph, order, "output_of_row")
    gather = flatfile.new_operator(model, schema.BuiltinOperator.GATHER, 1, [ids, rows], [numbers])
    position = next(i for i, other in enumerate(graph.operators) if other is pick)
    graph.operators.insert(position + 1, gather)


def _pick(model: schema.ModelT, graph: schema.SubGraphT, scores: int, words: int) -> schema.OperatorT | None:
    """The TOPK_V2 that is the only reader of a layer's result, or None."""
    readers = flatfile.readers(graph)
    results = set(map(int, graph.outputs))
    while scores not in results and len(readers[scores]) == 1:
        ((operator, position),) = readers[scores]
        name = flatfile.builtin_name(model, operator)
        if position == 0 and name == "TOPK_V2":
            return operator
        shape = graph.tensors[int(operator.outputs[0])].shape
        same_words = shape is not None and len(shape) > 0 and int(shape[-1]) == words
        if position or not (name in _ORDER_INDEPENDENT or (name == "RESHAPE" and same_words)):
            return None
        scores = int(operator.outputs[0])
    return None
