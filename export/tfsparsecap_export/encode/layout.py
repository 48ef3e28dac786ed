"""Products that TFLite's int8 1x16 kernel cannot run as they are, cut to what it can.

The kernel takes inputs in multiples of 16, at most `BLOCK16_MAX_INPUTS` of them, and at most
`BLOCK16_MAX_BLOCKS_A_ROW` blocks in a row; beyond that it is wrong without a word. Zeros on the right of the
inputs and of the weights change nothing of a product, and neither does adding the products of parts of the
columns.
"""

import copy
import dataclasses

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.sparse import FULLY_CONNECTED, Weight
from tfsparsecap_export.flatbuffer import surgery

_BLOCK = 16
# In their first versions, which every runtime has.
_ADD, _PAD, _SPLIT_V = (
    schema.BuiltinOperator.ADD,
    schema.BuiltinOperator.PAD,
    schema.BuiltinOperator.SPLIT_V,
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the columns of a matrix are cut.

    Attributes:
        columns: that the matrix has.
        padded: with zeros on the right, a multiple of 16.
        bounds: where the parts begin and end, `(0, ..., padded)`.
    """

    columns: int
    padded: int
    bounds: tuple[int, ...]

    @property
    def fits(self) -> bool:
        """Whether the kernel takes the matrix as it is."""
        return self.columns == self.padded and len(self.bounds) == 2

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First and last column (not included) of each part."""
        return list(zip(self.bounds, self.bounds[1:], strict=False))

    def __str__(self) -> str:
        done = []
        if self.padded != self.columns:
            done.append(f"{self.columns} inputs padded to {self.padded}")
        if len(self.bounds) > 2:
            done.append(f"in {len(self.bounds) - 1} parts")
        return ", ".join(done)


def layout_of(values: np.ndarray) -> Layout:
    """The fewest parts that the int8 1x16 kernel takes.

    Args:
        values: float32 [rows, columns].

    Example:
        >>> str(layout_of(np.ones((2, 5000), np.float32)))
        '5000 inputs padded to 5008, in 2 parts'
    """
    columns = values.shape[1]
    padded = -(-columns // _BLOCK) * _BLOCK
    kept = (padded_to(values, padded).reshape(len(values), -1, _BLOCK) != 0).any(axis=2)
    before = np.concatenate([np.zeros((len(kept), 1), np.int64), np.cumsum(kept, axis=1)], axis=1)
    bounds = [0]
    while bounds[-1] * _BLOCK < padded:
        start = bounds[-1]
        # Blocks up to each column, of the fullest row: grows with the column.
        counts = (before[:, start + 1 :] - before[:, start : start + 1]).max(axis=0, initial=0)
        most = np.searchsorted(counts, encodings.BLOCK16_MAX_BLOCKS_A_ROW, side="right")
        bounds.append(start + min(int(most), encodings.BLOCK16_MAX_INPUTS // _BLOCK))
    return Layout(columns, padded, tuple(bound * _BLOCK for bound in bounds))


def padded_to(values: np.ndarray, columns: int) -> np.ndarray:
    """A matrix with zeros on the right, [rows, columns]."""
    return np.pad(values, ((0, 0), (0, columns - values.shape[1])))


def can_apply(model: schema.ModelT, weight: Weight) -> bool:
    """Whether `apply` knows how to cut every product of a weight: of inputs that end in its columns."""
    return weight.role == FULLY_CONNECTED and all(
        _input(model, use).shape is not None
        and len(_input(model, use).shape) > 0
        and _input(model, use).shape[-1] == weight.values.shape[1]
        for use in weight.uses
    )


def apply(model: schema.ModelT, weight: Weight, layout: Layout, name: str) -> dict[int, int]:
    """Cuts the products of a weight, in place; the parts are constants like any other afterwards.

    Args:
        model: as `flatfile.read_model` gives it. What `find_weights` found in it before is out of date
            afterwards.
        weight: of this model.
        layout: of its values.
        name: of the weight; a part's name says its columns, too.

    Returns:
        Buffer -> columns of the weight in it, for each part.
    """
    values = padded_to(weight.values, layout.padded)
    buffers = []
    for start, stop in layout.parts:
        buffers.append(surgery.add_buffer(model, np.ascontiguousarray(values[:, start:stop])))
    for g in sorted({use.graph for use in weight.uses}):
        graph = model.subgraphs[g]
        constants = [
            surgery.add_constant(
                model, graph, values[:, start:stop], _part_name(name, layout, start, stop), buffer
            )
            for buffer, (start, stop) in zip(buffers, layout.parts, strict=True)
        ]
        used_by = {use.operator for use in weight.uses if use.graph == g}
        graph.operators = [
            new
            for position, operator in enumerate(graph.operators)
            for new in (
                _product(model, graph, operator, layout, constants) if position in used_by else [operator]
            )
        ]
    model.buffers[weight.buffer].data = None
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.buffer == weight.buffer:  # nothing reads it any more
                tensor.buffer, tensor.shape, tensor.shapeSignature = 0, np.array([0], np.int32), None
    return {
        buffer: min(stop, layout.columns) - start
        for buffer, (start, stop) in zip(buffers, layout.parts, strict=True)
    }


def _product(model, graph, operator, layout: Layout, constants: list[int]) -> list[schema.OperatorT]:
    """The operations that stand for one FULLY_CONNECTED."""
    source, result = int(operator.inputs[0]), int(operator.outputs[0])
    bias = int(operator.inputs[2]) if len(operator.inputs) > 2 else -1
    operators = []
    if layout.padded != layout.columns:
        rank = len(graph.tensors[source].shape)
        padding = np.zeros((rank, 2), np.int32)
        padding[-1, 1] = layout.padded - layout.columns
        amounts = surgery.add_constant(model, graph, padding, "padding")
        shape = (*graph.tensors[source].shape[:-1], layout.padded)
        wide = surgery.add_tensor(graph, source, "padded", shape=shape)
        operators.append(surgery.new_operator(model, _PAD, 1, [source, amounts], [wide]))
        source = wide
    pieces = [source]
    if len(layout.parts) > 1:
        sizes = np.array([stop - start for start, stop in layout.parts], np.int32)
        axis = np.array(len(graph.tensors[source].shape) - 1, np.int32)
        around = graph.tensors[source].shape[:-1]
        pieces = [surgery.add_tensor(graph, source, "part", shape=(*around, size)) for size in sizes]
        given = [
            source,
            surgery.add_constant(model, graph, sizes, "sizes"),
            surgery.add_constant(model, graph, axis, "axis"),
        ]
        split = surgery.new_operator(model, _SPLIT_V, 1, given, pieces)
        split.builtinOptions.numSplits = len(pieces)
        operators.append(split)
    total = None
    activation = operator.builtinOptions.fusedActivationFunction
    for number, (piece, constant) in enumerate(zip(pieces, constants, strict=True)):
        last = number == len(pieces) - 1
        product = copy.copy(operator)
        product.builtinOptions = copy.copy(operator.builtinOptions)
        if len(pieces) > 1:
            product.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.NONE
        product.inputs = np.array([piece, constant, -1 if number else bias], np.int32)
        output = result if len(pieces) == 1 else surgery.add_tensor(graph, result, "product")
        product.outputs = np.array([output], np.int32)
        operators.append(product)
        if total is None:
            total = output
            continue
        target = result if last else surgery.add_tensor(graph, result, "sum")
        add = surgery.new_operator(model, _ADD, 1, [total, output], [target])
        if last:
            add.builtinOptions.fusedActivationFunction = activation
        operators.append(add)
        total = target
    return operators


def _part_name(name: str, layout: Layout, start: int, stop: int) -> str:
    if len(layout.parts) == 1:
        return name
    return f"{name}[{start}:{min(stop, layout.columns)}]"


def _input(model: schema.ModelT, use) -> schema.TensorT:
    graph = model.subgraphs[use.graph]
    return graph.tensors[graph.operators[use.operator].inputs[0]]
