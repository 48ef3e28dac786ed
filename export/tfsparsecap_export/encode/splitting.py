"""Padding and splitting of layers that exceed the limits of TFLite's int8 1x16 kernel.

The kernel takes a multiple of 16 inputs, at most `BLOCK16_MAX_INPUTS`, and at most
`BLOCK16_MAX_BLOCKS_PER_ROW` blocks per row. Beyond these limits its results are wrong without an error.
Padding the inputs and the weights with zeros does not change a matrix product, and neither does adding the
products of parts of the columns.
"""

import copy
import dataclasses
import itertools

import numpy as np

from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.sparse import FileWeight
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

_BLOCK = 16
# Version 1 of these operators is used, which every runtime has.
_ADD, _PAD, _SPLIT_V = (
    schema.BuiltinOperator.ADD,
    schema.BuiltinOperator.PAD,
    schema.BuiltinOperator.SPLIT_V,
)


@dataclasses.dataclass(frozen=True)
class LayerSplit:
    """How the columns of a matrix are padded and split.

    Attributes:
        columns: number of columns of the matrix.
        bounds: first column of each part, and the end of the last one, which is a multiple of 16.
    """

    columns: int
    bounds: tuple[int, ...]

    @property
    def padded(self) -> int:
        """Number of columns with zeros on the right."""
        return self.bounds[-1]

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First column and end of each part."""
        return list(itertools.pairwise(self.bounds))

    def __str__(self) -> str:
        """What must be done so that the kernel can run the matrix; empty if nothing."""
        padding = f"{self.columns} inputs padded to {self.padded}" if self.padded != self.columns else ""
        parts = f"in {len(self.parts)} parts" if len(self.parts) > 1 else ""
        return ", ".join(filter(None, (padding, parts)))


def plan_split(values: np.ndarray) -> LayerSplit:
    """The smallest number of parts that the int8 1x16 kernel can run.

    Args:
        values: float32 [rows, columns].

    Examples:
        >>> str(plan_split(np.ones((2, 5000), np.float32)))
        '5000 inputs padded to 5008, in 2 parts'
    """
    columns = values.shape[1]
    padded = -(-columns // _BLOCK) * _BLOCK
    stored = (_pad(values, padded).reshape(len(values), -1, _BLOCK) != 0).any(axis=2)
    before = np.pad(np.cumsum(stored, axis=1), ((0, 0), (1, 0)))
    bounds = [0]
    while bounds[-1] * _BLOCK < padded:
        start = bounds[-1]
        # Largest number of blocks in a row, up to each column: it increases with the column.
        counts = (before[:, start + 1 :] - before[:, start : start + 1]).max(axis=0, initial=0)
        most = np.searchsorted(counts, encodings.BLOCK16_MAX_BLOCKS_PER_ROW, side="right")
        bounds.append(start + min(int(most), encodings.BLOCK16_MAX_INPUTS // _BLOCK))
    return LayerSplit(columns, tuple(bound * _BLOCK for bound in bounds))


def can_split(model: schema.ModelT, weight: FileWeight) -> bool:
    """Whether `apply_split` can split a fully connected layer: its products multiply the last axis."""
    for use in weight.uses:
        graph = model.subgraphs[use.graph]
        shape = graph.tensors[graph.operators[use.operator].inputs[0]].shape
        if shape is None or not len(shape) or shape[-1] != weight.values.shape[1]:
            return False
    return True


def apply_split(model: schema.ModelT, weight: FileWeight, split: LayerSplit, name: str) -> dict[int, int]:
    """Splits the products of a weight, in place. The parts become ordinary constants.

    Args:
        model: model from `flatfile.read_model`. Results of `find_weights` for it become invalid.
        weight: a weight of this model.
        split: the plan for its values.
        name: name of the weight; the names of parts add their columns.

    Returns:
        Buffer of each part -> number of the weight's columns in it.
    """
    values = _pad(weight.values, split.padded)
    columns, buffers, names = {}, [], []
    for start, stop in split.parts:
        buffers.append(flatfile.add_buffer(model, np.ascontiguousarray(values[:, start:stop])))
        end = min(stop, split.columns)
        columns[buffers[-1]] = end - start
        names.append(name if len(split.parts) == 1 else f"{name}[{start}:{end}]")
    for g in sorted({use.graph for use in weight.uses}):
        graph = model.subgraphs[g]
        constants = [
            flatfile.add_constant(model, graph, values[:, start:stop], part, buffer)
            for (start, stop), part, buffer in zip(split.parts, names, buffers, strict=True)
        ]
        used_by = {use.operator for use in weight.uses if use.graph == g}
        graph.operators = [
            new
            for position, operator in enumerate(graph.operators)
            for new in (
                _product(model, graph, operator, split, constants) if position in used_by else [operator]
            )
        ]
    model.buffers[weight.buffer].data = None
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.buffer == weight.buffer:  # no operation reads it any more
                tensor.buffer, tensor.shape, tensor.shapeSignature = 0, np.array([0], np.int32), None
    return columns


def _pad(values: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(values, ((0, 0), (0, columns - values.shape[1])))


def _product(model, graph, operator, split: LayerSplit, constants: list[int]) -> list[schema.OperatorT]:
    """The operations that replace one FULLY_CONNECTED."""
    source, result = int(operator.inputs[0]), int(operator.outputs[0])
    bias = flatfile.input_of(operator, 2)
    operators, leading = [], graph.tensors[source].shape[:-1]
    if split.padded != split.columns:
        amounts = np.zeros((len(leading) + 1, 2), np.int32)
        amounts[-1, 1] = split.padded - split.columns
        padding = flatfile.add_constant(model, graph, amounts, "padding")
        wide = flatfile.add_tensor(graph, source, "padded", shape=(*leading, split.padded))
        operators.append(flatfile.new_operator(model, _PAD, 1, [source, padding], [wide]))
        source = wide
    parts, products = [source], [result]
    several = len(constants) > 1
    if several:
        sizes = np.diff(split.bounds).astype(np.int32)
        axis = np.array(len(leading), np.int32)
        parts = [flatfile.add_tensor(graph, source, "part", shape=(*leading, int(size))) for size in sizes]
        products = [flatfile.add_tensor(graph, result, "product") for _ in sizes]
        inputs = [
            source,
            flatfile.add_constant(model, graph, sizes, "sizes"),
            flatfile.add_constant(model, graph, axis, "axis"),
        ]
        operators.append(flatfile.new_operator(model, _SPLIT_V, 1, inputs, parts))
        operators[-1].builtinOptions.numSplits = len(parts)
    activation = operator.builtinOptions.fusedActivationFunction
    for part, constant, output in zip(parts, constants, products, strict=True):
        product = copy.copy(operator)
        product.builtinOptions = copy.copy(operator.builtinOptions)
        if several:
            product.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.NONE
        product.inputs = np.array([part, constant, bias], np.int32)
        product.outputs = np.array([output], np.int32)
        operators.append(product)
        bias = -1  # added once, by the first part
    total = products[0]
    for number, output in enumerate(products[1:], 2):
        target = result if number == len(products) else flatfile.add_tensor(graph, result, "sum")
        operators.append(flatfile.new_operator(model, _ADD, 1, [total, output], [target]))
        total = target
    if several:
        operators[-1].builtinOptions.fusedActivationFunction = activation
    return operators
