"""Networks with int8 weights, which are rounded for their inputs."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, int8_weights, sparse
from tfsparsecap_export.encode.rounding import round_to_nearest
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph

from ..conftest import quantize_weights

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_layer_is_small(monkeypatch):
    monkeypatch.setattr(int8_weights, "SMALL_LAYER", 0)


def quantize_network(content, samples, *, format, **options):
    rounded = int8_weights.round_network(content, samples, format=format, **options)
    return int8_weights.store_weights(
        content, rounded, samples=len(samples), keep_zeros=format == "dense-int8"
    )


def test_rounding_for_the_inputs_of_a_layer_is_better_than_rounding_to_the_nearest_value(
    mixed_network, interpreter, monkeypatch
):
    float32, network, inputs = mixed_network
    expected = np.asarray(network(inputs[40:]))

    def error(content):
        outputs = [interpreter(content)(image=image[None])["output_0"][0] for image in inputs[40:]]
        return np.linalg.norm(outputs - expected) / np.linalg.norm(expected)

    samples = [{"image": image[None]} for image in inputs[:40]]
    fitted, _ = quantize_weights(float32, samples)
    monkeypatch.setattr(int8_weights, "round_weights", lambda weights, _: round_to_nearest(weights))
    nearest, _ = quantize_weights(float32, samples)
    assert error(fitted) < 0.7 * error(nearest)
    assert error(fitted) < 0.02


def test_dense_layers_and_convolutions_of_single_pixels_multiply_int8(check_outputs):
    keras.utils.set_random_seed(2)
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((9, 9, 8), name="map"),
            layers.Conv2D(32, 3, name="window"),
            layers.Conv2D(48, 1, activation="relu", name="pixel"),
            layers.Conv2D(48, 1, 2, name="strided"),
            layers.Dense(40, name="dense"),
        ]
    )
    random = np.random.default_rng(2)
    samples = [{"map": random.normal(size=(1, 9, 9, 8)).astype(np.float32)} for _ in range(4)]
    content, _ = quantize_weights(graph.model_graph(network), samples)
    model = flatfile.read_model(content)
    names = [flatfile.builtin_name(model, operator) for operator in model.subgraphs[0].operators]
    assert names == ["DEQUANTIZE"] * 2 + ["CONV_2D", "FULLY_CONNECTED", "CONV_2D", "FULLY_CONNECTED"]
    for sample in samples:
        check_outputs(content, sample, np.asarray(network(sample["map"])), 0.02)


@pytest.fixture(scope="module")
def pruned():
    """A network with a convolution of zeros, a dense layer of zeros, and a dead channel; and samples."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = keras.Input((9, 9, 8), name="map")
    x = layers.Conv2D(32, 3, activation="relu", name="first")(inputs)
    x = layers.DepthwiseConv2D(3, activation="relu", name="depthwise")(x)
    x = layers.Conv2D(48, 1, activation="relu", name="pruned")(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(64, activation="relu", name="sparse")(x)
    network = keras.Model(inputs, layers.Dense(40, name="classes")(x))
    random = np.random.default_rng(2)
    for name in ("pruned", "sparse"):
        kernel = network.get_layer(name).kernel
        kernel.assign(np.asarray(kernel) * (random.random(kernel.shape) < 0.2))
    network.get_layer("first").bias.assign([-100.0] + [0.1] * 31)  # behind it, all inputs are zero
    samples = [{"map": random.normal(size=(1, 9, 9, 8)).astype(np.float32)} for _ in range(6)]
    return network, graph.model_graph(network), samples


@pytest.mark.parametrize("format", ["auto", "int8"])
def test_a_network_gets_int8_where_the_format_has_nothing_better(pruned, check_outputs, format):
    network, float32, samples = pruned
    sources = graph.weight_sources(network)
    content, layers = quantize_network(float32, samples[:4], format=format, keep_float=(), sources=sources)
    stored = {layer.name: layer for layer in layers}
    roles = [layer.role for layer in layers]
    assert roles == [sparse.CONVOLUTION] * 3 + [sparse.FULLY_CONNECTED] * (format == "auto")
    assert [layer.encoding for layer in layers[:3]] == [encodings.INT8, encodings.INT8, encodings.SPARSE_INT8]
    assert layers[2].nonzeros == np.count_nonzero(network.get_layer("pruned").kernel)
    assert layers[2].pattern == "unstructured" and "expanded once" in layers[2].reason
    assert layers[2].bytes < 0.6 * layers[2].weights
    assert ("classes/kernel" in stored) == (format == "auto")
    names = [weight.name for weight in sparse.find_weights(flatfile.read_model(content))]
    assert len(names) == (1 if format == "auto" else 2)  # those that are encoded next
    for sample in samples[4:]:
        check_outputs(content, sample, np.asarray(network(sample["map"])), 0.03)


def test_shared_kernels_stay_float_with_a_note():
    x = keras.Input((8, 8, 4), name="x")
    shared, own = (keras.layers.Conv2D(4, 3, padding="same") for _ in range(2))
    content = graph.model_graph(keras.Model(x, own(shared(keras.layers.ReLU()(shared(x))))))
    samples = [{"x": np.random.default_rng(0).normal(size=(1, 8, 8, 4)).astype(np.float32)}]
    assert len(int8_weights.round_network(content, samples, format="int8")) == 1
    (note,) = int8_weights.note_on_shared(content)
    assert note.startswith("Kernels of convolutions that are used more than once") and "1 in this" in note
    assert int8_weights.note_on_shared(graph.model_graph(keras.Model(x, own(x)))) == []


def test_a_network_without_convolutions_has_other_encodings():
    network = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    samples = [{network.inputs[0].name: np.ones((1, 64), np.float32)}]
    assert not int8_weights.round_network(graph.model_graph(network), samples, format="auto")
