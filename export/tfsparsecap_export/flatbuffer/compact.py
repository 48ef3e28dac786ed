"""Removing the parts of a .tflite file that no runtime reads."""

import hashlib

import numpy as np

from tfsparsecap_export.flatbuffer.model_file import filled, schema


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
            tensor.name = (tensor.name or b"").split(b";")[0] if is_matrix else b""


def _drop_buffers(model: schema.ModelT) -> None:
    """Removes buffers without data or that nothing refers to; the order of the others stays."""
    owners = [*_tensors(model), *(model.metadata or [])]
    used = {owner.buffer for owner in owners}
    place: dict[int, int] = {}
    kept = [model.buffers[0]]
    for index, buffer in enumerate(model.buffers):
        if index and index in used and buffer.data is not None and len(buffer.data):
            place[index] = len(kept)
            kept.append(buffer)
    for owner in owners:
        owner.buffer = place.get(owner.buffer, 0)
    model.buffers = kept


def _tensors(model: schema.ModelT) -> list[schema.TensorT]:
    return [tensor for graph in model.subgraphs for tensor in graph.tensors]
