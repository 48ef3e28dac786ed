"""Networks with int8 weights and activations."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, int8_activations, int8_weights
from tfsparsecap_export.encode.calibration import weighted_operators
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.keras_to_tflite import graph

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prepared(mixed_network):
    float32, _, inputs = mixed_network
    samples = [{"image": image[None]} for image in inputs[:20]]
    rounded = int8_weights.round_layers(float32, samples)
    return int8_activations.prepare(float32, rounded, samples)


def int8_operators(content):
    """Names of the layers that multiply int8 activations, and the types of inputs and outputs of the file."""
    model = flatfile.read_model(content)
    tensors = model.subgraphs[0].tensors
    names = [
        flatfile.builtin_name(model, operator)
        for operator in weighted_operators(model)
        if all(tensors[i].type != schema.TensorType.FLOAT32 for i in operator.inputs if i >= 0)
    ]
    ends = [*model.subgraphs[0].inputs, *model.subgraphs[0].outputs]
    return names, {tensors[i].type for i in ends}


def test_all_layers_multiply_int8_activations(mixed_network, prepared, interpreter):
    _, network, inputs = mixed_network
    expected = np.asarray(network(inputs[20:]))

    def errors(floats):
        content, reports = int8_activations.quantized_network(prepared, floats)
        names, ends = int8_operators(content)
        assert ends == {schema.TensorType.FLOAT32} and len(reports) == len(prepared.rounded)
        assert sum("int8 activations" in report.reason for report in reports) == len(names)
        assert len(names) == len(prepared.rounded) - floats
        relative_errors = []
        for delegate in (True, False):
            run = interpreter(content, delegate)
            outputs = [run(image=image[None])["output_0"][0] for image in inputs[20:]]
            relative_errors.append(np.linalg.norm(outputs - expected) / np.linalg.norm(expected))
        return relative_errors

    with_int8, with_floats = errors(0), errors(5)
    assert max(with_int8) < 0.1
    assert max(with_floats) < 0.1


def test_layers_that_stay_float_have_int8_weights(prepared, monkeypatch):
    monkeypatch.setattr(int8_weights, "SMALL_LAYER", 0)
    reports = int8_activations.quantized_network(prepared, 3)[1]
    assert {report.encoding for report in reports} == {encodings.INT8}
    assert sum(report.reason.endswith("float activations") for report in reports) == 3


def test_convolutions_without_zeros_are_expanded_once(mixed_network, prepared, interpreter):
    float32, _, inputs = mixed_network
    random = np.random.default_rng(1)
    sparse = {}
    for position, rounded in prepared.rounded.items():
        values = rounded.values * (random.random(rounded.values.shape) < 0.2)
        values[:, 0, 0] = 127  # the scale stays
        sparse[position] = int8_weights.Rounded(
            rounded.source, values, rounded.scales, rounded.bias, rounded.gain
        )
    pruned = int8_activations.prepare(float32, sparse, [{"image": inputs[:1]}])
    files = [
        int8_activations.quantized_network(pruned, keep_zeros=keep_zeros) for keep_zeros in (True, False)
    ]
    assert {report.encoding for report in files[0][1]} == {encodings.INT8}
    role_encodings = {report.role: set() for report in files[1][1]}
    for report in files[1][1]:
        role_encodings[report.role].add(report.encoding)
    assert encodings.SPARSE_INT8 in role_encodings["convolution"]
    assert role_encodings["fully connected"] == {encodings.INT8}
    for delegate in (True, False):
        dense, sparse = (interpreter(content, delegate)(image=inputs[:1])["output_0"] for content, _ in files)
        np.testing.assert_array_equal(dense, sparse)


def test_divisions_stay_float(interpreter):
    x = keras.Input((6, 6, 4), name="x")
    features = keras.layers.Conv2D(8, 3, activation="relu")(x)
    content = graph.model_graph(keras.Model(x, features / (features + 1)))
    samples = [{"x": np.random.default_rng(0).normal(size=(1, 6, 6, 4)).astype(np.float32)}]
    prepared = int8_activations.prepare(content, int8_weights.round_layers(content, samples), samples)
    network, _ = int8_activations.quantized_network(prepared)
    assert int8_operators(network)[0] == ["CONV_2D"]
    model = flatfile.read_model(network)
    (division,) = [o for o in model.subgraphs[0].operators if flatfile.builtin_name(model, o) == "DIV"]
    types = {model.subgraphs[0].tensors[i].type for i in [*division.inputs, *division.outputs]}
    assert types == {schema.TensorType.FLOAT32}
    outputs = interpreter(network)(**samples[0])["output_0"]
    np.testing.assert_allclose(outputs, interpreter(content)(**samples[0])["output_0"], atol=0.05)


def test_networks_with_loops_stay_float():
    layers = [keras.Input((6, 8)), keras.layers.Conv1D(8, 3), keras.layers.GRU(8, use_bias=False)]
    content = graph.model_graph(keras.Sequential(layers))
    assert len(flatfile.read_model(content).subgraphs) > 1
    with pytest.raises(int8_activations.CannotQuantize, match="has loops"):
        int8_activations.prepare(content, {}, [])


def test_what_the_quantizer_refuses_stays_float(prepared, monkeypatch):
    def refuse(content, **options):
        raise ValueError("no")

    monkeypatch.setattr(int8_activations.tensorflow_internals, "quantize_activations", refuse)
    with pytest.raises(int8_activations.CannotQuantize, match=r"refuses the network \(no\)"):
        int8_activations.quantized_network(prepared)
