"""Fused LSTM and GRU cells: the same outputs with half the matrix products."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.encode.encoded_file import encode_file
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite import graph, rnn_fusion

from ..conftest import prune

pytestmark = pytest.mark.slow


def model_of(cell, inputs=32, density=0.2, **options):
    keras.utils.set_random_seed(1)
    layer = getattr(keras.layers, cell)(48, **{"bias_initializer": "random_normal", **options})
    model = keras.Sequential([keras.Input((5, inputs)), layer, keras.layers.Dense(4)])
    if density < 1:
        prune(model, 1, density)
    return model


def products(content):
    model = flatfile.read_model(content)
    names = [flatfile.builtin_name(model, operator) for g in model.subgraphs for operator in g.operators]
    return names.count("FULLY_CONNECTED")


@pytest.mark.parametrize(
    ("cell", "inputs", "options"),
    [
        ("LSTM", 20, {}),
        ("LSTM", 32, {"use_bias": False, "activation": "relu", "recurrent_activation": "hard_sigmoid"}),
        ("LSTM", 20, {"implementation": 1}),
        ("GRU", 20, {}),
        ("GRU", 32, {"use_bias": False, "activation": "relu", "recurrent_activation": "hard_sigmoid"}),
        ("GRU", 20, {"reset_after": False}),
    ],
)
def test_fused_cells_give_the_outputs_of_keras(cell, inputs, options):
    model = model_of(cell, inputs, **options)
    batch = np.random.default_rng(0).normal(size=(3, 5, inputs)).astype("float32")
    expected = np.asarray(model(batch))
    with rnn_fusion.fuse_rnn_kernels(model):
        np.testing.assert_allclose(np.asarray(model(batch)), expected, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(model(batch)), expected)


@pytest.mark.parametrize(
    ("cell", "density", "count"), [("LSTM", 0.2, 1), ("LSTM", 1, 1), ("GRU", 0.2, 1), ("GRU", 1, 2)]
)
def test_fused_cells_need_one_product_per_step(cell, density, count):
    # The Dense layer adds one product.
    assert products(graph.model_graph(model_of(cell, density=density))) == count + 1


def test_cells_of_captioners_are_fused_and_reported(blocks_captioner, exported):
    kernels = blocks_captioner.cell.kernel, blocks_captioner.cell.recurrent_kernel
    (cell,) = [layer for layer in exported("blocks", "auto")[1].layers if "lstm" in layer.name]
    assert cell.name.endswith("lstm/kernels")
    assert cell.weights == sum(np.size(kernel) for kernel in kernels)
    assert cell.nonzeros == sum(np.count_nonzero(kernel) for kernel in kernels)


def test_padding_does_not_count_as_weights_of_the_model():
    model = model_of("GRU", inputs=20)
    content = graph.model_graph(model)
    _, layers = encode_file(content, "fast", steps=1, sources=graph.weight_sources(model))
    cell = next(layer for layer in layers if layer.name.endswith("gru_cell/kernels"))
    assert cell.shape == (4 * 48, 32 + 48) and cell.weights == (20 + 48) * 3 * 48


def test_subclasses_of_cells_are_not_fused():
    class OwnCell(keras.layers.LSTMCell):
        pass

    model = keras.Sequential([keras.Input((5, 16)), keras.layers.RNN(OwnCell(8))])
    assert rnn_fusion.fused_kernels(model) == []


def test_the_model_is_restored_after_an_error():
    model = model_of("LSTM")
    call = model.layers[0].cell.call
    with pytest.raises(RuntimeError), rnn_fusion.fuse_rnn_kernels(model):
        assert model.layers[0].cell.call != call
        assert model.layers[0].use_cudnn is False  # with a GPU, Keras would call it instead of the cells
        raise RuntimeError
    assert model.layers[0].cell.call == call and model.layers[0].use_cudnn == "auto"
