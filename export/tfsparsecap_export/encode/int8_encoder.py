"""Joining an int8 encoder and a decoder, two .tflite files, into one."""

import numpy as np

from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.encode.file import LayerReport
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema

#: Name of the encoder among the layers.
NAME = "encoder"
#: Number of images for calibration; more hardly change the ranges of the activations.
CALIBRATION_IMAGES = 50


def join_encoder(encoder: bytes, decoder: bytes) -> bytes:
    """Inserts the graph of an encoder in front of the graph of a decoder.

    The converter quantizes a whole graph or nothing of it, and cannot calibrate loops. So the encoder is
    converted separately, and its operations are inserted in front of the decoder's here.

    Args:
        encoder: a file of one subgraph with one input and one output, the decoder's `features`.
        decoder: a file of one signature with an input `features`.

    Returns:
        The decoder's file with the encoder's input instead of `features`.
    """
    first, second = flatfile.read_model(encoder), flatfile.read_model(decoder)
    (source,) = first.subgraphs
    target, (signature,) = second.subgraphs[0], second.signatureDefs
    replaced = next(entry for entry in signature.inputs if entry.name == b"features")
    features = replaced.tensorIndex
    (result,) = source.outputs

    offset = len(target.tensors)
    for tensor in source.tensors:
        tensor.buffer += len(second.buffers)
    target.tensors = [*target.tensors, *source.tensors]
    second.buffers = [*second.buffers, *first.buffers]

    def moved(indices):
        """New indices of the encoder's tensors; its result becomes the decoder's input."""
        return np.array([features if i == result else i + offset if i >= 0 else i for i in indices], np.int32)

    for operator in source.operators:
        code = first.operatorCodes[operator.opcodeIndex]
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        operator.opcodeIndex = flatfile.operator_code(second, builtin, code.version)
        operator.inputs, operator.outputs = moved(operator.inputs), moved(operator.outputs)
        if operator.intermediates is not None:
            operator.intermediates = moved(operator.intermediates)
    target.operators = [*source.operators, *target.operators]
    (image,) = moved(source.inputs)
    target.inputs = np.array([image if index == features else index for index in target.inputs], np.int32)
    (entry,) = first.signatureDefs[0].inputs
    entry.tensorIndex = int(image)
    signature.inputs = [entry if other is replaced else other for other in signature.inputs]
    return flatfile.write_model(second)


def output_shape(encoder: bytes) -> tuple[int, ...]:
    """Shape of the only output of a file; [1, N, D] for an encoder."""
    graph = flatfile.read_model(encoder).subgraphs[0]
    return tuple(int(size) for size in graph.tensors[graph.outputs[0]].shape)


def encoder_report(encoder: bytes, calibration: int) -> LayerReport:
    """Report on an int8 encoder.

    Args:
        encoder: the encoder's own file.
        calibration: number of images that it was calibrated with.
    """
    model = flatfile.read_model(encoder)
    int8 = {
        tensor.buffer: np.frombuffer(model.buffers[tensor.buffer].data, np.int8)
        for tensor in model.subgraphs[0].tensors
        if tensor.type == schema.TensorType.INT8 and model.buffers[tensor.buffer].data is not None
    }
    weights = sum(values.size for values in int8.values())
    return LayerReport(
        name=NAME,
        role=sparse.CONVOLUTION,
        shape=(weights,),
        pattern="dense",
        weights=weights,
        nonzeros=sum(int(np.count_nonzero(values)) for values in int8.values()),
        encoding=encodings.INT8,
        bytes=sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None),
        expected_ms=0.0,
        reason=f"calibrated with {calibration} images",
    )
