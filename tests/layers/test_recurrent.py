"""Gated cells in Keras's RNN layers: one sample per sequence, against stock layers with masked kernels."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import layers
from tfsparsecap.gates import Gate, gates

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
    "lstm bidirectional": (sequential(lambda: keras.layers.Bidirectional(lstm(return_sequences=True)())), X),
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


INFERENCE = ["lstm with masking", "lstm stateful", "gru reading in parts", "simple", "cells in a stack"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, {"training": True, "compiled": True}) for name in CASES),
        *((name, {"training": True}) for name in ("lstm of sequences", "gru with recurrent dropout")),
        *((name, {"training": False}) for name in INFERENCE),
    ],
)
def test_a_sequence_uses_one_masked_kernel(twins, name, how):
    make, x = CASES[name]
    gated, stock = twins.outputs(make, x, **how)
    np.testing.assert_allclose(gated, stock, rtol=1e-4, atol=1e-6)


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
    monkeypatch.setattr(Gate, "mask", lambda gate, *arguments: draws.append(gate) or mask(gate, *arguments))
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
