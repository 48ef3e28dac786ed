"""Hidden units without inputs or without outputs, compared with the Keras model."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite.graph import KerasWeight, content_key, model_graph

from benchmarks import one_layer

#: Taken before tests change them.
ARM64 = kernel_costs("arm64")


def two_layers(activation="relu", *, axes=(8,), first=None, second=None, size=(64, 256, 48)):
    """A model, its dense file, and inputs. `first` and `second` are masks of the kernels."""
    rng, (inputs, units, outputs) = np.random.default_rng(0), size
    layers = [keras.layers.Dense(units, activation=activation), keras.layers.Dense(outputs)]
    model = keras.Sequential([keras.Input((*axes, inputs)), *layers])
    for layer, mask in zip(layers, (first, second), strict=True):
        kernel, bias = (rng.normal(size=weight.shape).astype(np.float32) for weight in layer.weights)
        layer.set_weights([kernel if mask is None else kernel * mask, bias])
    example = rng.normal(size=(1, *axes, inputs)).astype(np.float32)
    return model, model_graph(model), example


def without(units, count=256):
    return np.isin(np.arange(count), units, invert=True).astype(np.float32)


def shapes(content):
    model = flatfile.read_model(content)
    graph = model.subgraphs[0]
    products = [
        operator
        for operator in graph.operators
        if flatfile.builtin_name(model, operator) == "FULLY_CONNECTED"
    ]
    return [tuple(map(int, graph.tensors[operator.inputs[1]].shape)) for operator in products]


@pytest.mark.parametrize(
    ("activation", "axes"),
    [("relu", ()), *((name, (8,)) for name in (None, "relu", "relu6", "gelu", "tanh", "sigmoid", "elu"))],
)
def test_outputs_are_those_of_the_whole_model(activation, axes, check_outputs):
    no_inputs, no_outputs = without(range(0, 80)), without(range(70, 130))
    model, dense, example = two_layers(activation, axes=axes, first=no_inputs, second=no_outputs[:, None])
    content, layers = encode_file(dense, "fast", rounded="nothing")
    assert shapes(content) == [(126, 64), (48, 126)]
    assert all("without units" in layer.reason for layer in layers)
    check_outputs(content, example, np.asarray(model(example)), 1e-5)


def test_the_report_counts_the_weights_of_the_model():
    model, dense, _ = two_layers(first=without(range(100)))
    kernels = [np.asarray(layer.kernel).T for layer in model.layers]
    names = ("first", "second")
    sources = {content_key(k): KerasWeight(name, k.size) for k, name in zip(kernels, names, strict=True)}
    _, layers = encode_file(dense, "fast", sources=sources)
    assert [(layer.name, layer.shape) for layer in layers] == [("first", (156, 64)), ("second", (48, 156))]
    assert [layer.weights for layer in layers] == [64 * 256, 256 * 48]
    assert layers[0].nonzeros == 64 * 156


def test_one_unit_stays_if_none_has_inputs(check_outputs):
    model, dense, example = two_layers("gelu", first=without(range(256)))
    content, _ = encode_file(dense, "fast", rounded="nothing")
    assert shapes(content) == [(1, 64), (48, 1)]
    check_outputs(content, example, np.asarray(model(example)), 1e-5)


def test_blocks_are_removed_as_a_whole():
    rng = np.random.default_rng(1)
    blocks = one_layer.sparse_matrix(rng, 256, 256, 0.05, 16).T != 0
    unused = without([*range(16, 48), 100])  # two whole blocks of the second layer's inputs, and a unit
    _, dense, _ = two_layers(axes=(), second=blocks * unused[:, None], size=(64, 256, 256))
    content, layers = encode_file(dense, "int8", costs=ARM64)
    assert layers[1].encoding == encodings.BLOCK16
    assert shapes(content) == [(224, 64), (256, 224)]


@pytest.mark.parametrize("format", ["dense", "dense-int8"])
def test_dense_files_keep_all_units(format):
    _, dense, _ = two_layers(first=without(range(80)))
    assert shapes(encode_file(dense, format)[0]) == [(256, 64), (48, 256)]


def test_units_that_something_else_reads_stay():
    inputs = keras.Input((64,))
    hidden = keras.layers.Dense(256, activation="relu")
    model = keras.Model(inputs, [keras.layers.Dense(48)(hidden(inputs)), hidden.output])
    hidden.kernel.assign(np.asarray(hidden.kernel) * without(range(80)))
    assert (256, 64) in shapes(encode_file(model_graph(model), "fast")[0])
