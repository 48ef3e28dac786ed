"""Finding the weights of a dense .tflite file, and storing them in sparse and quantized encodings.

TensorFlow's converter puts an operation that expands sparse weights in front of the layers: the file is
small, but as slow as a dense one. The FULLY_CONNECTED kernel itself multiplies sparse weights if the tensor
describes how they are stored. So this module changes the tensors of a dense file, and the graph only where
necessary.
"""

import collections
import copy
import dataclasses
from typing import Any

import numpy as np

from tfsparsecap.model_summary.storage import SMALLEST_ENCODED
from tfsparsecap_export.encode.encodings import ENCODINGS, INT8, Encoded, encode
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.flatbuffer.stored import CONVOLUTION, FULLY_CONNECTED, TABLE

#: Operator version that keeps the XNNPACK delegate, which ignores sparsity, away from an operation. The
#: kernels of TFLite 2.16, TensorFlow 2.21 and LiteRT 2.3 accept it.
SPARSE_OPERATOR_VERSION = 8
#: The first version of FULLY_CONNECTED that quantizes its inputs with a zero point. TFLite 2.16.1 refuses 12,
#: which the converter sets for one scale per output, but computes it.
INT8_OPERATOR_VERSION = 9
#: TensorFlow Lite has no sparse, int8 or half-precision kernel for their weights, and XNNPACK, which would
#: expand them once, has none at all.
CONVOLUTION_3D = "3D convolution"


@dataclasses.dataclass(frozen=True)
class Use:
    """An operation that reads a constant: index of the subgraph, of the operation, and of its input."""

    graph: int
    operator: int
    position: int


@dataclasses.dataclass(frozen=True)
class FileWeight:
    """A float32 constant of a dense file that can be stored in another encoding.

    Attributes:
        buffer: index of its buffer, which its copies in all subgraphs share.
        name: name of its tensor.
        role: `FULLY_CONNECTED`, `TABLE` (GATHER reads rows of it), `CONVOLUTION` or `CONVOLUTION_3D`.
        shape: its shape in the file.
        values: float32 [rows, columns], read-only. The columns of a convolution are the last axis of `shape`.
        rows_per_call: number of rows that a fully connected layer multiplies, or a table returns, per call.
        in_loop: whether it is used at every time step.
        uses: the operations that read it.
    """

    buffer: int
    name: str
    role: str
    shape: tuple[int, ...]
    values: np.ndarray
    rows_per_call: int
    in_loop: bool
    uses: tuple[Use, ...]


@dataclasses.dataclass(frozen=True)
class Change:
    """A weight, the name of its new encoding, and the encoded values."""

    weight: FileWeight
    encoding: str
    encoded: Encoded


def change(weight: FileWeight, encoding: str, values: np.ndarray | None = None) -> Change:
    """A change of a weight to one of `ENCODINGS`; `values` are those to store, by default the weight's."""
    values = weight.values if values is None else values
    if weight.role == CONVOLUTION:
        values = values.reshape(weight.shape)
    return Change(weight, encoding, encode(encoding, values, table=weight.role == TABLE))


def separate_shapes(model: schema.ModelT) -> None:
    """Gives constants of different shapes buffers of their own, in place.

    The converter stores equal bytes once: two kernels without non-zero weights share a buffer if one has the
    transposed shape of the other, as in a feed-forward network.
    """
    buffers: dict[int, dict[tuple[int, ...], int]] = collections.defaultdict(dict)
    for tensor in (tensor for graph in model.subgraphs for tensor in graph.tensors):
        data = model.buffers[tensor.buffer].data
        if data is None or not len(data):
            continue
        by_shape, shape = buffers[tensor.buffer], tuple(map(int, tensor.shape))
        if shape not in by_shape:
            by_shape[shape] = flatfile.add_buffer(model, data) if by_shape else tensor.buffer
        tensor.buffer = by_shape[shape]


def separate_roles(model: schema.ModelT) -> None:
    """Gives constants that two kinds of operations read a buffer for each role, in place.

    An example are the rows of an embedding that are the weights of the output layer too: each kind of
    operation reads its own encodings. Buffers stay shared if they are small, or also have another use.
    """
    ends = _buffers_of_ends(model)
    for buffer, uses in sorted(_uses(model).items()):
        data = model.buffers[buffer].data
        roles = {_role(model, use) for use in uses}
        if None in roles or buffer in ends or data is None or len(data) < 4 * SMALLEST_ENCODED:
            continue
        for role in sorted(filter(None, roles))[1:]:
            own = flatfile.add_buffer(model, data)
            copies: dict[tuple[int, int], int] = {}
            for use in [use for use in uses if _role(model, use) == role]:
                graph = model.subgraphs[use.graph]
                operator = graph.operators[use.operator]
                shared = int(operator.inputs[use.position])
                if (use.graph, shared) not in copies:
                    tensor = copy.copy(graph.tensors[shared])
                    tensor.buffer = own
                    graph.tensors.append(tensor)
                    copies[use.graph, shared] = len(graph.tensors) - 1
                operator.inputs = np.array(operator.inputs, np.int32)
                operator.inputs[use.position] = copies[use.graph, shared]


def find_weights(model: schema.ModelT) -> list[FileWeight]:
    """The constants of a dense model that `rewrite` can store in another encoding, ordered by buffer.

    Constants with two different roles, outputs of graphs, and operands of loops are excluded.
    """
    tensors = collections.defaultdict(list)
    looped, excluded, uses = flatfile.looped_subgraphs(model), _buffers_of_ends(model), _uses(model)
    for graph in model.subgraphs:
        for index, tensor in enumerate(graph.tensors):
            if flatfile.constant(model, graph, index) is not None:
                tensors[tensor.buffer].append(tensor)
    weights = []
    for buffer, copies in sorted(tensors.items()):
        role, *others = {_role(model, use) for use in uses[buffer]} or {None}
        float32 = all(t.type == schema.TensorType.FLOAT32 and t.sparsity is None for t in copies)
        same_shape = len({tuple(t.shape) for t in copies}) == 1
        if buffer in excluded or not float32 or not same_shape or role is None or others:
            continue
        shape = tuple(int(size) for size in copies[0].shape)
        values = np.frombuffer(model.buffers[buffer].data, np.float32)
        values = (
            values.reshape(-1, shape[-1])
            if role in (CONVOLUTION, CONVOLUTION_3D)
            else values.reshape(shape[0], -1)
        )
        weights.append(
            FileWeight(
                buffer=buffer,
                name=copies[0].name.decode(),
                role=role,
                shape=shape,
                values=values,
                rows_per_call=max(_rows(model, use, role, shape) for use in uses[buffer]),
                in_loop=any(use.graph in looped for use in uses[buffer]),
                uses=tuple(uses[buffer]),
            )
        )
    return weights


def rename(model: schema.ModelT, weight: FileWeight, name: str) -> None:
    """Gives the tensors of a weight that `find_weights` found another name, in place."""
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.buffer == weight.buffer:
                tensor.name = name.encode()


def rewrite(model: schema.ModelT, changes: list[Change]) -> None:
    """Stores constants in new encodings, in place, and adapts the operations that read them.

    All tensors that share a buffer get the same encoding, because loop bodies and signatures contain copies.

    Args:
        model: dense model from `flatfile.read_model`.
        changes: changes of weights that `find_weights` found in it.
    """
    before: dict[int, list[schema.OperatorT]] = collections.defaultdict(list)
    after: dict[tuple[int, int], list[schema.OperatorT]] = collections.defaultdict(list)
    for change in changes:
        weight, kind, encoded = change.weight, change.encoding, change.encoded
        model.buffers[weight.buffer].data = np.frombuffer(encoded.values.tobytes(), np.uint8)
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                if tensor.buffer == weight.buffer:
                    tensor.type, tensor.sparsity = encoded.tensor_type, encoded.sparsity
                    tensor.quantization = encoded.quantization
        if ENCODINGS[kind].multiplied or (kind == INT8 and weight.role == FULLY_CONNECTED):
            for use in weight.uses:
                operator = model.subgraphs[use.graph].operators[use.operator]
                version = SPARSE_OPERATOR_VERSION
                if kind == INT8:
                    version = INT8_OPERATOR_VERSION
                    operator.builtinOptions.asymmetricQuantizeInputs = True
                operator.opcodeIndex = flatfile.operator_code(
                    model, schema.BuiltinOperator.FULLY_CONNECTED, version
                )
        else:
            _expand(model, weight, encoded, before, after)
    for g, graph in enumerate(model.subgraphs):
        graph.operators = before[g] + [
            new
            for position, operator in enumerate(graph.operators)
            for new in (operator, *after[g, position])
        ]


def _expand(model: schema.ModelT, weight: FileWeight, encoded: Encoded, before: dict, after: dict) -> None:
    """Inserts operations that expand a stored constant to float32.

    Rows of an int8 table are looked up first, and only these are converted to float32.

    Args:
        model: changed in place, except for the operators of its graphs.
        weight, encoded: the constant.
        before: operators to insert at the start of each graph.
        after: operators to insert behind the operator at (graph, position).
    """
    for g in sorted({use.graph for use in weight.uses}):
        graph = model.subgraphs[g]
        copies = [i for i, tensor in enumerate(graph.tensors) if tensor.buffer == weight.buffer]
        source = copies[0]
        options: dict[str, Any] = {"tensor_type": encoded.tensor_type, "quantization": encoded.quantization}
        if encoded.sparsity is not None:
            dense = flatfile.add_tensor(graph, source, "dense", **options)
            before[g].append(
                flatfile.new_operator(model, schema.BuiltinOperator.DENSIFY, 1, [source], [dense])
            )
            source = dense
        if encoded.tensor_type == schema.TensorType.FLOAT16:
            wide = flatfile.add_tensor(graph, source, "float32", tensor_type=schema.TensorType.FLOAT32)
            before[g].append(
                flatfile.new_operator(model, schema.BuiltinOperator.DEQUANTIZE, 3, [source], [wide])
            )
            source = wide
        for use in weight.uses:
            if use.graph != g:
                continue
            operator = graph.operators[use.operator]
            operator.inputs = np.array([source if i in copies else i for i in operator.inputs], np.int32)
            if encoded.tensor_type == schema.TensorType.INT8:
                rows = int(operator.outputs[0])
                narrow = flatfile.add_tensor(graph, rows, "int8", **options)
                operator.outputs = np.array([narrow], np.int32)
                after[g, use.operator].append(
                    flatfile.new_operator(model, schema.BuiltinOperator.DEQUANTIZE, 2, [narrow], [rows])
                )


def _uses(model: schema.ModelT) -> dict[int, list[Use]]:
    """The operations that read each buffer."""
    uses: dict[int, list[Use]] = collections.defaultdict(list)
    for g, graph in enumerate(model.subgraphs):
        for o, operator in enumerate(graph.operators):
            for position, index in enumerate(operator.inputs):
                if index >= 0:
                    uses[graph.tensors[index].buffer].append(Use(g, o, position))
    return uses


def _buffers_of_ends(model: schema.ModelT) -> set[int]:
    """Buffers of the inputs and outputs of graphs."""
    return {graph.tensors[i].buffer for graph in model.subgraphs for i in [*graph.inputs, *graph.outputs]}


def _role(model: schema.ModelT, use: Use) -> str | None:
    """The role of a constant in an operation, or None if this module does not know it."""
    operator = model.subgraphs[use.graph].operators[use.operator]
    match flatfile.builtin_name(model, operator), use.position:
        case "FULLY_CONNECTED", 1:
            default = schema.FullyConnectedOptionsWeightsFormat.DEFAULT
            return FULLY_CONNECTED if operator.builtinOptions.weightsFormat == default else None
        case "GATHER", 0:
            options = operator.builtinOptions
            return TABLE if options.axis == 0 and options.batchDims == 0 else None
        case ("CONV_2D" | "DEPTHWISE_CONV_2D" | "TRANSPOSE_CONV", 1):
            return CONVOLUTION
        case ("CONV_3D" | "CONV_3D_TRANSPOSE", 1):
            return CONVOLUTION_3D
    return None


def _rows(model: schema.ModelT, use: Use, role: str, shape: tuple[int, ...]) -> int:
    """Number of rows of the result of one call."""
    graph = model.subgraphs[use.graph]
    result = graph.tensors[graph.operators[use.operator].outputs[0]]
    width = {FULLY_CONNECTED: shape[0], TABLE: int(np.prod(shape[1:]))}.get(role, int(result.shape[-1]))
    return max(1, int(np.prod(result.shape)) // max(1, width))
