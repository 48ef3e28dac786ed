"""Adding constants, tensors and operations to the graph of a .tflite file."""

import numpy as np

from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

_TYPES = {np.dtype(np.float32): schema.TensorType.FLOAT32, np.dtype(np.int32): schema.TensorType.INT32}


def add_buffer(model: schema.ModelT, values: np.ndarray) -> int:
    """Adds the bytes of an array to a model; the index of their buffer."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.tobytes(), np.uint8)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def add_constant(
    model: schema.ModelT, graph: schema.SubGraphT, values: np.ndarray, name: str, buffer: int | None = None
) -> int:
    """Adds a constant to a graph; the index of its tensor.

    Args:
        model: what the graph is of.
        graph: changed in place.
        values: float32 or int32, of any shape.
        name: of the tensor.
        buffer: where the model has the values already, if it has.
    """
    tensor = schema.TensorT()
    tensor.buffer = add_buffer(model, values) if buffer is None else buffer
    tensor.name, tensor.type = name.encode(), _TYPES[values.dtype]
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
    """Adds a tensor without data, of the shape and name of another one; its index.

    Args:
        graph: changed in place.
        like: index of the other one.
        suffix: what its name is followed by.
        shape: where that is another one.
        tensor_type: where that is another one; `quantization` goes with it.
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
    """An operation with the default options of its kind, in no graph yet; its code is added to the model."""
    operator = schema.OperatorT()
    operator.opcodeIndex = flatfile.operator_code(model, builtin, version)
    operator.inputs, operator.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    # SPLIT_V has SplitVOptions, CONV_2D has Conv2DOptions, and so on.
    parts = flatfile.builtin_name(model, operator).split("_")
    kind = "".join(part if part[0].isdigit() else part.capitalize() for part in parts)
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
    operator.builtinOptions = getattr(schema, f"{kind}OptionsT")()
    return operator
