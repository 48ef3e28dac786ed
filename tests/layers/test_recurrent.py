"""Gated cells in Keras's RNN layers: one sample per sequence, against stock layers with masked kernels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import layers
from tfsparsecap.gates import Gate, gates, sample_gates_once

RANDOM = np.random.default_rng(0)
BATCH, LENGTH, SIZE = 2, 3, 4
X = tf.constant(RANDOM.normal(size=(BATCH, LENGTH, SIZE)), tf.float32)
WORDS = tf.constant([[3, 0, 2, 0], [1, 4, 0, 0]])


def sequential(*parts):
    return lambda: keras.Sequential([part() for part in parts])


def lstm(**options):
    return lambda: keras.layers.LSTM(6, seed=3, **options)


def gru(**options):
    return lambda: keras.layers.GRU(6, seed=3, **options)


def words():
    return keras.layers.Embedding(5, SIZE, mask_zero=True)


def stacked():
    cells = [
        keras.layers.LSTMCell(6, seed=3),
        keras.layers.GRUCell(5, seed=3),
        keras.layers.LSTMCell(4, seed=3),
    ]
    return keras.layers.RNN(keras.layers.StackedRNNCells(cells), return_sequences=True)


CASES = {
    "lstm": (sequential(lstm()), X),
    "lstm of sequences": (sequential(lstm(return_sequences=True)), X),
    "lstm unrolled": (sequential(lstm(return_sequences=True, unroll=True)), X),
    "lstm backwards": (sequential(lstm(go_backwards=True)), X),
    "lstm with masking": (sequential(words, lstm(return_sequences=True)), WORDS),
    "lstm with masking unrolled": (sequential(words, lstm(unroll=True)), WORDS),
    "lstm with dropout": (sequential(lstm(dropout=0.4)), X),
    "lstm with recurrent dropout": (sequential(lstm(dropout=0.4, recurrent_dropout=0.4)), X),
    "lstm without bias": (sequential(lstm(use_bias=False)), X),
    "lstm bidirectional": (
        sequential(lambda: keras.layers.Bidirectional(lstm(return_sequences=True)())),
        X,
    ),
    "lstm stateful": (sequential(lstm(stateful=True)), X),
    "two lstms": (sequential(lstm(return_sequences=True), lstm()), X),
    "gru": (sequential(gru()), X),
    "gru reading in parts": (sequential(gru(reset_after=False)), X),
    "gru, implementation 1": (sequential(gru(implementation=1)), X),
    "gru, implementation 1, reading in parts": (sequential(gru(implementation=1, reset_after=False)), X),
    "gru with recurrent dropout": (sequential(gru(dropout=0.4, recurrent_dropout=0.4)), X),
    "gru unrolled": (sequential(gru(unroll=True)), X),
    "gru with masking": (sequential(words, gru()), WORDS),
    "simple": (sequential(lambda: keras.layers.SimpleRNN(6, seed=3)), X),
    "simple with recurrent dropout": (
        sequential(lambda: keras.layers.SimpleRNN(6, dropout=0.4, recurrent_dropout=0.4, seed=3)),
        X,
    ),
    "convolutional lstm": (sequential(lambda: keras.layers.ConvLSTM1D(4, 2, seed=3)), X[..., None]),
    "convolutional lstm with dropout": (
        sequential(lambda: keras.layers.ConvLSTM2D(4, 2, padding="same", dropout=0.4, seed=3)),
        tf.reshape(X, (1, 2, LENGTH, SIZE, 1)),
    ),
    "cells in a stack": (sequential(stacked), X),
    "dense over time": (sequential(lambda: keras.layers.TimeDistributed(keras.layers.Dense(6))), X),
    "convolution over time": (
        sequential(lambda: keras.layers.TimeDistributed(keras.layers.Conv1D(3, 2))),
        tf.reshape(X, (BATCH, LENGTH, SIZE, 1)),
    ),
    "lstm over time": (
        sequential(lambda: keras.layers.TimeDistributed(lstm()())),
        tf.reshape(X, (1, BATCH, LENGTH, SIZE)),
    ),
}


def check_one_masked_kernel(twins, name, **how):
    make, x = CASES[name]
    gated, stock = twins.outputs(make, x, **how)
    np.testing.assert_allclose(gated, stock, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_uses_one_masked_kernel_in_training(twins, name):
    check_one_masked_kernel(twins, name, training=True, compiled=True)


@pytest.mark.parametrize("name", CASES)
def test_a_sequence_uses_one_masked_kernel_in_inference(twins, name):
    check_one_masked_kernel(twins, name, training=False)


@pytest.mark.parametrize("name", ["lstm of sequences", "gru with recurrent dropout", "cells in a stack"])
def test_a_sequence_uses_one_masked_kernel_in_eager_training(twins, name):
    check_one_masked_kernel(twins, name, training=True)


@pytest.mark.parametrize("name", ["lstm of sequences", "gru reading in parts", "convolutional lstm"])
def test_gates_get_the_gradient_of_the_whole_sequence(twins, name):
    make, x = CASES[name]
    for block_shape in ((1, 1), (2, 1)):
        for by_tape, by_numpy in twins.gradients(make, x, block_shape=block_shape):
            np.testing.assert_allclose(by_tape, by_numpy, rtol=1e-3, atol=1e-5)


def half_open(model):
    for gate in gates(model):
        gate.logits.assign(tf.zeros(gate.logits.shape))
    return model


@pytest.fixture
def counted(monkeypatch):
    """The gates that are sampled: one entry per sample (eager) or per traced sample (function)."""
    draws, mask = [], Gate.mask
    monkeypatch.setattr(Gate, "mask", lambda gate, *given: draws.append(gate) or mask(gate, *given))
    return draws


@pytest.mark.parametrize("cell", [layers.GatedLSTMCell, layers.GatedGRUCell])
def test_every_pass_samples_gates_once(cell, counted):
    rnn = keras.layers.RNN(cell(6), return_sequences=True)
    rnn(X)
    half_open(rnn)
    counted.clear()
    outputs = [np.asarray(rnn(X, training=True)) for _ in range(2)]
    assert len(counted) == 4
    assert np.any(outputs[0] != outputs[1])
    counted.clear()
    function = tf.function(lambda x: rnn(x, training=True))
    outputs = [np.asarray(function(X)) for _ in range(2)]
    assert len(counted) == 2  # when traced
    assert np.any(outputs[0] != outputs[1])


def test_a_shared_layer_is_sampled_once_per_pass(counted):
    inputs = keras.Input((LENGTH, SIZE))
    rnn = keras.layers.RNN(layers.GatedLSTMCell(6))
    model = keras.Model(inputs, rnn(inputs) - rnn(inputs))
    half_open(model)
    counted.clear()
    np.testing.assert_array_equal(model(X, training=True), np.zeros((BATCH, 6)))
    assert len(counted) == 2


@pytest.mark.slow
def test_sequences_of_unknown_length_are_sampled_once(counted):
    signature = [tf.TensorSpec((None, None, SIZE))]
    inputs = keras.Input((None, SIZE))
    model = keras.Model(inputs, keras.layers.RNN(layers.GatedGRUCell(6), return_sequences=True)(inputs))
    half_open(model)
    counted.clear()
    assert tf.function(lambda x: model(x, training=True), signature)(X).shape == (BATCH, LENGTH, 6)
    assert len(counted) == 2

    dense = keras.Sequential([keras.Input((None, SIZE)), keras.layers.TimeDistributed(layers.GatedDense(9))])
    half_open(dense)
    counted.clear()
    # As many sequences as steps: Keras 3.15's TimeDistributed confuses them if both are unknown.
    constant = tf.random.normal([3, 1, SIZE]) * tf.ones([1, 3, 1])
    output = tf.function(lambda x: dense(x, training=True), signature)(constant)
    assert len(counted) == 1
    np.testing.assert_allclose(output, tf.repeat(output[:, :1], 3, axis=1), rtol=1e-6)


def test_a_cell_inside_a_custom_cell_is_sampled_before_the_loop():
    class Residual(keras.layers.Layer):
        """A cell whose gates are not visible to Keras's RNN."""

        def __init__(self):
            super().__init__()
            self.cell = layers.GatedLSTMCell(SIZE)
            self.state_size = self.cell.state_size

        def build(self, input_shape):
            self.cell.build(input_shape)

        def call(self, inputs, states, training=None):
            output, states = self.cell(inputs, states, training=training)
            return output + inputs, states

    rnn = keras.layers.RNN(Residual(), return_sequences=True)
    rnn(X)
    half_open(rnn)

    @tf.function
    def run():
        with sample_gates_once(rnn, training=True):
            return rnn(X, training=True), rnn(X, training=True)

    np.testing.assert_array_equal(*run())


def test_custom_loops_over_a_cell_with_dropout_keep_no_sample(counted):
    cell = layers.GatedLSTMCell(6, dropout=0.5)
    rnn = keras.layers.RNN(cell)
    rnn(X)
    half_open(rnn)
    states = [tf.zeros([BATCH, 6])] * 2

    @tf.function
    def own_loop():
        with sample_gates_once(cell, training=True):
            return tf.while_loop(
                lambda step, *_: step < 3,
                lambda step, h, c: (step + 1, *cell(X[:, step], [h, c], training=True)[1]),
                (0, *states),
            )

    cell(X[:, 0], states, training=True)
    cell.reset_dropout_mask()  # required by Keras for direct calls of a cell
    own_loop()
    cell.reset_dropout_mask()
    counted.clear()
    assert np.any(rnn(X, training=True) != rnn(X, training=True))
    assert len(counted) == 4


@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_that_raises_keeps_no_sample(compiled, counted):
    class Failing(layers.GatedLSTMCell):
        fails = False

        def call(self, *args, **kwargs):
            if Failing.fails:
                raise RuntimeError("as asked")
            return super().call(*args, **kwargs)

    rnn = keras.layers.RNN(Failing(6))
    rnn(X)
    half_open(rnn)
    Failing.fails = True
    run = lambda: rnn(X, training=True)  # noqa: E731
    with pytest.raises(RuntimeError, match="as asked"):
        (tf.function(run) if compiled else run)()
    Failing.fails = False
    counted.clear()
    # The rounded kernel, not a tensor of a deleted graph.
    np.testing.assert_array_equal(rnn.cell.kernel, np.zeros((SIZE, 24)))
    outputs = [np.asarray((tf.function(run) if compiled else run)()) for _ in range(2)]
    assert len(counted) == 1 + 4
    assert np.any(outputs[0] != outputs[1])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    rnn = keras.layers.RNN(layers.GatedLSTMCell(6, dtype=policy), dtype=policy)
    with tf.GradientTape() as tape:
        output = rnn(X, training=True)
        loss = tf.reduce_sum(tf.cast(output, "float32"))
    assert output.dtype == policy.removeprefix("mixed_")
    gradients = tape.gradient(loss, [gate.logits.value for gate in gates(rnn)])
    assert len(gradients) == 2
    assert all(gradient.dtype == tf.float32 for gradient in gradients)


def test_cells_are_saved_and_loaded_with_raw_weights_and_gates(tmp_path):
    cell = keras.layers.StackedRNNCells([layers.GatedLSTMCell(6, block_shape=(2, 1)), layers.GatedGRUCell(6)])
    model = keras.Sequential([keras.Input((LENGTH, SIZE)), keras.layers.RNN(cell)])
    for gate in gates(model):
        gate.logits.assign(RANDOM.normal(size=gate.logits.shape))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.layers[0].cell.cells[0].block_shape == (2, 1)
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(again(X), model(X))


def test_a_stateful_layer_carries_its_state_between_passes(twins):
    model = sequential(lstm(stateful=True))()
    model(X)
    twins.gate_all(model)
    model.layers[0].reset_state()
    first, second = np.asarray(model(X)), np.asarray(model(X))
    model.layers[0].reset_state()
    np.testing.assert_allclose(model(X), first)
    np.testing.assert_allclose(model(X), second)
    assert np.any(first != second)
