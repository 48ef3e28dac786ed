"""Storing the weights of an encoder as int8, and joining it and a decoder, two .tflite files, into one."""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.encode.file import LayerReport
from tfsparsecap_export.encode.rounding import round_weights
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.compact import drop_unused
from tfsparsecap_export.flatbuffer.model_file import schema

#: Name of the encoder among the layers.
NAME = "encoder"
#: Number of images for calibration; each has hundreds of inputs for most weights.
CALIBRATION_IMAGES = 32
#: Layers with fewer weights become float16: they are a small part of the file and cause half of the error.
SMALL_LAYER = 16384
#: Number of positions of a feature map that are used per image and layer.
_POSITIONS = 256
#: Versions of DEQUANTIZE for float16 and for int8 with one scale per channel.
_FLOAT16_VERSION, _INT8_VERSION = 3, 5


@dataclasses.dataclass(frozen=True)
class _Layer:
    """A convolution or dense layer of a graph with float32 weights.

    Attributes:
        name: name of the operation, such as `"CONV_2D"`.
        operator: the operation.
        weights: float32 in the layout of the operation.
    """

    name: str
    operator: schema.OperatorT
    weights: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """The weights as [groups, outputs, inputs], see `round_weights`."""
        if self.name == "DEPTHWISE_CONV_2D":
            return self.weights.reshape(-1, self.weights.shape[-1]).T[:, None]
        return self.weights.reshape(1, len(self.weights), -1)

    def stored(self, matrix: np.ndarray) -> np.ndarray:
        """A matrix like `matrix` in the layout of the operation."""
        return matrix[:, 0].T if self.name == "DEPTHWISE_CONV_2D" else matrix

    def inputs(self, values: np.ndarray) -> np.ndarray:
        """What each weight is multiplied by, [groups, positions, inputs], for an input of the operation."""
        if self.name == "FULLY_CONNECTED":
            return _some(values.reshape(-1, self.weights.shape[1]))[None]
        windows = _some(_windows(values[0], self.weights.shape[1:3], self.operator.builtinOptions))
        if self.name == "DEPTHWISE_CONV_2D":
            multiplier = self.weights.shape[-1] // values.shape[-1]
            return windows.transpose(2, 0, 1).repeat(multiplier, axis=0)
        return windows.reshape(1, len(windows), -1)


def quantize_encoder(encoder: bytes, images: Sequence[np.ndarray]) -> bytes:
    """Stores the weights of convolutions and dense layers as int8 with one scale per output, or as float16.

    Weights are converted to float32 when the file is loaded, and activations stay float32. The weights are
    rounded for the activations of the given images, see `round_weights`. The bias of a layer compensates for
    the mean error of its outputs.

    Args:
        encoder: a float32 file of one subgraph with one input.
        images: inputs of the file, from which the covariances of the inputs of each layer are computed.

    Reference:
        Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
        https://arxiv.org/abs/1906.04721, equation 16, for the biases.
    """
    model = flatfile.read_model(encoder)
    (graph,) = model.subgraphs
    expansions = []

    def store(weight: int, values: np.ndarray, version: int, quantization=None) -> None:
        """Stores a weight in another type, from which it is expanded when the file is loaded."""
        stored = flatfile.add_tensor(
            graph,
            weight,
            values.dtype.name,
            tensor_type=flatfile.tensor_type(values.dtype),
            quantization=quantization,
        )
        graph.tensors[stored].buffer = flatfile.add_buffer(model, values)
        graph.tensors[weight].buffer = 0
        expand = schema.BuiltinOperator.DEQUANTIZE
        expansions.append(flatfile.new_operator(model, expand, version, [stored], [weight]))

    layers = []
    for layer in _layers(model):
        if layer.weights.size >= SMALL_LAYER:
            layers.append(layer)
        elif encodings.fits_float16(layer.weights):
            store(int(layer.operator.inputs[1]), layer.weights.astype(np.float16), _FLOAT16_VERSION)
    for layer, (mean, moments) in zip(layers, _statistics(encoder, layers, images), strict=True):
        operator, has_bias = layer.operator, len(layer.operator.inputs) > 2 and layer.operator.inputs[2] >= 0
        if has_bias:
            moments = moments - mean[:, :, None] * mean[:, None, :]
        values, scales = round_weights(layer.matrix, moments)
        if has_bias:
            bias = graph.tensors[operator.inputs[2]]
            old = np.frombuffer(model.buffers[bias.buffer].data, np.float32)
            error = layer.matrix - values * scales[..., None]
            corrected = old + np.einsum("goi,gi->go", error, mean).reshape(-1)
            index = flatfile.add_constant(model, graph, corrected.astype(np.float32), bias.name.decode())
            operator.inputs = np.array([*operator.inputs[:2], index], np.int32)
        quantization = schema.QuantizationParametersT()
        quantization.scale = scales.reshape(-1)
        quantization.zeroPoint = np.zeros(scales.size, np.int64)
        quantization.quantizedDimension = layer.weights.ndim - 1 if layer.name == "DEPTHWISE_CONV_2D" else 0
        store(int(operator.inputs[1]), layer.stored(values), _INT8_VERSION, quantization)
    graph.operators = [*expansions, *graph.operators]
    drop_unused(model)
    return flatfile.write_model(model)


def _layers(model: schema.ModelT) -> Iterator[_Layer]:
    """Layers whose weights belong to them alone."""
    (graph,) = model.subgraphs
    uses = collections.Counter(int(index) for operator in graph.operators for index in operator.inputs)
    for operator in graph.operators:
        name = flatfile.builtin_name(model, operator)
        if name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            tensor = graph.tensors[operator.inputs[1]]
            data = model.buffers[tensor.buffer].data
            if (
                data is not None
                and tensor.type == schema.TensorType.FLOAT32
                and uses[operator.inputs[1]] == 1
            ):
                yield _Layer(name, operator, np.frombuffer(data, np.float32).reshape(tensor.shape))


def _statistics(
    encoder: bytes, layers: Sequence[_Layer], images: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Means [groups, inputs] and second moments [groups, inputs, inputs] of the inputs of each layer."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    # The delegate does not keep intermediate results.
    run = Interpreter(
        model_content=encoder,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    (image_input,) = run.get_input_details()
    sums = [(np.zeros(1), np.zeros(1), 0)] * len(layers)
    for image in images:
        run.set_tensor(image_input["index"], image)
        run.invoke()
        for number, layer in enumerate(layers):
            values = layer.inputs(run.get_tensor(int(layer.operator.inputs[0])))
            first, second, count = sums[number]
            sums[number] = (
                first + values.sum(axis=1, dtype=np.float64),
                second + values.transpose(0, 2, 1) @ values,
                count + values.shape[1],
            )
    return [(first / count, second / count) for first, second, count in sums]


def _some(positions: np.ndarray) -> np.ndarray:
    """At most 2 * `_POSITIONS` of the positions, evenly spaced."""
    return positions[:: max(1, len(positions) // _POSITIONS)]


def _windows(values: np.ndarray, size: Sequence[int], options) -> np.ndarray:
    """The windows [positions, height * width, C] that a convolution reads from a map [H, W, C]."""
    strides = (options.strideH, options.strideW)
    dilations = (options.dilationHFactor, options.dilationWFactor)
    spans = [(length - 1) * dilation + 1 for length, dilation in zip(size, dilations, strict=True)]
    if options.padding == schema.Padding.SAME:
        missing = [
            max(0, (-(-length // stride) - 1) * stride + span - length)
            for length, stride, span in zip(values.shape[:2], strides, spans, strict=True)
        ]
        values = np.pad(values, [*((pad // 2, pad - pad // 2) for pad in missing), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(values, spans, axis=(0, 1))
    windows = windows[:: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]]
    windows = windows.transpose(0, 1, 3, 4, 2)  # rows, columns, height, width, C
    return windows.reshape(-1, windows.shape[2] * windows.shape[3], values.shape[-1])


def join_encoder(encoder: bytes, decoder: bytes) -> bytes:
    """Inserts the graph of an encoder in front of the graph of a decoder.

    The weights of an encoder are rounded for its activations, which only a file of its own can return.

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
        calibration: number of images that its weights were rounded for.
    """
    model = flatfile.read_model(encoder)
    types = {schema.TensorType.INT8: np.int8, schema.TensorType.FLOAT16: np.float16}
    stored = {
        tensor.buffer: np.frombuffer(model.buffers[tensor.buffer].data, types[tensor.type])
        for tensor in model.subgraphs[0].tensors
        if tensor.type in types and model.buffers[tensor.buffer].data is not None
    }
    weights = sum(values.size for values in stored.values())
    return LayerReport(
        name=NAME,
        role=sparse.CONVOLUTION,
        shape=(weights,),
        pattern="dense",
        weights=weights,
        nonzeros=sum(int(np.count_nonzero(values)) for values in stored.values()),
        encoding=encodings.INT8,
        bytes=sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None),
        expected_ms=0.0,
        reason=f"small layers float16; rounded for {calibration} images",
    )
