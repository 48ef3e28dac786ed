"""The rewrite of a dense .tflite file into one that stores and multiplies sparse weights.

TensorFlow's converter hides sparse weights behind an operation that expands them before use: a small file,
but dense speed. The FULLY_CONNECTED kernel itself runs on sparse weights when their tensor says how they are
stored, so this module changes the tensors of a dense file and leaves the graph alone where it can.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.encodings import Encoded
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer import surgery

#: The version that keeps the XNNPACK delegate, which does not look at sparsity, away from an operation. The
#: kernels of TFLite 2.16, TensorFlow 2.21 and LiteRT 2.3 accept it.
SPARSE_OPERATOR_VERSION = 8
#: What the converter writes for float inputs and int8 weights: 3, or 5 where the output keeps its leading
#: axes.
_INT8_OPERATOR_VERSIONS = {False: 3, True: 5}

FULLY_CONNECTED, TABLE, CONVOLUTION = "fully connected", "table", "convolution"

#: How a constant can be stored; `encode` says how. The runtime expands `FLOAT16`, `SPARSE32` and
#: `SPARSE_INT8` once, when it loads the file. So it does `SPARSE16` where XNNPACK runs the layer that reads
#: it; in loops before LiteRT it expands that at every word, and for a table, with XNNPACK on, not at all:
#: that reads garbage, and no format chooses it.
DENSE, FLOAT16, SPARSE32, SPARSE16 = "float32", "float16", "sparse float32", "sparse float16"
CSR, BLOCK4, BLOCK16, INT8, SPARSE_INT8 = "csr", "1x4", "int8 1x16", "int8", "sparse int8"

_STORED: dict[str, Callable[[np.ndarray], Encoded]] = {
    FLOAT16: encodings.dense16,
    SPARSE16: encodings.sparse16,
    CSR: functools.partial(encodings.sparse32, block=1),
    BLOCK4: functools.partial(encodings.sparse32, block=4),
    BLOCK16: encodings.blocks_int8,
    INT8: encodings.dense_int8,
}
_STORED_IN_BLOCKS: dict[str, Callable[[np.ndarray, int], Encoded]] = {
    SPARSE32: encodings.sparse32,
    SPARSE_INT8: encodings.sparse_int8,
}
#: Encodings that the FULLY_CONNECTED kernel multiplies with as they are.
MULTIPLIED = (CSR, BLOCK4, BLOCK16)
#: Blocks in which a table may be stored, whichever is smallest. In layers, XNNPACK expands no blocks.
TABLE_BLOCKS = (1, 4, 16)


@dataclasses.dataclass(frozen=True)
class Use:
    """One operation that reads a constant: subgraph, operation, position among its inputs."""

    graph: int
    operator: int
    position: int


@dataclasses.dataclass(frozen=True)
class Weight:
    """A float32 constant of a dense file that can be stored otherwise.

    Attributes:
        buffer: index of its buffer, which all its copies in the subgraphs share.
        name: name of its tensor.
        role: `FULLY_CONNECTED`, `TABLE` (rows picked by GATHER) or `CONVOLUTION`.
        shape: its shape in the file.
        values: float32 [rows, columns], read-only; a convolution's [1, weights].
        rows_a_call: rows that a fully connected layer multiplies, or a table gives, at a time.
        in_loop: whether it is used at every word.
        uses: where it is read.
    """

    buffer: int
    name: str
    role: str
    shape: tuple[int, ...]
    values: np.ndarray
    rows_a_call: int
    in_loop: bool
    uses: tuple[Use, ...]


@dataclasses.dataclass(frozen=True)
class Change:
    """A constant, the name of its new encoding (`CSR`, `FLOAT16`, …), and what that makes of it."""

    weight: Weight
    encoding: str
    encoded: Encoded


def find_weights(model: schema.ModelT) -> list[Weight]:
    """The constants of a dense model that `rewrite` can store otherwise, in the order of their buffers.

    A constant that is read in two different roles, or is an output or an operand of a loop, is left out.
    """
    tensors, uses = collections.defaultdict(list), collections.defaultdict(list)
    barred = set()
    for g, graph in enumerate(model.subgraphs):
        for tensor in graph.tensors:
            data = model.buffers[tensor.buffer].data
            if data is not None and len(data):
                tensors[tensor.buffer].append(tensor)
        barred.update(graph.tensors[i].buffer for i in [*graph.inputs, *graph.outputs])
        for o, operator in enumerate(graph.operators):
            for position, index in enumerate(operator.inputs):
                if index >= 0:
                    uses[graph.tensors[index].buffer].append(Use(g, o, position))
    looped = _looped_graphs(model)
    weights = []
    for buffer, copies in sorted(tensors.items()):
        roles = {_role(model, use) for use in uses[buffer]}
        plain = all(t.type == schema.TensorType.FLOAT32 and t.sparsity is None for t in copies)
        same = len({tuple(t.shape) for t in copies}) == 1
        if buffer in barred or not plain or not same or len(roles) != 1 or None in roles:
            continue
        (role,), shape = roles, tuple(int(size) for size in copies[0].shape)
        values = np.frombuffer(model.buffers[buffer].data, np.float32)
        values = values.reshape(1, -1) if role == CONVOLUTION else values.reshape(shape[0], -1)
        weights.append(
            Weight(
                buffer=buffer,
                name=copies[0].name.decode(),
                role=role,
                shape=shape,
                values=values,
                rows_a_call=max(_rows(model, use, role, shape) for use in uses[buffer]),
                in_loop=any(use.graph in looped for use in uses[buffer]),
                uses=tuple(uses[buffer]),
            )
        )
    return weights


def encode(encoding: str, values: np.ndarray, role: str) -> Encoded:
    """Stores a matrix.

    Args:
        encoding: one of the names above but `DENSE`.
        values: float32 [rows, columns], a convolution's as `Weight.values` has it.
        role: what the matrix is for.
    """
    if encoding in _STORED_IN_BLOCKS:
        return _smallest(_STORED_IN_BLOCKS[encoding], values, role)
    return _STORED[encoding](values)


def _smallest(store: Callable[[np.ndarray, int], Encoded], values: np.ndarray, role: str) -> Encoded:
    blocks = TABLE_BLOCKS if role == TABLE else (1,)
    candidates = [store(values, block) for block in blocks if values.shape[1] % block == 0]
    return min(candidates, key=lambda encoded: encoded.bytes)


def rewrite(model: schema.ModelT, changes: list[Change]) -> None:
    """Stores constants otherwise, in place, and makes the operations that read them able to.

    Every tensor that shares a buffer gets the same encoding: loop bodies and signatures hold copies of
    tensors.

    Args:
        model: a dense model as `flatfile.read_model` gives it.
        changes: for weights that `find_weights` found in it.
    """
    before = collections.defaultdict(list)
    after = collections.defaultdict(list)
    for change in changes:
        weight, kind, encoded = change.weight, change.encoding, change.encoded
        model.buffers[weight.buffer].data = np.frombuffer(encoded.values.tobytes(), np.uint8)
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                if tensor.buffer == weight.buffer:
                    tensor.type, tensor.sparsity = encoded.tensor_type, encoded.sparsity
                    tensor.quantization = encoded.quantization
        if kind in MULTIPLIED or (kind == INT8 and weight.role == FULLY_CONNECTED):
            for use in weight.uses:
                operator = model.subgraphs[use.graph].operators[use.operator]
                version = SPARSE_OPERATOR_VERSION
                if kind == INT8:
                    version = _INT8_OPERATOR_VERSIONS[bool(operator.builtinOptions.keepNumDims)]
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


def _expand(model: schema.ModelT, weight: Weight, encoded: Encoded, before: dict, after: dict) -> None:
    """Puts what turns a stored constant into float32 weights between it and the operations that read it.

    A table of int8 rows is picked from as it is, and only the picked rows become float32.
    """
    for g in sorted({use.graph for use in weight.uses}):
        graph = model.subgraphs[g]
        stored = next(i for i, tensor in enumerate(graph.tensors) if tensor.buffer == weight.buffer)
        copies = {i for i, tensor in enumerate(graph.tensors) if tensor.buffer == weight.buffer}
        source = stored
        if encoded.sparsity is not None:
            source = surgery.add_tensor(
                graph,
                stored,
                "dense",
                tensor_type=encoded.tensor_type,
                quantization=encoded.quantization,
            )
            before[g].append(
                surgery.new_operator(model, schema.BuiltinOperator.DENSIFY, 1, [stored], [source])
            )
        picked = encoded.tensor_type == schema.TensorType.INT8
        if encoded.tensor_type == schema.TensorType.FLOAT16:
            wide = surgery.add_tensor(graph, source, "float32", tensor_type=schema.TensorType.FLOAT32)
            before[g].append(
                surgery.new_operator(model, schema.BuiltinOperator.DEQUANTIZE, 3, [source], [wide])
            )
            source = wide
        for use in weight.uses:
            if use.graph != g:
                continue
            operator = graph.operators[use.operator]
            operator.inputs = np.array([source if i in copies else i for i in operator.inputs], np.int32)
            if picked:
                rows = int(operator.outputs[0])
                narrow = surgery.add_tensor(
                    graph, rows, "int8", tensor_type=encoded.tensor_type, quantization=encoded.quantization
                )
                operator.outputs = np.array([narrow], np.int32)
                after[g, use.operator].append(
                    surgery.new_operator(model, schema.BuiltinOperator.DEQUANTIZE, 2, [narrow], [rows])
                )


def _role(model: schema.ModelT, use: Use) -> str | None:
    """What an operation does with the constant, or None where that is nothing this module knows."""
    operator = model.subgraphs[use.graph].operators[use.operator]
    match flatfile.builtin_name(model, operator), use.position:
        case "FULLY_CONNECTED", 1:
            default = schema.FullyConnectedOptionsWeightsFormat.DEFAULT
            return FULLY_CONNECTED if operator.builtinOptions.weightsFormat == default else None
        case "GATHER", 0:
            options = operator.builtinOptions
            return TABLE if options.axis == 0 and options.batchDims == 0 else None
        case ("CONV_2D" | "DEPTHWISE_CONV_2D", 1):
            return CONVOLUTION
    return None


def _rows(model: schema.ModelT, use: Use, role: str, shape: tuple[int, ...]) -> int:
    """Rows of the result of one call."""
    graph = model.subgraphs[use.graph]
    result = graph.tensors[graph.operators[use.operator].outputs[0]]
    width = {FULLY_CONNECTED: shape[0], TABLE: int(np.prod(shape[1:]))}.get(role, int(result.shape[-1]))
    return max(1, int(np.prod(result.shape)) // max(1, width))


def _looped_graphs(model: schema.ModelT) -> set[int]:
    """Subgraphs that run once a word: bodies of loops and what those call."""
    looped = set()
    for graph in model.subgraphs:
        for operator in graph.operators:
            if flatfile.builtin_name(model, operator) == "WHILE":
                looped.add(operator.builtinOptions.bodySubgraphIndex)
    return looped
