"""Storing the weights of convolutions and dense layers as int8, rounded for the inputs of a network."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfsparsecap.core.progress import Progress, silent, with_count
from tfsparsecap.model_summary.storage import Pattern
from tfsparsecap_export.encode import encodings, formats, sparse
from tfsparsecap_export.encode.calibration import CalibratedLayer, find_layers, statistics
from tfsparsecap_export.encode.encoded_file import EncodedFile, LayerReport
from tfsparsecap_export.encode.encodings import Encoded
from tfsparsecap_export.encode.rounding import round_to_nearest, round_weights
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.compact import drop_unused
from tfsparsecap_export.flatbuffer.model_file import SharedQuantization, schema
from tfsparsecap_export.keras_to_tflite.graph import KerasWeight, content_key
from tfsparsecap_export.samples import Sample

#: Layers with fewer weights become float16: they are a small part of the file and cause half of the error.
SMALL_LAYER = 16384
#: Versions of DEQUANTIZE for float16 and for int8 with one scale per channel.
_FLOAT16_VERSION, _INT8_VERSION = 3, 5


@dataclasses.dataclass(frozen=True)
class Rounded:
    """How the weights of a layer are rounded for its inputs.

    Attributes:
        source: the Keras weight.
        values: int8, like `CalibratedLayer.matrix`.
        scales: float32 [groups, outputs].
        bias: float32 [outputs], which compensates for the mean error; None if the layer has none.
        gain: variance of the outputs per variance of independent noise in all inputs, relative to the
            variance of the outputs; 0 if it is not known.
    """

    source: KerasWeight
    values: np.ndarray
    scales: np.ndarray
    bias: np.ndarray | None
    gain: float


def round_network(
    content: bytes,
    samples: Sequence[Sample],
    *,
    format: str,
    keep_float: Sequence[str] = (),
    sources: dict[bytes, KerasWeight] | None = None,
    progress: Progress = silent,
) -> dict[int, Rounded]:
    """Rounds the layers of a convolutional network that a format does not store better.

    These are convolutions, and with `auto` also dense layers without zeros. The other formats have int8
    encodings of dense layers.

    Args:
        content, samples, sources, progress: as of `round_layers`.
        format: one of `formats.INT8_FORMATS`.
        keep_float: names of dense layers that stay float.

    Returns:
        By position among `find_layers`; nothing if the network has no convolution.
    """
    layers = find_layers(flatfile.read_model(content))
    if all(layer.role != sparse.CONVOLUTION for layer in layers):
        return {}

    def selected(layer: CalibratedLayer, name: str) -> bool:
        if layer.role == sparse.CONVOLUTION:
            return True
        pattern = formats.pattern_name(Pattern.of(layer.weights))
        return format == "auto" and pattern == "dense" and name not in keep_float

    return round_layers(content, samples, selected=selected, sources=sources, progress=progress)


def round_layers(
    content: bytes,
    samples: Sequence[Sample],
    *,
    selected: Callable[[CalibratedLayer, str], bool] = lambda layer, name: True,
    sources: dict[bytes, KerasWeight] | None = None,
    progress: Progress = silent,
) -> dict[int, Rounded]:
    """Rounds weights for the activations of the given samples, see `round_weights`.

    The bias of a layer compensates for the mean error of its outputs.

    Args:
        content: a float32 file with one signature.
        samples: inputs by name, from which the covariances of the inputs of each layer are computed.
        sources: the Keras weights of constants, from `graph.weight_sources`.
        selected: tells from a layer and the name of its weights whether to round it.
        progress: see `Progress`.

    Returns:
        By position among `find_layers`.

    Reference:
        Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
        https://arxiv.org/abs/1906.04721, equation 16, for the biases.
    """
    model = flatfile.read_model(content)
    graph = model.subgraphs[0]
    chosen: list[tuple[int, CalibratedLayer, KerasWeight]] = []
    for position, layer in enumerate(find_layers(model)):
        name = (graph.tensors[layer.operator.inputs[1]].name or b"").decode("utf-8", "replace")
        source = (sources or {}).get(content_key(layer.weights), KerasWeight(name, layer.weights.size))
        if selected(layer, source.name):
            chosen.append((position, layer, source))
    rounded: dict[int, Rounded] = {}
    moments_of_layers = statistics(content, [layer for _, layer, _ in chosen], samples)
    steps = with_count(progress, f"rounding the weights of {len(chosen)} layers to int8", chosen)
    for (position, layer, source), (mean, moments) in zip(steps, moments_of_layers, strict=True):
        gain, matrix = 0.0, layer.matrix
        if moments is None:
            values, scales = round_to_nearest(matrix)
        else:
            covariance = moments - mean[:, :, None] * mean[:, None, :]
            # The difference of float32 sums may be slightly negative.
            np.einsum("gii->gi", covariance)[:] += 1e-6 * np.einsum("gii->g", moments)[:, None]
            values, scales = round_weights(matrix, moments if layer.bias is None else covariance)
            variance = float(((matrix @ covariance) * matrix).sum())
            gain = float(np.square(matrix, dtype=np.float64).sum()) / variance if variance > 0 else 0.0
        bias = None
        if layer.bias is not None:
            constant = model.buffers[graph.tensors[layer.operator.inputs[layer.bias]].buffer].data
            error = np.einsum("goi,gi->go", matrix - values * scales[..., None], mean).reshape(-1)
            bias = (np.frombuffer(constant, np.float32) + error).astype(np.float32)
        rounded[position] = Rounded(source, values, scales, bias, gain)
    return rounded


def note_on_shared(content: bytes) -> list[str]:
    """A sentence about the convolutions of a float32 file that are not rounded; small ones do not count.

    A kernel that several operations read has no inputs and no bias of its own.
    """
    model = flatfile.read_model(content)
    tensors = model.subgraphs[0].tensors
    own = {tensors[layer.operator.inputs[1]].buffer for layer in find_layers(model)}
    shared = [
        weight
        for weight in sparse.find_weights(model)
        if weight.role == sparse.CONVOLUTION
        and weight.values.size >= SMALL_LAYER
        and weight.buffer not in own
    ]
    what = "Kernels of convolutions that are used more than once, or in a loop, stay float"
    return [f"{what}: {len(shared)} in this file."] if shared else []


def store_weights(
    content: bytes,
    rounded: dict[int, Rounded],
    *,
    samples: int,
    keep_zeros: bool = False,
    multiplied: bool = False,
) -> EncodedFile:
    """Stores rounded layers as int8 with one scale per output, and small ones as float16.

    Weights are converted to float32 when the file is loaded, and of those that are mostly zero, only the
    others are stored.

    Args:
        content: the file that the layers are from.
        rounded: from `round_layers`.
        samples: number of inputs that they were rounded for.
        keep_zeros: whether to store zeros in any case.
        multiplied: whether dense layers and 1x1 convolutions multiply int8: the runtime quantizes the inputs
            of each pixel or token, with a scale of its own.

    Returns:
        The bytes of the new file, and a report on each layer.
    """
    model = flatfile.read_model(content)
    expansions: list[schema.OperatorT] = []
    reports: list[LayerReport] = []
    for position, layer in enumerate(find_layers(model)):
        if position in rounded:
            operators, report = store_rounded_layer(
                model, layer, rounded[position], samples, keep_zeros, multiplied
            )
            expansions += operators
            reports += report
    model.subgraphs[0].operators = [*expansions, *model.subgraphs[0].operators]
    drop_unused(model)
    return flatfile.write_model(model), reports


def store_rounded_layer(
    model: schema.ModelT,
    layer: CalibratedLayer,
    rounded: Rounded,
    samples: int,
    keep_zeros: bool,
    multiplied: bool = False,
) -> tuple[list[schema.OperatorT], list[LayerReport]]:
    """Stores the weights of a layer in place; returns what expands them, and a report if they changed.

    The arguments are those of `store_weights`.
    """
    model.subgraphs[0].tensors[layer.operator.inputs[1]].name = rounded.source.name.encode()
    if layer.weights.size >= SMALL_LAYER:
        quantization = encodings.quantization(rounded.scales, layer.channel_axis)
        encoded = smallest(layer.stored(rounded.values), quantization, keep_zeros)
        set_bias(model, layer, rounded.bias)
        reason = f"rounded for {samples} inputs"
    elif encodings.fits_float16(layer.weights):
        encoded = smallest(layer.weights.astype(np.float16), None, keep_zeros)
        reason = f"fewer than {SMALL_LAYER:,} weights"
    else:
        return [], []
    report = [report_on(layer, rounded.source, encoded, reason)]
    is_int8 = encoded.quantization is not None and encoded.sparsity is None
    if multiplied and is_int8 and _is_product(layer):
        _multiply(model, layer, encoded)
        return [], report
    return store_layer(model, layer, encoded), report


def _is_product(layer: CalibratedLayer) -> bool:
    """Whether a layer multiplies each pixel or token with the same matrix."""
    options = layer.operator.builtinOptions
    return layer.role == sparse.FULLY_CONNECTED or (
        layer.name == "CONV_2D"
        and layer.groups == 1
        and layer.weights.shape[1:3] == (1, 1)
        and options.strideH == options.strideW == 1
    )


def _multiply(model: schema.ModelT, layer: CalibratedLayer, encoded: Encoded) -> None:
    """Makes a layer a FULLY_CONNECTED that multiplies int8, in place."""
    graph, operator = model.subgraphs[0], layer.operator
    shape = (len(layer.weights), layer.weights.shape[-1])
    weight = flatfile.add_tensor(
        graph,
        int(operator.inputs[1]),
        "int8",
        shape=shape,
        tensor_type=encoded.tensor_type,
        quantization=encoded.quantization,
    )
    graph.tensors[weight].buffer = flatfile.add_buffer(model, encoded.values)
    inputs = [int(operator.inputs[0]), weight, *operator.inputs[2:]]
    product = flatfile.new_operator(
        model, schema.BuiltinOperator.FULLY_CONNECTED, sparse.INT8_OPERATOR_VERSION, inputs, operator.outputs
    )
    options = product.builtinOptions
    options.fusedActivationFunction = operator.builtinOptions.fusedActivationFunction
    options.keepNumDims = layer.name == "CONV_2D" or operator.builtinOptions.keepNumDims
    options.asymmetricQuantizeInputs = True
    operator.opcodeIndex, operator.inputs = product.opcodeIndex, product.inputs
    operator.builtinOptions, operator.builtinOptionsType = options, product.builtinOptionsType


def set_bias(model: schema.ModelT, layer: CalibratedLayer, bias: np.ndarray | None) -> None:
    """Replaces the bias of a layer, in place."""
    if layer.bias is None or bias is None:
        return
    graph = model.subgraphs[0]
    name = graph.tensors[layer.operator.inputs[layer.bias]].name or b""
    inputs = layer.operator.inputs.copy()
    inputs[layer.bias] = flatfile.add_constant(model, graph, bias, name.decode())
    layer.operator.inputs = inputs


def smallest(values: np.ndarray, quantization: SharedQuantization | None, keep_zeros: bool) -> Encoded:
    """Values of any type, stored with or without zeros, whichever is smaller."""
    dense = Encoded(values.reshape(-1), None, quantization)
    if keep_zeros:
        return dense
    sparsity, stored_values = encodings.compress(values, 1)
    return min(dense, Encoded(stored_values, sparsity, quantization), key=lambda encoded: encoded.bytes)


def store_layer(model: schema.ModelT, layer: CalibratedLayer, encoded: Encoded) -> list[schema.OperatorT]:
    """Stores weights in another encoding; returns the operations that expand them when the file is loaded."""
    graph, weight = model.subgraphs[0], int(layer.operator.inputs[1])
    options: dict[str, Any] = {"tensor_type": encoded.tensor_type, "quantization": encoded.quantization}
    operators = []
    source = flatfile.add_tensor(graph, weight, encoded.values.dtype.name, **options)
    tensor = graph.tensors[source]
    tensor.buffer, tensor.sparsity = flatfile.add_buffer(model, encoded.values), encoded.sparsity
    graph.tensors[weight].buffer = 0
    is_int8 = graph.tensors[weight].type == encoded.tensor_type
    if encoded.sparsity is not None:
        dense = weight if is_int8 else flatfile.add_tensor(graph, weight, "dense", **options)
        operators.append(flatfile.new_operator(model, schema.BuiltinOperator.DENSIFY, 1, [source], [dense]))
        source = dense
    if not is_int8:
        version = _FLOAT16_VERSION if encoded.quantization is None else _INT8_VERSION
        dequantize = schema.BuiltinOperator.DEQUANTIZE
        operators.append(flatfile.new_operator(model, dequantize, version, [source], [weight]))
    return operators


def report_on(layer: CalibratedLayer, source: KerasWeight, encoded: Encoded, reason: str) -> LayerReport:
    """Report on a layer with stored weights."""
    pattern = Pattern.of(layer.weights.reshape(-1, layer.weights.shape[-1]))
    is_sparse = encoded.sparsity is not None
    kind = encodings.Encoding(encoded.values.dtype.type, 1 if is_sparse else None)
    return LayerReport(
        name=source.name,
        role=layer.role,
        shape=layer.weights.shape,
        pattern=formats.pattern_name(pattern),
        weights=min(source.weights, layer.weights.size),
        nonzeros=pattern.nonzeros,
        encoding=next(name for name, encoding in encodings.ENCODINGS.items() if encoding == kind),
        bytes=encoded.bytes,
        expected_ms=0.0,
        reason=reason + ("; expanded once" if is_sparse else ""),
    )
