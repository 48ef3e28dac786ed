"""Adding constants, tensors and operations to the graph of a .tflite file."""

import numpy as np

from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema


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
    tensor.name, tensor.type = name.encode(), flatfile.tensor_type(values.dtype)
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
    operator.opcodeIndex = flatfile.operator_code(model, builtin, version)
    operator.inputs, operator.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    # The options of SPLIT_V are SplitVOptions, those of CONV_2D Conv2DOptions, and so on.
    kind = flatfile.builtin_name(model, operator).title().replace("_", "")
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
    operator.builtinOptions = getattr(schema, f"{kind}OptionsT")()
    return operator
