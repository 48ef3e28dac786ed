"""Layers whose outputs lie in the order of how many weights they keep.

A sparse kernel loops over the weights of an output, and where an output has another number of them than
the one before, the processor has guessed wrong when that loop ends: with ten thousand outputs of three blocks
each that takes more than half of the time. In order, the guesses are right. Of the layer that scores words
only the best are picked, and those are called by their own ids again: one GATHER of as many ids as the search
has beams. The outputs of other layers are put back by a GATHER of them all, which may be the cheaper way
still.
"""

import collections
import dataclasses

import numpy as np

from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import surgery
from tfsparsecap_export.flatbuffer.model_file import schema

_GATHER, _TRANSPOSE = schema.BuiltinOperator.GATHER, schema.BuiltinOperator.TRANSPOSE
_BLOCKS = {sparse.CSR: 1, sparse.BLOCK4: 4, sparse.BLOCK16: 16}
#: What may stand between the product and the choice: it treats all words alike.
_ALIKE = ("SOFTMAX", "LOG_SOFTMAX")


@dataclasses.dataclass(frozen=True)
class Product:
    """A product whose outputs can be put in order.

    Attributes:
        graph: where it is.
        operator: its FULLY_CONNECTED.
        pick: the TOPK_V2 that picks the best of its outputs and alone reads them, or None.
    """

    graph: schema.SubGraphT
    operator: schema.OperatorT
    pick: schema.OperatorT | None


def products(model: schema.ModelT, weights: list[sparse.Weight]) -> dict[int, Product]:
    """The products whose outputs can be put in order, by the buffer of their weight.

    Args:
        model: as `flatfile.read_model` gives it.
        weights: its constants, as `sparse.find_weights` found them.
    """
    found = {}
    for weight in weights:
        if weight.role != sparse.FULLY_CONNECTED or len(weight.uses) != 1:
            continue
        (use,) = weight.uses
        graph = model.subgraphs[use.graph]
        product = graph.operators[use.operator]
        bias = int(product.inputs[2]) if len(product.inputs) > 2 else -1
        if bias >= 0 and model.buffers[graph.tensors[bias].buffer].data is None:
            continue
        result, outputs = int(product.outputs[0]), len(weight.values)
        found[weight.buffer] = Product(graph, product, _pick(model, graph, result, outputs))
    return found


def order_of(values: np.ndarray, encoding: str) -> np.ndarray:
    """Rows by what the kernel finds in them, int32 [rows], the emptiest first.

    Args:
        values: float32 [rows, columns].
        encoding: `CSR`, `BLOCK4` or `BLOCK16` of `sparse`.
    """
    block = _BLOCKS[encoding]
    kept = (values != 0).reshape(len(values), -1, block).any(axis=2).sum(axis=1)
    return np.argsort(kept, kind="stable").astype(np.int32)


def apply(model: schema.ModelT, product: Product, order: np.ndarray) -> None:
    """Makes the rest of the graph right for a product whose outputs are in another order.

    Args:
        model: changed in place.
        product: of this model; its weight is stored as `values[order]`.
        order: int32 [rows].
    """
    graph, operator = product.graph, product.operator
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        bias = graph.tensors[int(operator.inputs[2])]
        values = np.frombuffer(model.buffers[bias.buffer].data, np.float32)[order]
        constant = surgery.add_constant(model, graph, values, bias.name.decode() + "/ordered")
        operator.inputs = np.array([*operator.inputs[:2], constant], np.int32)
    if product.pick is not None:
        _name_picked(model, graph, product.pick, order)
    else:
        _restore(model, graph, operator, np.argsort(order).astype(np.int32))


def _name_picked(model: schema.ModelT, graph: schema.SubGraphT, pick, order: np.ndarray) -> None:
    """Makes the ids of what was picked those of the words again."""
    words = int(pick.outputs[1])
    rank = surgery.add_tensor(graph, words, "row")
    pick.outputs = np.array([pick.outputs[0], rank], np.int32)
    ids = surgery.add_constant(model, graph, order, "word_of_row")
    _insert_after(graph, pick, [surgery.new_operator(model, _GATHER, 1, [ids, rank], [words])])


def _restore(model: schema.ModelT, graph: schema.SubGraphT, operator, places: np.ndarray) -> None:
    """Puts the outputs back where they belong."""
    result = int(operator.outputs[0])
    shape = graph.tensors[result].shape
    axis = len(shape) - 1
    source = surgery.add_tensor(graph, result, "ordered")
    operator.outputs = np.array([source], np.int32)
    indices = surgery.add_constant(model, graph, places, "places")
    if np.prod(shape[:-1]) == 1:
        gather = surgery.new_operator(model, _GATHER, 1, [source, indices], [result])
        gather.builtinOptions.axis = axis
        _insert_after(graph, operator, [gather])
        return
    # GATHER along the first axis copies rows; along the last one it copies number by number.
    turned, gathered = (
        surgery.add_tensor(graph, result, suffix, shape=(shape[-1], *shape[:-1]))
        for suffix in ("turned", "gathered")
    )
    there, back = (
        surgery.add_constant(model, graph, np.array(axes, np.int32), "axes")
        for axes in ([axis, *range(axis)], [*range(1, axis + 1), 0])
    )
    _insert_after(
        graph,
        operator,
        [
            surgery.new_operator(model, _TRANSPOSE, 1, [source, there], [turned]),
            surgery.new_operator(model, _GATHER, 1, [turned, indices], [gathered]),
            surgery.new_operator(model, _TRANSPOSE, 1, [gathered, back], [result]),
        ],
    )


def _insert_after(graph: schema.SubGraphT, operator, following: list) -> None:
    position = next(i for i, other in enumerate(graph.operators) if other is operator)
    graph.operators = [*graph.operators[: position + 1], *following, *graph.operators[position + 1 :]]


def _pick(model: schema.ModelT, graph: schema.SubGraphT, scores: int, words: int) -> schema.OperatorT | None:
    """The TOPK_V2 that alone reads a product's result, or None."""
    readers = collections.defaultdict(list)
    for operator in graph.operators:
        for position, tensor in enumerate(operator.inputs):
            readers[int(tensor)].append((operator, position))
    results = set(map(int, graph.outputs))
    while scores not in results and len(readers[scores]) == 1:
        ((operator, position),) = readers[scores]
        name = flatfile.builtin_name(model, operator)
        if position == 0 and name == "TOPK_V2":
            return operator
        shape = graph.tensors[int(operator.outputs[0])].shape
        same_words = shape is not None and len(shape) > 0 and int(shape[-1]) == words
        if position or not (name in _ALIKE or (name == "RESHAPE" and same_words)):
            return None
        scores = int(operator.outputs[0])
    return None
