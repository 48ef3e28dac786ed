"""Latency of models, which are slimmed and pruned until their files are fast enough."""

import functools

import keras
import numpy as np
import pytest
from keras import layers
from tfsparsecap_export import export_model, model_latency, prune_to_latency
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.encode.network_cost import network_ms
from tfsparsecap_export.int8_network import expected_ms
from tfsparsecap_export.keras_to_tflite.graph import model_graph

import tfsparsecap as sc
from tfsparsecap.errors import InputError

# Tests change the costs of arm64, see conftest.py.
export = functools.partial(export_model, target="x86_64")
pruned_to = functools.partial(prune_to_latency, target="x86_64")


def transformer(tokens: int = 64) -> keras.Model:
    keras.utils.set_random_seed(0)
    entry = keras.Input((tokens, 128))
    mixed = layers.LayerNormalization()(entry + layers.MultiHeadAttention(4, 32)(entry, entry))
    hidden = layers.Dense(128)(layers.Dense(512, "relu")(mixed))
    return keras.Model(entry, layers.Dense(16)(layers.GlobalAveragePooling1D()(mixed + hidden)))


def perceptron() -> keras.Model:
    return keras.Sequential([keras.Input((512,)), layers.Dense(1024, "relu"), layers.Dense(8)])


def blocks(sparsity: float = 0.9) -> sc.Supermask:
    return sc.Supermask(sparsity, total_steps=4, block_shape=(16, 1))


@pytest.mark.slow
def test_a_file_meets_its_budget(tmp_path):
    model = transformer()
    dense = export(model, tmp_path / "dense.tflite", "dense-int8").speedup.ms
    small = pruned_to(model, dense / 2, blocks())
    small.compile("adam", "mse", run_eagerly=True)
    random = np.random.default_rng(0)
    x = random.standard_normal((16, 64, 128), np.float32)
    small.fit(x, random.standard_normal((16, 16), np.float32), batch_size=4, verbose=0)
    small = sc.strip_pruning(small)
    report = export(small, tmp_path / "small.tflite")
    assert report.speedup.ms < dense / 2
    # With 64 rows, zeros save little, so channels save most of the time.
    channels = export(small, tmp_path / "small.tflite", "dense-int8").speedup.ms
    assert channels == pytest.approx(dense / 2, rel=0.15)


@pytest.mark.slow
def test_zeros_come_first(tmp_path):
    """With one row, zeros in blocks suffice, so that all units stay."""
    model = perceptron()
    budget = 0.8 * export(model, tmp_path / "dense.tflite", "dense-int8").speedup.ms
    pruned = pruned_to(model, budget, blocks(0.95))
    assert pruned is model and pruned.pruning.sparsity == 0.95
    assert pruned_to(perceptron(), budget, sc.Supermask(0.95, total_steps=4)).layers[0].units < 1024


@pytest.mark.slow
def test_a_recurrent_layer_counts_as_often_as_in_the_report(tmp_path):
    model = keras.Sequential([keras.Input((50, 64)), layers.LSTM(256), layers.Dense(512), layers.Dense(8)])
    report = export(model, tmp_path / "lstm.tflite", "dense-int8")
    cell = next(layer for layer in report.layers if "lstm" in layer.name)
    call = kernel_costs("x86_64").product("int8", rows=1, outputs=1024, inputs=320, stored=0) / 1e6
    assert cell.expected_ms == pytest.approx(50 * call)
    budget = 0.6 * report.speedup.ms
    small = sc.strip_pruning(pruned_to(model, budget, sc.Supermask(0.5, total_steps=4)))
    assert small.layers[0].units < 256
    expected = export(small, tmp_path / "small.tflite", "dense-int8").speedup.ms
    assert 0.7 * budget < expected <= budget


@pytest.mark.slow
@pytest.mark.parametrize(
    "hidden",
    [
        [layers.LeakyReLU()],
        [layers.Activation("gelu")],
        [layers.UpSampling2D(2, interpolation="bilinear")],
        [layers.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu")],
        [layers.GroupNormalization(8), layers.ReLU()],
    ],
)
def test_the_budget_of_a_convolutional_network_counts_what_its_export_is_expected_to_take(tmp_path, hidden):
    keras.utils.set_random_seed(0)
    convolutions = [layers.Conv2D(32, 3, padding="same") for _ in range(2)]
    model = keras.Sequential([keras.Input((16, 16, 16)), convolutions[0], *hidden, convolutions[1]])
    samples = np.random.default_rng(0).random((8, 16, 16, 16), np.float32)
    ms = export(model, tmp_path / "model.tflite", samples=samples).speedup.ms
    slim, whole = (pruned_to(model, share * ms, sc.Supermask(0.5, total_steps=4)) for share in (0.97, 1.001))
    assert slim.layers[0].filters < 32 == whole.layers[0].filters


def test_convolutions_in_loops_count_as_float():
    model = keras.Sequential([keras.Input((3, 8, 8, 16)), layers.ConvLSTM2D(32, 3)])
    dense, costs = model_graph(model), kernel_costs("x86_64")
    assert expected_ms(dense, costs) == network_ms(dense, costs) > network_ms(dense, costs, int8=True)


@pytest.mark.slow
def test_a_budget_that_cannot_be_met_is_refused():
    message = (
        r"takes 0\.\d+ ms on x86_64 with 90% zeros in blocks, and at least 0\.\d+ ms with fewer channels"
    )
    model = transformer()
    with pytest.raises(InputError, match=message):
        pruned_to(model, 1e-4, blocks())
    with pytest.raises(InputError, match="milliseconds is -1"):
        pruned_to(model, -1, blocks())
    with pytest.raises(InputError, match="method is 'supermask': give a pruning method"):
        prune_to_latency(model, 1, "supermask")
    sizes = {"embedding_size": 8, "rnn_size": 16, "attention_size": 8, "feature_size": 8}
    with pytest.raises(InputError, match="is a captioner: slim its encoder"):
        prune_to_latency(sc.SoftAttention(20, **sizes), 1, blocks())
    with pytest.raises(InputError, match="riscv"):
        prune_to_latency(model, 1, blocks(), target="riscv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keeps": 0.5}, "option of prune_to_latency.*keeps"),
        ({"keep": 2}, "keep is 2"),
        ({"budget": "flops"}, "prune_to_latency sets budget= of sc.slim itself: leave it out"),
    ],
)
def test_options_are_checked_also_if_nothing_has_to_be_slimmed(options, message):
    with pytest.raises(InputError, match=message):
        pruned_to(perceptron(), 1e6, blocks(), **options)


def test_a_model_with_mixed_precision_is_measured_as_float32():
    convolution = layers.Conv2D(4, 3, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((8, 8, 3)), convolution, layers.Flatten(), layers.Dense(2)])
    assert 0 < model_latency(model, runs=3) < 1000
    assert convolution.compute_dtype == "float16"
    with pytest.raises(InputError, match="runs is 0"):
        model_latency(model, 0)


def test_a_model_with_axes_of_any_size_is_measured_on_given_inputs():
    model = keras.Sequential([keras.Input((None, 4)), layers.Dense(4)])
    with pytest.raises(InputError, match="give inputs="):
        model_latency(model, 3)
    assert 0 < model_latency(model, 3, inputs=(6, 4)) < 1000
