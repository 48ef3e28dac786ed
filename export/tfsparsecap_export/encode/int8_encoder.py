"""An int8 encoder in front of a decoder: two .tflite files made one."""

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.report import LayerReport

#: What the encoder is called among the layers.
NAME = "encoder"
#: Pictures that the ranges of values are taken from; more hardly change them.
CALIBRATION_IMAGES = 50


def joined(encoder: bytes, decoder: bytes) -> bytes:
    """Puts one file's graph in front of another's.

    The converter quantises a whole graph or nothing of it, and does not follow a loop while it looks for the
    ranges of values. So the encoder is converted by itself, and its operations are put in front of the
    decoder's here.

    Args:
        encoder: a file of one subgraph with one input and one output, the decoder's `features`.
        decoder: a file of one signature with an input `features`.

    Returns:
        A file with the encoder's input in the place of `features`, and all else as the decoder has it.
    """
    first, second = flatfile.read_model(encoder), flatfile.read_model(decoder)
    (source,) = first.subgraphs
    target, (signature,) = second.subgraphs[0], second.signatureDefs
    replaced = next(named for named in signature.inputs if named.name == b"features")
    features = replaced.tensorIndex
    (result,) = source.outputs

    added = len(target.tensors)
    for tensor in source.tensors:
        tensor.buffer += len(second.buffers)
    target.tensors = [*target.tensors, *source.tensors]
    second.buffers = [*second.buffers, *first.buffers]

    def moved(indices):
        """Where tensors of the encoder are now; its result is the decoder's input."""
        places = (
            features if index == result else index + added if index >= 0 else index for index in indices
        )
        return np.array(list(places), np.int32)

    for operator in source.operators:
        code = first.operatorCodes[operator.opcodeIndex]
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        operator.opcodeIndex = flatfile.operator_code(second, builtin, code.version)
        operator.inputs, operator.outputs = moved(operator.inputs), moved(operator.outputs)
        if operator.intermediates is not None:
            operator.intermediates = moved(operator.intermediates)
    target.operators = [*source.operators, *target.operators]
    (given,) = moved(source.inputs)
    target.inputs = np.array([given if index == features else index for index in target.inputs], np.int32)
    (named,) = first.signatureDefs[0].inputs
    named.tensorIndex = int(given)
    signature.inputs = [named if other is replaced else other for other in signature.inputs]
    return flatfile.write_model(second)


def output_shape(encoder: bytes) -> tuple[int, ...]:
    """Of the only output of a file, [1, N, D] of an encoder's."""
    graph = flatfile.read_model(encoder).subgraphs[0]
    return tuple(int(size) for size in graph.tensors[graph.outputs[0]].shape)


def report_of(encoder: bytes, calibration: int) -> LayerReport:
    """What is to be said of an int8 encoder.

    Args:
        encoder: its own file.
        calibration: number of pictures that it was calibrated with.
    """
    model = flatfile.read_model(encoder)
    constants = {
        tensor.buffer: np.frombuffer(model.buffers[tensor.buffer].data, np.int8)
        for tensor in model.subgraphs[0].tensors
        if tensor.type == schema.TensorType.INT8 and model.buffers[tensor.buffer].data is not None
    }
    weights = sum(values.size for values in constants.values())
    return LayerReport(
        name=NAME,
        role=sparse.CONVOLUTION,
        shape=(weights,),
        pattern="dense",
        weights=weights,
        nonzeros=sum(int(np.count_nonzero(values)) for values in constants.values()),
        encoding=sparse.INT8,
        bytes=sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None),
        expected_ms=0.0,
        reason=f"ranges of values from {calibration} pictures",
    )
