"""Gated core layers against stock Keras layers with masked weights."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import layers
from tfsparsecap.gates import gates

RANDOM = np.random.default_rng(0)


class Attention(keras.Model):
    """Self-attention: four EinsumDense in a stock composite layer."""

    def __init__(self, **options):
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(2, 4, **options)

    def call(self, x, training=None):
        return self.attention(x, x, training=training)


class Tied(keras.Model):
    """A table for lookup and, transposed, for logits."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.ReversibleEmbedding(9, 8)

    def call(self, x):
        return self.table(self.table(x), reverse=True)


def network(layer):
    return lambda: keras.Sequential([layer()])


CASES = {
    "dense": (network(lambda: keras.layers.Dense(6, "relu")), RANDOM.normal(size=(3, 8))),
    "dense of a sequence": (network(lambda: keras.layers.Dense(6)), RANDOM.normal(size=(3, 5, 8))),
    "dense without bias": (
        network(lambda: keras.layers.Dense(6, use_bias=False)),
        RANDOM.normal(size=(3, 8)),
    ),
    "einsum": (
        network(lambda: keras.layers.EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de")),
        RANDOM.normal(size=(3, 5, 8)),
    ),
    "einsum that sums over two axes": (
        network(lambda: keras.layers.EinsumDense("abcd,cde->abe", (None, 6))),
        RANDOM.normal(size=(3, 5, 2, 4)),
    ),
    "einsum with an ellipsis": (
        network(lambda: keras.layers.EinsumDense("...x,xy->...y", 6)),
        RANDOM.normal(size=(3, 5, 8)),
    ),
    "embedding": (network(lambda: keras.layers.Embedding(9, 8)), RANDOM.integers(0, 9, (3, 5))),
    "masked embedding": (
        network(lambda: keras.layers.Embedding(9, 8, mask_zero=True)),
        RANDOM.integers(0, 9, (3, 5)),
    ),
    "tied embedding": (Tied, RANDOM.integers(0, 9, (3, 5))),
    "attention": (Attention, RANDOM.normal(size=(3, 5, 8))),
    "attention with dropout": (lambda: Attention(dropout=0.3, seed=4), RANDOM.normal(size=(3, 5, 8))),
}


def inputs(x):
    return tf.constant(x, tf.float32 if x.dtype == np.float64 else tf.int32)


@pytest.mark.filterwarnings("ignore:.*does not divide")
@pytest.mark.parametrize(("block_shape", "training"), [((1, 1), False), ((4, 1), True), ((2, 2), True)])
@pytest.mark.parametrize("name", CASES)
def test_a_gated_layer_equals_the_stock_layer_with_masked_weights(twins, name, block_shape, training):
    make, x = CASES[name]
    gated, stock = twins.outputs(make, inputs(x), training=training, block_shape=block_shape)
    np.testing.assert_allclose(gated, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*does not divide")
@pytest.mark.parametrize("name", ["dense", "einsum", "embedding", "tied embedding", "attention"])
def test_gates_get_the_gradient_of_their_block(twins, name):
    make, x = CASES[name]
    pairs = twins.gradients(make, inputs(x), block_shape=(4, 1))
    assert pairs
    for by_tape, by_numpy in pairs:
        np.testing.assert_allclose(by_tape, by_numpy, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["dense", "tied embedding"])
def test_xla_gives_equal_results(twins, name):
    make, x = CASES[name]
    model = make()
    model(inputs(x))
    twins.gate_all(model)
    for training in (False, True):
        function = tf.function(lambda x, training=training: model(x, training=training), jit_compile=True)
        assert np.all(np.isfinite(function(inputs(x))))
    np.testing.assert_allclose(
        tf.function(model, jit_compile=True)(inputs(x)), model(inputs(x)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_in_float16_and_stores_float32(policy):
    layer = layers.GatedDense(6, dtype=policy)
    stock = keras.layers.Dense(6, dtype=policy)
    x = tf.constant(RANDOM.normal(size=(3, 8)), tf.float32)
    with tf.GradientTape() as tape:
        output = layer(x, training=True)
        loss = tf.reduce_sum(tf.cast(output, "float32"))
    assert output.dtype == stock(x).dtype == policy.removeprefix("mixed_")
    variables = [layer._kernel.value, layer.kernel_gate.logits.value]
    assert all(gradient.dtype == tf.float32 for gradient in tape.gradient(loss, variables))


def test_a_regularizer_applies_to_the_raw_weight():
    layer = layers.GatedDense(6, kernel_regularizer="l2")
    layer.build((None, 8))
    layer.kernel_gate.logits.assign(-layer.kernel_gate.logits)
    layer(tf.ones([1, 8]))
    expected = 0.01 * np.square(layer.stored_weight("kernel")).sum()
    np.testing.assert_allclose(sum(layer.losses), expected, rtol=1e-5)


def test_an_einsum_over_later_axes_is_gated_by_single_weights_with_a_warning():
    layer = layers.GatedEinsumDense("btd,ndh->btnh", (None, 2, 4), block_shape=(4, 1))
    with pytest.warns(UserWarning, match="does not divide") as caught:
        layer(tf.ones([2, 3, 8]))
    assert caught[0].filename == __file__
    assert layer.kernel_gate.block == (1, 1)


def test_a_block_of_an_embedding_runs_along_one_token():
    layer = layers.GatedEmbedding(10, 32, block_shape=(16, 1))
    layer.build()
    assert layer.embeddings_gate.logits.shape == (10, 2)
    layer.embeddings_gate.logits.assign(np.where(np.arange(20).reshape(10, 2) == 7, -5.0, 5.0))
    closed = np.asarray(layer(tf.range(10))) == 0
    assert closed[3, 16:].all()
    assert closed.sum() == 16


def test_lora_weights_are_added_before_masking():
    layer = layers.GatedDense(6)
    x = tf.constant(RANDOM.normal(size=(3, 8)), tf.float32)
    layer(x)
    layer.kernel_gate.logits.assign(RANDOM.normal(size=(8, 6)))
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(RANDOM.normal(size=(2, 6)))
    merged = np.asarray(layer._kernel) + np.asarray(layer.lora_kernel_a) @ np.asarray(layer.lora_kernel_b)
    mask = np.asarray(layer.kernel_gate.logits) > 0
    np.testing.assert_allclose(layer(x), np.asarray(x) @ (merged * mask), rtol=1e-4, atol=1e-5)


def test_a_quantized_layer_is_rejected():
    with pytest.raises(ValueError, match="quantized"):
        layers.GatedDense(6, dtype="int8_from_float32").build((None, 8))


def test_several_reads_in_one_call_return_one_sample():
    class Twice(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.GatedDense(20, use_bias=False)

        def call(self, x):
            return self.dense(x) - self.dense(x)

    layer = Twice()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "gated layers are trained without a pruning method")
        layer(tf.eye(20))
        layer.dense.kernel_gate.logits.assign(tf.zeros([20, 20]))
        for run in (layer, tf.function(layer)):
            np.testing.assert_array_equal(run(tf.eye(20), training=True), np.zeros((20, 20)))
    first, second = (np.asarray(layer.dense(tf.eye(20), training=True)) for _ in range(2))
    assert np.any(first != second)


CELLS = [layers.GatedLSTMCell(6, block_shape=(4, 1)), layers.GatedGRUCell(6)]


@pytest.mark.filterwarnings("ignore:.*does not divide")
@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (layers.GatedDense(6, block_shape=(4, 1), name="d"), tf.ones([2, 8])),
        (layers.GatedEinsumDense("ab,bc->ac", 6, block_shape=(4, 1), name="e"), tf.ones([2, 8])),
        (layers.GatedEmbedding(9, 8, block_shape=(4, 1), name="m"), tf.ones([2, 3], tf.int32)),
        (layers.GatedReversibleEmbedding(9, 8, block_shape=(4, 1), name="r"), tf.ones([2, 3], tf.int32)),
        (layers.GatedConv2D(5, 3, block_shape=(4, 1)), tf.ones([2, 7, 6, 8])),
        (layers.GatedDepthwiseConv2D(3), tf.ones([2, 7, 6, 8])),
        (layers.GatedConv2DTranspose(5, 3), tf.ones([2, 7, 6, 8])),
        (layers.GatedSeparableConv2D(5, 3), tf.ones([2, 7, 6, 8])),
        (keras.layers.RNN(keras.layers.StackedRNNCells(CELLS)), tf.ones([2, 3, 8])),
    ],
)
def test_layers_are_saved_and_loaded_with_raw_weights_and_gates(tmp_path, layer, x):
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype), layer])
    for gate in gates(model):
        gate.logits.assign(RANDOM.normal(size=gate.logits.shape))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.layers[0]) is type(layer)
    assert [gate.block for gate in gates(again)] == [gate.block for gate in gates(model)]
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(again(x), model(x))
