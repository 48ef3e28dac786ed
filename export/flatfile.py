"""Reading and writing the FlatBuffer of a .tflite file: bytes to the schema's objects and back."""

import struct

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from tfsparsecap.errors import InputError

IDENTIFIER = b"TFL3"
#: What the TFLite format demands of a constant's first byte; NEON kernels read constants in place.
BUFFER_ALIGNMENT = 16

_BUILTIN_NAMES = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)
}


def read_model(content: bytes, where: str = "the file") -> schema.ModelT:
    """The schema's `ModelT` of a .tflite file.

    Every table is walked and every vector's end is checked against the end of the file, so that a truncated
    file ends here and not in the runtime.

    Args:
        content: the bytes of the file; what follows the FlatBuffer (a bundle's associated files) is ignored.
        where: what the message calls the file.

    Raises:
        InputError: the bytes are no .tflite file, or a damaged one.
    """
    check_identifier(content, where)
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{where} is a damaged .tflite file ({error}): export it again") from error
    if not model.subgraphs or not model.operatorCodes or not model.buffers:
        raise InputError(f"{where} is a .tflite file without a graph: export it again")
    return model


def check_identifier(content: bytes, where: str) -> None:
    """Raises InputError where bytes do not begin as a .tflite file does."""
    if content[4:8] != IDENTIFIER:
        raise InputError(
            f"{where} is no .tflite file: its fifth to eighth byte are not TFL3; give an exported model"
        )


def write_model(model: schema.ModelT) -> bytes:
    """The bytes of a .tflite file; the same model gives the same bytes."""
    model.buffers = [_AlignedBuffer(buffer.data) for buffer in model.buffers]
    size = sum(0 if buffer.data is None else len(buffer.data) for buffer in model.buffers)
    builder = flatbuffers.Builder(size + (1 << 20))
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def builtin_name(model: schema.ModelT, operator: schema.OperatorT) -> str:
    """`"FULLY_CONNECTED"`, `"WHILE"`, … of an operator."""
    code = model.operatorCodes[operator.opcodeIndex]
    # Files from before 2020 hold the code in the older, one-byte field only.
    return _BUILTIN_NAMES.get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")


def operator_code(model: schema.ModelT, builtin: int, version: int) -> int:
    """Index of the operator code with this builtin and version, added where the model has none yet."""
    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == builtin and code.version == version:
            return index
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), version
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


class _WrittenOnce:
    """A table that is written once however many tensors have it.

    Indices and scales of a constant lie with the tensor, not with its buffer; a constant that several
    subgraphs hold would otherwise store them several times.
    """

    _written: tuple[flatbuffers.Builder, int] | None = None

    def Pack(self, builder):
        if self._written is None or self._written[0] is not builder:
            self._written = (builder, super().Pack(builder))
        return self._written[1]


class SharedSparsity(_WrittenOnce, schema.SparsityParametersT):
    """Sparsity parameters that several tensors share."""


class SharedQuantization(_WrittenOnce, schema.QuantizationParametersT):
    """Quantization parameters that several tensors share."""


class _AlignedBuffer(schema.BufferT):
    """A buffer whose data starts at a multiple of 16 bytes: the generated Python code forgets the schema's
    `force_align`."""

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
