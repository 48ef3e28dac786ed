"""Reading and writing the FlatBuffer of a .tflite file, as objects of the generated schema."""

import mmap
import stat
import struct
from pathlib import Path

import flatbuffers
import numpy as np

# TensorFlow contains an older copy of this schema and takes seconds to import. No other module imports it.
from ai_edge_litert import schema_py_generated as schema

from tfsparsecap.errors import InputError

IDENTIFIER = b"TFL3"
#: Alignment of constants in bytes, which the TFLite format requires.
BUFFER_ALIGNMENT = 16

#: The tables of a .tflite file: index of each field that contains an offset, and what it points to. A number
#: is a vector of elements of this many bytes, 0 a string, a name a table, `[name]` a vector of tables, and a
#: dictionary a union, by the number in the preceding field. Tables and fields that are not listed contain
#: only numbers, or vectors that the generated code checks.
TABLES: dict[str, dict[int, int | str | list[str] | dict[int, str]]] = {
    "Model": {
        1: ["OperatorCode"],
        2: ["SubGraph"],
        3: 0,
        4: ["Buffer"],
        5: 4,
        6: ["Metadata"],
        7: ["SignatureDef"],
        8: ["ExternalBufferGroup"],
        9: ["ExternalBuffer"],
    },
    "OperatorCode": {1: 0},
    "SubGraph": {0: ["Tensor"], 1: 4, 2: 4, 3: ["Operator"], 4: 0},
    "Tensor": {
        0: 4,
        3: 0,
        4: "QuantizationParameters",
        6: "SparsityParameters",
        7: 4,
        9: ["VariantSubType"],
    },
    "QuantizationParameters": {
        0: 4,
        1: 4,
        2: 4,
        3: 8,
        5: {1: "CustomQuantization", 2: "BlockwiseQuantization", 3: "MultiAxisQuantization"},
    },
    "CustomQuantization": {0: 1},
    "BlockwiseQuantization": {3: 4},
    "MultiAxisQuantization": {3: 4},
    "SparsityParameters": {0: 4, 1: 4, 2: ["DimensionMetadata"]},
    "DimensionMetadata": {
        3: {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"},
        5: {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"},
    },
    "Int32Vector": {0: 4},
    "Uint16Vector": {0: 2},
    "Uint8Vector": {0: 1},
    "VariantSubType": {0: 4},
    "Operator": {
        1: 4,
        2: 4,
        4: {schema.BuiltinOptions.VarHandleOptions: "VarHandleOptions"},
        5: 1,
        7: 1,
        8: 4,
        12: {
            schema.BuiltinOptions2.StablehloCustomCallOptions: "StablehloCustomCallOptions",
            schema.BuiltinOptions2.StableHLOCompositeOptions: "StableHLOCompositeOptions",
        },
    },
    "VarHandleOptions": {0: 0, 1: 0},
    "StablehloCustomCallOptions": {0: 0, 2: 0, 4: 4, 5: 1},
    "StableHLOCompositeOptions": {0: 0, 2: 1},
    "Buffer": {0: 1},
    "Metadata": {0: 0},
    "SignatureDef": {0: ["TensorMap"], 1: ["TensorMap"], 2: 0},
    "TensorMap": {0: 0},
    "ExternalBufferGroup": {0: 0},
    "ExternalBuffer": {4: 0},
}
# Graphs for phones have thousands of tables.
_MOST_TABLES = 500_000

_BUILTIN_NAMES = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")


def map_file(path: Path) -> mmap.mmap:
    """Maps a file into memory, so that its bytes are read on access.

    Raises:
        InputError: the file does not exist or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} is not a file: give a .tflite file")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty: give a .tflite file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}; give a .tflite file") from error


def read_model(content: bytes | mmap.mmap, where: str = "the file") -> schema.ModelT:
    """The schema's `ModelT` of a .tflite file.

    Every offset, length and index is checked before anything is copied, so that truncated and malicious files
    are rejected quickly. Constants that a large file stores after its FlatBuffer become the data of their
    buffers. Vectors are views of `content`.

    Args:
        content: bytes of the file; the associated files after the FlatBuffer of a bundle are ignored.
        where: name of the file in messages.

    Raises:
        InputError: the bytes are not a .tflite file, or the file is damaged.
    """
    if content[4:8] != IDENTIFIER:
        raise InputError(f"{where} is not a .tflite file: bytes 4 to 7 are not TFL3; give an exported model")
    try:
        _OffsetChecker(content)
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
        _attach_data_behind(model, content)
        _check_indices(model)
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{where} is a damaged .tflite file ({error}): export it again") from error
    if not model.subgraphs or not model.operatorCodes or not model.buffers:
        raise InputError(f"{where} is a .tflite file without a graph: export it again")
    return model


def flatbuffer_end(content: bytes | mmap.mmap) -> int:
    """End of the FlatBuffer in a file that `read_model` accepts.

    Vectors in the options of operators are not followed, so some bytes of the graph may come after it.
    """
    return _OffsetChecker(content).end


def write_model(model: schema.ModelT) -> bytes:
    """The bytes of a .tflite file; the same model gives the same bytes."""
    model.buffers = [_AlignedBuffer(buffer.data) for buffer in model.buffers]
    size = sum(0 if buffer.data is None else len(buffer.data) for buffer in model.buffers)
    builder = flatbuffers.Builder(size + (1 << 20))
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
    found: list[int] = []
    for options in (operator.builtinOptions, operator.builtinOptions2):
        for name, value in vars(options).items() if options is not None else ():
            if "subgraph" in name.lower() and value is not None:
                found.extend(int(index) for index in np.ravel(value))
    return found


class _OffsetChecker:
    """Follows every offset of a FlatBuffer once, before the generated code follows them unchecked.

    A small malicious file whose offsets share tables could cause a lot of work. Therefore tables and the
    bytes of vectors and strings are counted, and a file with more than it can contain is rejected.
    """

    def __init__(self, content: bytes | mmap.mmap):
        self._content, self._size = content, len(content)
        # The offset of a table has four bytes; some tables are shared by all copies of a tensor.
        self._tables_left = min(_MOST_TABLES, 1000 + self._size // 4)
        self._bytes_left = 2 * self._size + (1 << 20)
        self._vectors: set[tuple[int, int]] = set()
        self.end = 0
        self.table("Model", _U32.unpack_from(content, 0)[0])

    def table(self, kind: str, start: int) -> None:
        """Checks a table and everything that it points to; raises ValueError."""
        self._tables_left -= 1
        if self._tables_left < 0:
            raise ValueError("more tables than the file can hold")
        self._inside(start, 4)
        fields = start - _I32.unpack_from(self._content, start)[0]
        self._inside(fields, 4)
        length, size = (_U16.unpack_from(self._content, fields + i)[0] for i in (0, 2))
        self._inside(fields, max(4, length))
        self._inside(start, max(4, size))

        def position(field):
            """Position of a field, or None if the table does not contain it."""
            if 4 + 2 * field + 2 > length:
                return None
            offset = _U16.unpack_from(self._content, fields + 4 + 2 * field)[0]
            return start + offset if offset else None

        for field, target_kind in TABLES.get(kind, {}).items():
            at = position(field)
            if at is None:
                continue
            self._inside(at, 4)
            target = at + _U32.unpack_from(self._content, at)[0]
            if isinstance(target_kind, dict):
                chosen = position(field - 1)
                if chosen is not None:
                    self._inside(chosen, 1)
                self.table(target_kind.get(chosen and self._content[chosen], ""), target)
            elif isinstance(target_kind, str):
                self.table(target_kind, target)
            elif isinstance(target_kind, list):
                for item in range(target + 4, target + 4 + 4 * self._vector(target, 4), 4):
                    self.table(target_kind[0], item + _U32.unpack_from(self._content, item)[0])
            else:
                self._vector(target, target_kind)

    def _vector(self, start: int, width: int) -> int:
        """Checks a vector, or a string (width 0); returns its number of elements."""
        self._inside(start, 4)
        count = _U32.unpack_from(self._content, start)[0]
        size = count * max(1, width)
        self._inside(start + 4, size)
        # Strings are copied each time they are read, vectors of numbers never.
        if width == 0 or (start, size) not in self._vectors:
            self._vectors.add((start, size))
            self._bytes_left -= size
            if self._bytes_left < 0:
                raise ValueError("its parts overlap")
        return count

    def _inside(self, start: int, size: int) -> None:
        if start < 0 or start + size > self._size:
            raise ValueError(f"it points to byte {start + size:,} and ends at {self._size:,}")
        self.end = max(self.end, start + size)


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
        graph.inputs, graph.outputs = _indices(graph.inputs), _indices(graph.outputs)
        for tensor in graph.tensors:
            check("buffer", tensor.buffer, buffers)
        for operator in graph.operators:
            operator.inputs, operator.outputs = _indices(operator.inputs), _indices(operator.outputs)
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


def _indices(vector: np.ndarray | None) -> np.ndarray:
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
