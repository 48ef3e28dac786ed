"""Reading, changing and writing the FlatBuffer of a .tflite file, as objects of the generated schema."""

import collections
import contextlib
import mmap
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import flatbuffers
import flatbuffers.table
import numpy as np

# TensorFlow contains an older copy of this schema and takes seconds to import. No other module imports it.
from ai_edge_litert import schema_py_generated as schema

from tfsparsecap.core.files import DAMAGE
from tfsparsecap.errors import InputError

IDENTIFIER = b"TFL3"
#: Alignment of constants in bytes, which the TFLite format requires.
BUFFER_ALIGNMENT = 16

# Graphs for phones have thousands of tables.
_MOST_TABLES = 500_000

_BUILTIN_NAMES = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}


def map_file(path: Path) -> mmap.mmap:
    """Maps a file into memory, so that its bytes are read on access.

    Raises:
        InputError: the file does not exist or cannot be read.
    """
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size:
            with path.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}; give a .tflite file") from error
    problem = "is empty" if stat.S_ISREG(status.st_mode) else "is not a file"
    raise InputError(f"{path} {problem}: give a .tflite file")


def read_model(content: bytes | mmap.mmap, where: str = "the file") -> schema.ModelT:
    """The schema's `ModelT` of a .tflite file.

    Truncated and malicious files, and files with indices of things that do not exist, are rejected. Constants
    that a large file stores after its FlatBuffer become the data of their buffers. Vectors are views of
    `content`.

    Args:
        content: bytes of the file; the associated files after the FlatBuffer of a bundle are ignored.
        where: name of the file in messages.

    Raises:
        InputError: the bytes are not a .tflite file, or the file is damaged.
    """
    if content[4:8] != IDENTIFIER:
        raise InputError(f"{where} is not a .tflite file: bytes 4 to 7 are not TFL3; give an exported model")
    try:
        with _limited_reading(len(content)):
            model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        _attach_data_behind(model, content)
        _check_indices(model)
    except DAMAGE as error:
        raise InputError(f"{where} is a damaged .tflite file ({error}): export it again") from error
    if not model.subgraphs or not model.operatorCodes or not model.buffers:
        raise InputError(f"{where} is a .tflite file without a graph: export it again")
    return model


def constants_end(model: schema.ModelT, content: bytes | mmap.mmap) -> int:
    """End of the last constant in the bytes that a model was read from."""
    start = np.frombuffer(content, np.uint8).ctypes.data
    data = [buffer.data for buffer in model.buffers if buffer.data is not None and len(buffer.data)]
    return max((values.ctypes.data + values.nbytes - start for values in data), default=0)


def write_model(model: schema.ModelT) -> bytes:
    """The bytes of a .tflite file; the same model gives the same bytes."""
    model.buffers = [_AlignedBuffer(buffer.data) for buffer in model.buffers]
    size = sum(0 if buffer.data is None else len(buffer.data) for buffer in model.buffers)
    builder = _SharingBuilder(size + (1 << 20))
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def builtin_name(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """`"FULLY_CONNECTED"`, `"WHILE"`, … of an operator."""
    return code_name(model.operatorCodes[operator.opcodeIndex])


def code_name(code: schema.OperatorCodeT) -> str:
    """`"FULLY_CONNECTED"`, `"WHILE"`, … of an operator code; `"UNKNOWN"` if the schema does not have it."""
    # Files from before 2020 contain the code only in the older, one-byte field.
    return _BUILTIN_NAMES.get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")


def tensor_type(dtype: np.dtype) -> int:
    """The schema's `TensorType` of a NumPy type."""
    return getattr(schema.TensorType, dtype.name.upper())


def operator_code(model: schema.ModelT, builtin: int, version: int) -> int:
    """Index of the operator code with this builtin and version, which is added if necessary."""
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == builtin and code.version == version:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), version
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def called_subgraphs(operator: schema.OperatorT) -> list[int]:
    """Indices of the subgraphs that an operator (WHILE, IF, CALL_ONCE, …) calls."""
    subgraphs: list[int] = []
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name, value in vars(options).items() if options is not None else ():
            if "subgraph" in name.lower() and value is not None:
                subgraphs.extend(int(index) for index in np.ravel(value))
    return subgraphs


def input_of(operator: schema.OperatorT, position: int) -> int:
    """Index of the tensor that an operator reads at a position; -1 if there is none."""
    return int(operator.inputs[position]) if len(operator.inputs) > position else -1


def constant(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> np.ndarray | None:
    """The bytes of a tensor of a graph; None for what is computed, and for the index -1."""
    data = model.buffers[graph.tensors[index].buffer].data if index >= 0 else None
    return data if data is not None and len(data) else None


def readers(graph: schema.SubGraphT) -> dict[int, list[tuple[schema.OperatorT, int]]]:
    """The operators that read each tensor, and the positions among their inputs."""
    places: dict[int, list[tuple[schema.OperatorT, int]]] = collections.defaultdict(list)
    for operator in graph.operators:
        for position, index in enumerate(operator.inputs):
            places[int(index)].append((operator, position))
    return places


def looped_subgraphs(model: schema.ModelT) -> set[int]:
    """Subgraphs that loops run, directly or through other subgraphs."""
    calls = [
        [(builtin_name(model, operator), called_subgraphs(operator)) for operator in graph.operators]
        for graph in model.subgraphs
    ]
    waiting = [g for graph in calls for name, called in graph if "WHILE" in name for g in called]
    looped: set[int] = set()
    while waiting:
        graph = waiting.pop()
        if graph not in looped:
            looped.add(graph)
            waiting.extend(g for _, called in calls[graph] for g in called)
    return looped


def add_buffer(model: schema.ModelT, values: np.ndarray) -> int:
    """Adds the bytes of an array to a model; returns the index of their buffer."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def add_constant(
    model: schema.ModelT, graph: schema.SubGraphT, values: np.ndarray, name: str, buffer: int | None = None
) -> int:
    """Adds a constant to a graph; returns the index of its tensor.

    Args:
        model: the model that contains the graph.
        graph: changed in place.
        values: float32 or int32 of any shape.
        name: name of the tensor.
        buffer: buffer of the model that already contains the values, if there is one.
    """
    tensor = schema.TensorT()
    tensor.buffer = add_buffer(model, values) if buffer is None else buffer
    tensor.name, tensor.type = name.encode(), tensor_type(values.dtype)
    tensor.shape, tensor.hasRank = np.array(values.shape, np.int32), True
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def add_tensor(
    graph: schema.SubGraphT,
    like: int,
    suffix: str,
    *,
    shape: tuple[int, ...] | None = None,
    tensor_type: int | None = None,
    quantization=None,
) -> int:
    """Adds a tensor without data that resembles another one; returns its index.

    Args:
        graph: changed in place.
        like: index of the other tensor.
        suffix: appended to the name of the other tensor.
        shape: by default that of the other tensor.
        tensor_type: by default that of the other tensor.
        quantization: none by default.
    """
    other, tensor = graph.tensors[like], schema.TensorT()
    tensor.type = other.type if tensor_type is None else tensor_type
    tensor.quantization, tensor.hasRank = quantization, other.hasRank
    tensor.name = (other.name or b"") + b"/" + suffix.encode()
    tensor.shape = other.shape if shape is None else np.array(shape, np.int32)
    tensor.shapeSignature = other.shapeSignature if shape is None else None
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def new_operator(
    model: schema.ModelT, builtin: int, version: int, inputs: list[int], outputs: list[int]
) -> schema.OperatorT:
    """An operation with default options that is in no graph yet; its code is added to the model."""
    operator = schema.OperatorT()
    operator.opcodeIndex = operator_code(model, builtin, version)
    operator.inputs, operator.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    # The options of SPLIT_V are SplitVOptions, those of CONV_2D Conv2DOptions, and so on.
    kind = builtin_name(model, operator).title().replace("_", "")
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
    operator.builtinOptions = getattr(schema, f"{kind}OptionsT")()
    return operator


#: Held while `_limited_reading` replaces a class of the generated code, which all threads use.
_READING = threading.Lock()


@contextlib.contextmanager
def _limited_reading(size: int) -> Iterator[None]:
    """Inside the block, reading a file of `size` bytes raises ValueError if it would fill the memory.

    In a small malicious file, many tables can share the same tables and strings, each of which the generated
    code would copy.
    """
    tables_left, text_left = min(_MOST_TABLES, 1000 + size), 2 * size + (1 << 20)

    class LimitedTable(flatbuffers.table.Table):
        def __init__(self, content, position):
            nonlocal tables_left
            tables_left -= 1
            if tables_left < 0:
                raise ValueError("more tables than the file can hold")
            super().__init__(content, position)

        def String(self, offset):
            nonlocal text_left
            text = super().String(offset)
            text_left -= len(text)
            if text_left < 0:
                raise ValueError("its parts overlap")
            return text

    with _READING:
        original = flatbuffers.table.Table
        flatbuffers.table.Table = LimitedTable  # where the generated code looks it up
        try:
            yield
        finally:
            flatbuffers.table.Table = original


def _attach_data_behind(model: schema.ModelT, content: bytes | mmap.mmap) -> None:
    """Attaches constants and options that files larger than 2 GB store after the FlatBuffer."""
    for buffer in model.buffers or []:
        if buffer.offset > 1:
            buffer.data = _behind(content, buffer.offset, buffer.size)
            buffer.offset = buffer.size = 0
    for graph in model.subgraphs or []:
        for operator in graph.operators or []:
            if operator.largeCustomOptionsOffset > 1:
                operator.customOptions = _behind(
                    content, operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
                )
                operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0


def _behind(content: bytes | mmap.mmap, offset: int, size: int) -> np.ndarray:
    if offset + size > len(content):
        raise ValueError(f"a constant ends at byte {offset + size:,}, the file at {len(content):,}")
    return np.frombuffer(content, np.uint8, size, offset)


def _check_indices(model: schema.ModelT) -> None:
    """Raises ValueError for indices of subgraphs, tensors, buffers or operator codes that do not exist."""
    graphs, buffers, codes = (
        len(items or []) for items in (model.subgraphs, model.buffers, model.operatorCodes)
    )

    def check(what, index, count, least=0):
        if not least <= index < count:
            raise ValueError(f"it refers to {what} {index} of {count}")

    for graph in model.subgraphs or []:
        graph.tensors, graph.operators = graph.tensors or [], graph.operators or []
        graph.inputs, graph.outputs = filled(graph.inputs), filled(graph.outputs)
        for tensor in graph.tensors:
            check("buffer", tensor.buffer, buffers)
        for operator in graph.operators:
            operator.inputs, operator.outputs = filled(operator.inputs), filled(operator.outputs)
            check("operator code", operator.opcodeIndex, codes)
            for called in called_subgraphs(operator):
                check("subgraph", called, graphs)
        # A missing optional input of an operator has the index -1.
        parts = [*((o.inputs, -1) for o in graph.operators), *((o.outputs, 0) for o in graph.operators)]
        for indices, least in [(graph.inputs, 0), (graph.outputs, 0), *parts]:
            if indices.size:
                check("tensor", int(indices.min()), len(graph.tensors), least)
                check("tensor", int(indices.max()), len(graph.tensors), least)
    for signature in model.signatureDefs or []:
        check("subgraph", signature.subgraphIndex, graphs)
        tensors = len(model.subgraphs[signature.subgraphIndex].tensors)
        for entry in [*(signature.inputs or []), *(signature.outputs or [])]:
            check("tensor", entry.tensorIndex, tensors)
    for entry in model.metadata or []:
        check("buffer", entry.buffer, buffers)


def filled(vector: np.ndarray | None) -> np.ndarray:
    """A vector of the schema; empty if the file does not have it."""
    return np.empty(0, np.int32) if vector is None else vector


class _WrittenOnce:
    """A table that is written once, even if several tensors contain it.

    Indices and scales of a constant belong to its tensor, not to its buffer. Without this class, a constant
    that several subgraphs share would store them several times.
    """

    _written: tuple[flatbuffers.Builder, int] | None = None

    def Pack(self, builder):
        if self._written is None or self._written[0] is not builder:
            self._written = (builder, super().Pack(builder))  # type: ignore[misc]  # a mixin of generated classes
        return self._written[1]


class SharedSparsity(_WrittenOnce, schema.SparsityParametersT):
    """Sparsity parameters that several tensors share."""


class SharedQuantization(_WrittenOnce, schema.QuantizationParametersT):
    """Quantization parameters that several tensors share."""


class _SharingBuilder(flatbuffers.Builder):
    """Writes equal vectors and strings once.

    Shapes, names and zero points repeat: each output channel of int8 weights has a zero point of 8 bytes,
    which is always 0 and cannot be left out.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._vectors: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x):
        key = x.dtype.str, x.tobytes()
        if key not in self._vectors:
            self._vectors[key] = super().CreateNumpyVector(x)
        return self._vectors[key]

    def CreateString(self, s, *options):
        key = "text", s.encode() if isinstance(s, str) else s
        if key not in self._vectors:
            self._vectors[key] = super().CreateString(s, *options)
        return self._vectors[key]


class _AlignedBuffer(schema.BufferT):
    """A buffer with aligned data: the generated Python code ignores the schema's `force_align`."""

    def Pack(self, builder):
        data = None
        if self.data is not None:
            payload = np.ascontiguousarray(self.data).view(np.uint8).tobytes()
            builder.StartVector(1, len(payload), BUFFER_ALIGNMENT)
            builder.head -= len(payload)
            builder.Bytes[builder.head : builder.head + len(payload)] = payload
            builder.vectorNumElems = len(payload)
            data = builder.EndVector()
        schema.BufferStart(builder)
        if data is not None:
            schema.BufferAddData(builder, data)
        return schema.BufferEnd(builder)
