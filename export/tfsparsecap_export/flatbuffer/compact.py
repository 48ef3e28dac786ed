"""Removing the parts of a .tflite file that no runtime reads, and naming the others."""

import hashlib
import itertools
import re

import numpy as np

from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import filled, schema

#: Operator -> position of the bias among its inputs.
_BIASES = {"FULLY_CONNECTED": 2, "CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "CONV_3D": 2, "TRANSPOSE_CONV": 3}
#: Names of constants that say nothing.
_NUMBERED = re.compile(rb"|(arith|tfl|std)\.\w+")


def drop_unused(model: schema.ModelT) -> None:
    """Removes tensors that nothing uses, buffers without data, and empty quantization parameters, in place.

    The converter gives each intermediate result an empty buffer of its own. Tensors and buffers get new
    indices; buffer 0, which stays, means "no data".
    """
    for g, graph in enumerate(model.subgraphs):
        entries = [
            entry
            for signature in model.signatureDefs or []
            if signature.subgraphIndex == g
            for entry in [*(signature.inputs or []), *(signature.outputs or [])]
        ]
        indices = [graph.inputs, graph.outputs, [entry.tensorIndex for entry in entries]]
        for operator in graph.operators:
            indices += [operator.inputs, operator.outputs, filled(operator.intermediates)]
        used = np.unique(np.concatenate(indices).astype(np.int32))
        place = {-1: -1} | {int(old): new for new, old in enumerate(used[used >= 0])}

        def moved(vector, place=place):
            return np.array([place[int(index)] for index in vector], np.int32)

        graph.tensors = [graph.tensors[old] for old in place if old >= 0]
        graph.inputs, graph.outputs = moved(graph.inputs), moved(graph.outputs)
        for operator in graph.operators:
            operator.inputs, operator.outputs = moved(operator.inputs), moved(operator.outputs)
            if operator.intermediates is not None:
                operator.intermediates = moved(operator.intermediates)
        for entry in entries:
            entry.tensorIndex = place[entry.tensorIndex]
    _drop_buffers(model)
    for tensor in _tensors(model):
        parameters = tensor.quantization
        if parameters is not None and not np.size(filled(parameters.scale)) and not parameters.details:
            tensor.quantization = None


def share_equal_buffers(model: schema.ModelT) -> None:
    """Lets constants with the same bytes share a buffer, in place; `drop_unused` removes the others."""
    first: dict[bytes, int] = {}
    place: dict[int, int] = {}
    for index in sorted({tensor.buffer for tensor in _tensors(model)}):
        data = model.buffers[index].data
        if data is not None and len(data):
            place[index] = first.setdefault(hashlib.sha256(np.ascontiguousarray(data)).digest(), index)
    for tensor in _tensors(model):
        tensor.buffer = place.get(tensor.buffer, tensor.buffer)


def drop_names(model: schema.ModelT) -> None:
    """Removes the names of intermediate results and of constants other than weight matrices, in place.

    The names that `read_contents` shows, and those of inputs and outputs of graphs, stay. The converter joins
    the names of all layers that it has fused into an operation; the first of them stays.
    """
    for graph in model.subgraphs:
        public = {*map(int, graph.inputs), *map(int, graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            data = model.buffers[tensor.buffer].data
            if index in public:
                continue
            is_matrix = data is not None and len(data) and np.size(filled(tensor.shape)) > 1
            tensor.name = _name(graph, index) if is_matrix else b""


def complete_names(model: schema.ModelT) -> None:
    """Gives each tensor of a file a name of its own, in place: tools that read .tflite files rely on it.

    The converter numbers constants without saying where they belong (`arith.constant3`): they get the name
    of the layer that reads them first. Names of inputs and outputs of graphs stay. Zero bytes, which end a
    name for these tools, become `_`.
    """
    ends = [graph.tensors[index] for graph in model.subgraphs for index in [*graph.inputs, *graph.outputs]]
    end_ids = {id(tensor) for tensor in ends}
    for graph in model.subgraphs:
        for operator in graph.operators:
            _name_after_layer(model, graph, operator, end_ids)
    used: set[bytes] = set()
    for tensor in {id(tensor): tensor for tensor in [*ends, *_tensors(model)]}.values():
        name = (tensor.name or b"tensor").replace(b"\0", b"_").strip(b";")
        numbered = (b"%s_%d" % (name, number) for number in itertools.count(1))
        tensor.name = next(choice for choice in itertools.chain((name,), numbered) if choice not in used)
        used.add(tensor.name)


def _name_after_layer(
    model: schema.ModelT, graph: schema.SubGraphT, operator: schema.OperatorT, end_ids: set[int]
) -> None:
    """Names the constants and the results of an operation that have no names of layers, in place.

    Args:
        model, graph, operator: the operation.
        end_ids: Python's ids of the inputs and outputs of graphs, which keep their names.
    """
    code = flatfile.builtin_name(model, operator)
    for position, index in enumerate(operator.inputs):
        if flatfile.constant(model, graph, index) is None or id(graph.tensors[index]) in end_ids:
            continue
        name = graph.tensors[index].name or b""
        if b"/" in name:
            continue
        layer, part = _name(graph, operator.outputs[0]), name
        if _BIASES.get(code) == position:
            layer, part = _name(graph, operator.inputs[1]).rpartition(b"/")[0], b"bias"
        elif _NUMBERED.fullmatch(name):
            part = b"input_%d" % position
        graph.tensors[index].name = layer + b"/" + part
    for index in operator.outputs if len(operator.inputs) else ():
        tensor = graph.tensors[index]
        if id(tensor) not in end_ids and _NUMBERED.fullmatch(tensor.name or b""):
            tensor.name = _name(graph, operator.inputs[0]) + b"/" + code.lower().encode()


def _name(graph: schema.SubGraphT, index: int) -> bytes:
    """Name of a tensor; the first one where the converter has joined those of fused operations."""
    return (graph.tensors[index].name or b"").replace(b"\0", b"_").split(b";")[0]


def _drop_buffers(model: schema.ModelT) -> None:
    """Removes buffers without data or that nothing refers to; the order of the others stays."""
    owners = [*_tensors(model), *(model.metadata or [])]
    used = {owner.buffer for owner in owners}
    place: dict[int, int] = {}
    buffers = [model.buffers[0]]
    for index, buffer in enumerate(model.buffers):
        if index and index in used and buffer.data is not None and len(buffer.data):
            place[index] = len(buffers)
            buffers.append(buffer)
    for owner in owners:
        owner.buffer = place.get(owner.buffer, 0)
    model.buffers = buffers


def _tensors(model: schema.ModelT) -> list[schema.TensorT]:
    return [tensor for graph in model.subgraphs for tensor in graph.tensors]
