"""Reads the weights in ONNX files that PyTorch exported, without ONNX."""

import os
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tfsparsecap.core.files import read_bytes
from tfsparsecap.errors import InputError

#: The parts of ONNX's messages that are needed (https://onnx.ai/onnx/api/classes.html): message -> fields, as
#: number, name, whether it is repeated, and type.
_Field = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "Tensor": [
        (1, "dims", True, _Field.TYPE_INT64),
        (2, "data_type", False, _Field.TYPE_INT32),
        (4, "float_data", True, _Field.TYPE_FLOAT),
        (8, "name", False, _Field.TYPE_STRING),
        (9, "raw_data", False, _Field.TYPE_BYTES),
    ],
    "Node": [
        (1, "input", True, _Field.TYPE_STRING),
        (3, "name", False, _Field.TYPE_STRING),
        (4, "op_type", False, _Field.TYPE_STRING),
    ],
    "Graph": [(1, "node", True, "Node"), (5, "initializer", True, "Tensor")],
    "Model": [(7, "graph", False, "Graph")],
}
#: ONNX's numbers of data types of weights.
_TYPES = {1: "<f4", 10: "<f2", 11: "<f8"}
#: Start of the names that PyTorch gives to weights that it has changed, such as folded or transposed ones.
_CHANGED = "onnx::"


def read_onnx(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the weights of a network that PyTorch exported to ONNX.

    Args:
        path: the `.onnx` file, with its weights inside.

    Returns:
        Name in PyTorch -> array in PyTorch's layout. Weights that the exporter changed are named after the
        layer that uses them: a convolution with folded batch normalisation has a `weight` and a `bias`.
        Underscores and dots in names of stages can differ (`stages_0` for `stages.0`).

    Raises:
        InputError: the file is missing, damaged or in another format.
    """
    model = message_class("Model")()
    try:
        model.ParseFromString(read_bytes(path, "give another file"))
    except DecodeError as error:
        raise InputError(f"{path} is damaged or not an ONNX file: copy or export it again") from error
    if not model.graph.initializer:
        raise InputError(f"{path} is not an ONNX file with weights: export it again, with weights inside")
    names = [tensor.name for tensor in model.graph.initializer]
    names += [text for node in model.graph.node for text in (node.name, node.op_type, *node.input)]
    if not all(isinstance(text, str) for text in names):  # bytes that are not UTF-8 stay bytes
        raise InputError(f"{path} has a name that is not UTF-8 text: copy or export it again")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type in _TYPES}
    arrays = {name: _array(tensor, path) for name, tensor in tensors.items() if not name.startswith(_CHANGED)}
    for node in model.graph.node:
        if node.op_type not in ("Conv", "MatMul", "Gemm"):
            continue
        for position, name in enumerate(node.input[1:]):
            if name in tensors and name.startswith(_CHANGED):
                array = _array(tensors[name], path)
                kind = "bias" if position else "weight"
                arrays[f"{_layer(node.name)}.{kind}"] = array.T if node.op_type == "MatMul" else array
    return arrays


def _layer(node: str) -> str:
    """The layer of a node: `/stages_0/blocks/blocks.0/conv1/Conv` is in `stages_0.blocks.0.conv1`."""
    parts = node.strip("/").split("/")[:-1]
    modules = [
        part
        for part, following in zip(parts, [*parts[1:], ""], strict=True)
        if not following.startswith(f"{part}.")
    ]
    return ".".join(modules)


def _array(tensor: Any, path: str | os.PathLike) -> np.ndarray:
    try:
        values = np.frombuffer(tensor.raw_data, _TYPES[tensor.data_type])
        return (values if values.size else np.array(tensor.float_data, np.float32)).reshape(tensor.dims)
    except ValueError as error:
        raise InputError(f"{tensor.name} in {path} is damaged: copy or export the file again") from error


@cache
def message_class(name: str) -> Any:
    """The class of one of `_MESSAGES`."""
    file = descriptor_pb2.FileDescriptorProto(name="tfsparsecap_onnx.proto", package="tfsparsecap_onnx")
    for message, fields in _MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for number, field, repeated, kind in fields:
            entry = descriptor.field.add(name=field, number=number)
            entry.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            if isinstance(kind, str):
                entry.type, entry.type_name = _Field.TYPE_MESSAGE, f".tfsparsecap_onnx.{kind}"
            else:
                entry.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tfsparsecap_onnx.{name}"))
