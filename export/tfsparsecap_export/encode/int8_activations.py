"""Convolutional networks that compute with int8: weights and activations, with calibrated ranges."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tfsparsecap_export.encode import int8_weights, sparse
from tfsparsecap_export.encode.calibration import CalibratedLayer, find_layers, ranges, weighted_operators
from tfsparsecap_export.encode.encoded_file import EncodedFile, LayerReport
from tfsparsecap_export.encode.int8_weights import Rounded
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.compact import drop_unused
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.keras_to_tflite import tensorflow_internals
from tfsparsecap_export.samples import Sample

#: Operators whose results stay float: probabilities have too few steps in int8, the state of a recurrent
#: layer adds up the errors of all time steps, and the int8 kernel of DIV fails if a small divisor becomes 0.
FLOAT_OPERATORS = (
    *("SOFTMAX", "LOG_SOFTMAX", "DIV"),
    *("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
)


class CannotQuantize(Exception):
    """A network whose activations stay float; the text is the reason, without a full stop."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A float32 network with rounded weights and the ranges of its activations.

    Attributes:
        original: the file before.
        content: the file with rounded weights and ranges.
        rounded: its layers that may become int8, by position among `find_layers`.
        order: positions of layers that can stay float, those whose inputs lose most by int8 first.
        samples: number of inputs that it was calibrated for.
    """

    original: bytes
    content: bytes
    rounded: dict[int, Rounded]
    order: tuple[int, ...]
    samples: int


def prepare(content: bytes, rounded: dict[int, Rounded], samples: Sequence[Sample]) -> Prepared:
    """Measures the ranges of all activations.

    Args:
        content: a float32 file with one signature.
        rounded: layers from `int8_weights.round_network`.
        samples: inputs by name.

    Raises:
        CannotQuantize: the network has loops or branches.
    """
    model = _without_loops(content)
    limits_of = ranges(content, samples)
    losses = {}
    graph = model.subgraphs[0]
    for position, layer in enumerate(find_layers(model)):
        if position not in rounded:
            continue
        if layer.name != "TRANSPOSE_CONV":  # TensorFlow's quantizer does not find it by name
            low, high = limits_of.get(layer.source, (0.0, 0.0))
            losses[position] = rounded[position].gain * (high - low) ** 2
        weights = layer.stored(rounded[position].values * rounded[position].scales[..., None])
        tensor = graph.tensors[layer.operator.inputs[1]]
        tensor.buffer = flatfile.add_buffer(model, weights.astype(np.float32))
        int8_weights.set_bias(model, layer, rounded[position].bias)
    for index, limits in limits_of.items():
        if limits == (0.0, 0.0):  # the runtime refuses the scale that this would give
            limits = (0.0, 1.0)
        _set_range(graph.tensors[index], *limits)
    order = tuple(sorted(losses, key=lambda position: -losses[position]))
    return Prepared(content, flatfile.write_model(model), rounded, order, len(samples))


def quantized_network(prepared: Prepared, floats: int = 0, *, keep_zeros: bool = False) -> EncodedFile:
    """Stores a network whose weights and activations are int8; its inputs and outputs stay float32.

    Weights of convolutions of which most are zero are stored without zeros, and expanded once, when the file
    is loaded. LiteRT 2.3 does not expand those of dense layers.

    Args:
        prepared: the network.
        floats: number of layers that multiply float activations, those that lose most by int8; their weights
            are stored as by `int8_weights.store_weights`.
        keep_zeros: whether to store zeros in any case.

    Returns:
        The bytes of the file, and a report on each int8 layer.

    Raises:
        CannotQuantize: TensorFlow's quantizer does not support the network.
    """
    before = flatfile.read_model(prepared.original)
    operators = weighted_operators(before)
    layers = {id(layer.operator): number for number, layer in enumerate(find_layers(before))}
    positions = [layers.get(id(operator), -1) for operator in operators]
    int8 = {*prepared.rounded} - {*prepared.order[:floats]}
    names = [before.subgraphs[0].tensors[operator.outputs[0]].name.decode() for operator in operators]
    stay_float = [name for name, position in zip(names, positions, strict=True) if position not in int8]
    model = flatfile.read_model(_quantize(prepared.content, stay_float))
    graph, quantized = model.subgraphs[0], weighted_operators(model)
    if _kinds(model, quantized) != _kinds(before, operators):
        raise CannotQuantize("TensorFlow's quantizer changes the order of its layers")
    expansions: list[schema.OperatorT] = []
    reports: list[LayerReport] = []
    old_layers = list(find_layers(before))
    for position, operator in zip(positions, quantized, strict=True):
        if position not in prepared.rounded:
            continue
        rounded, samples = prepared.rounded[position], prepared.samples
        layer = dataclasses.replace(old_layers[position], operator=operator)
        if graph.tensors[operator.inputs[1]].type == schema.TensorType.INT8:
            expanding, report = _store_int8(model, layer, rounded, samples, keep_zeros)
            reports.append(report)
        else:
            expanding, weight_reports = int8_weights.store_rounded_layer(
                model, layer, rounded, samples, keep_zeros
            )
            for report in weight_reports:
                reports.append(dataclasses.replace(report, reason=f"{report.reason}; float activations"))
        expansions += expanding
    if not any(graph.tensors[operator.inputs[1]].type == schema.TensorType.INT8 for operator in quantized):
        raise CannotQuantize("no layer has an int8 kernel")
    graph.operators = [*expansions, *graph.operators]
    drop_unused(model)
    return flatfile.write_model(model), reports


def likely_network(content: bytes, is_int8: Callable[[CalibratedLayer], bool]) -> bytes:
    """The operations of `quantized_network` with made-up ranges, for the time that they take.

    Args:
        content: a float32 file with one signature.
        is_int8: tells which layers multiply int8 activations.

    Raises:
        CannotQuantize: as by `prepare` and `quantized_network`.
    """
    model = _without_loops(content)
    graph = model.subgraphs[0]
    int8 = {id(layer.operator) for layer in find_layers(model) if is_int8(layer)}
    floats = [int(operator.outputs[0]) for operator in weighted_operators(model) if id(operator) not in int8]
    for index in [*graph.inputs, *(index for operator in graph.operators for index in operator.outputs)]:
        if graph.tensors[index].type == schema.TensorType.FLOAT32:
            _set_range(graph.tensors[index], -1.0, 1.0)
    names = [graph.tensors[index].name.decode() for index in floats]
    return _quantize(flatfile.write_model(model), names)


def _without_loops(content: bytes) -> schema.ModelT:
    model = flatfile.read_model(content)
    if len(model.subgraphs) > 1:
        raise CannotQuantize("the network has loops")
    return model


def _set_range(tensor: schema.TensorT, low: float, high: float) -> None:
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.min, tensor.quantization.max = (np.array([n], np.float32) for n in (low, high))


def _quantize(content: bytes, float_results: Sequence[str]) -> bytes:
    try:
        return tensorflow_internals.quantize_activations(
            content, float_operators=FLOAT_OPERATORS, float_results=float_results
        )
    except ValueError as error:
        raise CannotQuantize(f"TensorFlow's quantizer refuses the network ({error})") from error


def _kinds(model: schema.ModelT, operators: Sequence[schema.OperatorT]) -> list[tuple]:
    """Names of operations, and the shapes of their weights."""
    tensors = model.subgraphs[0].tensors
    return [
        (flatfile.builtin_name(model, operator), *map(int, tensors[operator.inputs[1]].shape))
        for operator in operators
    ]


def _store_int8(
    model: schema.ModelT, layer: CalibratedLayer, rounded: Rounded, samples: int, keep_zeros: bool
) -> tuple[list[schema.OperatorT], LayerReport]:
    """Leaves out the zeros of an int8 convolution; returns the operation that expands it, and a report."""
    tensor = model.subgraphs[0].tensors[layer.operator.inputs[1]]
    tensor.name = rounded.source.name.encode()
    values = np.frombuffer(model.buffers[tensor.buffer].data, np.int8).reshape(tensor.shape)
    dense_only = keep_zeros or layer.role == sparse.FULLY_CONNECTED
    encoded = int8_weights.smallest(values, tensor.quantization, dense_only)
    reason = f"int8 activations; calibrated with {samples} inputs"
    report = int8_weights.report_on(layer, rounded.source, encoded, reason)
    return [] if encoded.sparsity is None else int8_weights.store_layer(model, layer, encoded), report
