"""Storing the weights of convolutions and dense layers as int8, rounded for the inputs of a network."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfsparsecap.model_summary.storage import Pattern
from tfsparsecap_export.convert.graph import Source, content_key
from tfsparsecap_export.encode import encodings, formats, sparse
from tfsparsecap_export.encode.calibration import Layer, find_layers, statistics
from tfsparsecap_export.encode.encodings import Encoded
from tfsparsecap_export.encode.file import LayerReport
from tfsparsecap_export.encode.rounding import round_to_nearest, round_weights
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.compact import drop_unused
from tfsparsecap_export.flatbuffer.model_file import SharedQuantization, schema
from tfsparsecap_export.samples import Sample

#: Layers with fewer weights become float16: they are a small part of the file and cause half of the error.
SMALL_LAYER = 16384
#: Versions of DEQUANTIZE for float16 and for int8 with one scale per channel.
_FLOAT16_VERSION, _INT8_VERSION = 3, 5


def quantize_network(
    content: bytes,
    samples: Sequence[Sample],
    *,
    format: str,
    keep_float: Sequence[str] = (),
    sources: dict[bytes, Source] | None = None,
) -> tuple[bytes, list[LayerReport]] | None:
    """`quantize_weights` of the layers of a convolutional network that a format does not store better.

    These are convolutions, and with `auto` also dense layers without zeros. The other formats have int8
    encodings of dense layers.

    Args:
        content, samples, sources: as of `quantize_weights`.
        format: one of `formats.INT8_FORMATS`.
        keep_float: names of dense layers that stay float.

    Returns:
        As `quantize_weights`; None if the network has no convolution.
    """
    layers = find_layers(flatfile.read_model(content))
    if all(layer.role != sparse.CONVOLUTION for layer in layers):
        return None

    def selected(layer: Layer, name: str) -> bool:
        if layer.role == sparse.CONVOLUTION:
            return True
        pattern = formats.pattern_name(Pattern.of(layer.weights))
        return format == "auto" and pattern == "dense" and name not in keep_float

    keep_zeros = format == "dense-int8"
    return quantize_weights(content, samples, selected=selected, sources=sources, keep_zeros=keep_zeros)


def quantize_weights(
    content: bytes,
    samples: Sequence[Sample],
    *,
    selected: Callable[[Layer, str], bool] = lambda layer, name: True,
    sources: dict[bytes, Source] | None = None,
    keep_zeros: bool = False,
) -> tuple[bytes, list[LayerReport]]:
    """Stores the weights of convolutions and dense layers as int8 with one scale per output, or as float16.

    Weights are converted to float32 when the file is loaded, and activations stay float32. The weights are
    rounded for the activations of the given samples, see `round_weights`. The bias of a layer compensates for
    the mean error of its outputs. If most weights are zero, only the others are stored.

    Args:
        content: a float32 file with one signature.
        samples: inputs by name, from which the covariances of the inputs of each layer are computed.
        selected: tells from a layer and the name of its weights whether to change it.
        sources: the Keras weights of constants, from `graph.weight_sources`.
        keep_zeros: whether to store zeros in any case.

    Returns:
        The bytes of the new file, and a report on each changed layer.

    Reference:
        Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
        https://arxiv.org/abs/1906.04721, equation 16, for the biases.
    """
    model = flatfile.read_model(content)
    graph = model.subgraphs[0]
    expansions: list[schema.OperatorT] = []
    reports: list[LayerReport] = []
    large: list[tuple[Layer, Source]] = []
    for layer in find_layers(model):
        tensor = graph.tensors[layer.operator.inputs[1]]
        name = (tensor.name or b"").decode("utf-8", "replace")
        source = (sources or {}).get(content_key(layer.weights), Source(name, layer.weights.size))
        if not selected(layer, source.name):
            continue
        if layer.weights.size >= SMALL_LAYER:
            large.append((layer, source))
        elif encodings.fits_float16(layer.weights):
            encoded = _smallest(layer.weights.astype(np.float16), None, keep_zeros)
            expansions += _store(model, layer, encoded)
            reports.append(_report(layer, source, encoded, f"fewer than {SMALL_LAYER:,} weights"))
    found = statistics(content, [layer for layer, _ in large], samples)
    reason = f"rounded for {len(samples)} inputs"
    for (layer, source), (mean, moments) in zip(large, found, strict=True):
        if layer.bias is not None and moments is not None:
            # The difference of float32 sums may be slightly negative.
            noise = 1e-6 * np.einsum("gii->g", moments)[:, None, None] * np.eye(moments.shape[-1])
            moments = moments - mean[:, :, None] * mean[:, None, :] + noise
        values, scales = (
            round_to_nearest(layer.matrix) if moments is None else round_weights(layer.matrix, moments)
        )
        if layer.bias is not None:
            bias = graph.tensors[layer.operator.inputs[layer.bias]]
            old = np.frombuffer(model.buffers[bias.buffer].data, np.float32)
            error = layer.matrix - values * scales[..., None]
            corrected = old + np.einsum("goi,gi->go", error, mean).reshape(-1)
            index = flatfile.add_constant(model, graph, corrected.astype(np.float32), bias.name.decode())
            inputs = layer.operator.inputs.copy()
            inputs[layer.bias] = index
            layer.operator.inputs = inputs
        quantization = SharedQuantization()
        quantization.scale = scales.reshape(-1)
        quantization.zeroPoint = np.zeros(scales.size, np.int64)
        quantization.quantizedDimension = layer.channel_axis
        encoded = _smallest(layer.stored(values), quantization, keep_zeros)
        expansions += _store(model, layer, encoded)
        reports.append(_report(layer, source, encoded, reason))
    graph.operators = [*expansions, *graph.operators]
    drop_unused(model)
    return flatfile.write_model(model), reports


def _smallest(values: np.ndarray, quantization: SharedQuantization | None, keep_zeros: bool) -> Encoded:
    """Values of any type, stored with or without zeros, whichever is smaller."""
    dense = Encoded(values.reshape(-1), None, quantization)
    if keep_zeros:
        return dense
    sparsity, kept = encodings.compress(values, 1)
    return min(dense, Encoded(kept, sparsity, quantization), key=lambda encoded: encoded.bytes)


def _store(model: schema.ModelT, layer: Layer, encoded: Encoded) -> list[schema.OperatorT]:
    """Stores weights in another encoding; returns the operations that expand them when the file is loaded."""
    graph, weight = model.subgraphs[0], int(layer.operator.inputs[1])
    kept: dict[str, Any] = {"tensor_type": encoded.tensor_type, "quantization": encoded.quantization}
    operators = []
    source = flatfile.add_tensor(graph, weight, encoded.values.dtype.name, **kept)
    tensor = graph.tensors[source]
    tensor.buffer, tensor.sparsity = flatfile.add_buffer(model, encoded.values), encoded.sparsity
    if encoded.sparsity is not None:
        dense = flatfile.add_tensor(graph, weight, "dense", **kept)
        operators.append(flatfile.new_operator(model, schema.BuiltinOperator.DENSIFY, 1, [source], [dense]))
        source = dense
    version = _FLOAT16_VERSION if encoded.quantization is None else _INT8_VERSION
    graph.tensors[weight].buffer = 0
    expand = flatfile.new_operator(model, schema.BuiltinOperator.DEQUANTIZE, version, [source], [weight])
    return [*operators, expand]


def _report(layer: Layer, source: Source, encoded: Encoded, reason: str) -> LayerReport:
    pattern = Pattern.of(layer.weights.reshape(-1, layer.weights.shape[-1]))
    names = {
        (np.float16, False): encodings.FLOAT16,
        (np.float16, True): encodings.SPARSE16,
        (np.int8, False): encodings.INT8,
        (np.int8, True): encodings.SPARSE_INT8,
    }
    is_sparse = encoded.sparsity is not None
    return LayerReport(
        name=source.name,
        role=layer.role,
        shape=layer.weights.shape,
        pattern=formats.pattern_name(pattern),
        weights=min(source.weights, layer.weights.size),
        nonzeros=pattern.nonzeros,
        encoding=names[encoded.values.dtype.type, is_sparse],
        bytes=encoded.bytes,
        expected_ms=0.0,
        reason=reason + ("; expanded once" if is_sparse else ""),
    )
