"""Slimming with samples: the channels that stay take over those that depend on them."""

import keras
import numpy as np
import pytest
from keras import layers

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.plan import slim


def test_channels_that_depend_on_others_linearly_are_taken_over():
    inputs = keras.Input((6, 6, 4))
    x = layers.Conv2D(16, 1, name="mixed")(inputs)
    model = keras.Model(inputs, layers.Conv2D(3, 3, name="next")(x))
    x = np.random.default_rng(0).normal(1, 1, (32, 6, 6, 4)).astype("float32")
    small = slim(model, 0.5, samples=[x[:16], x[16:]])
    assert small.get_layer("mixed").filters == 8
    # 16 channels of four inputs: eight of them determine the others.
    error = [np.abs(network(x) - model(x)).max() for network in (small, slim(model, 0.5))]
    assert error[0] < 0.05 * error[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: layers.Dense(8, "relu")(x),
        lambda x: layers.Conv1D(8, 3, padding="same")(x),
        lambda x: layers.Conv1DTranspose(8, 3, 2)(x),
        lambda x: layers.Conv1D(8, 3, groups=2)(x),
        lambda x: layers.SeparableConv1D(8, 3, depth_multiplier=2)(x),
        lambda x: layers.LSTM(8)(x),
        lambda x: layers.GRU(8)(x),
        lambda x: layers.Bidirectional(layers.SimpleRNN(8))(x),
        lambda x: layers.TimeDistributed(layers.Dense(8))(x),
        lambda x: layers.MultiHeadAttention(2, 4, output_shape=8)(x, x),
        lambda x: layers.EinsumDense("abc,cd->adb", (8, 6), bias_axes="d")(x),
    ],
)
def test_each_kind_of_kernel_takes_constant_and_dependent_channels_over(make):
    """Half of the channels are constant, and the others depend on four inputs."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 4))
    hidden = layers.BatchNormalization(name="normal")(layers.Dense(32, use_bias=False)(inputs))
    model = keras.Model(inputs, layers.Dense(2)(make(hidden)))
    model.get_layer("normal").set_weights([np.repeat([0.0, 1.0], 16), np.ones(32), np.zeros(32), np.ones(32)])
    x = np.random.default_rng(0).normal(size=(64, 6, 4)).astype("float32")
    skip = [layer.name for layer in model.layers[3:]]
    small = [
        slim(model, 0.5, criterion="rtic", multiple=1, skip=skip, samples=samples) for samples in ([x], None)
    ]
    assert small[0].get_layer("normal").gamma.shape == (16,)
    error = [np.abs(network(x) - model(x)).max() for network in small]
    assert error[0] < 0.1 * error[1]


def test_shared_layers_take_over_nothing():
    keras.utils.set_random_seed(0)
    inputs, shared = keras.Input((4,)), layers.Dense(8, name="shared")
    parts = [shared(layers.Dense(16, name=name)(inputs)) for name in ("left", "right")]
    model = keras.Model(inputs, layers.Concatenate()(parts))
    small = slim(model, 0.5, samples=[np.ones((8, 4), "float32")])
    kernels = [network.get_layer("shared").kernel.numpy() for network in (small, model)]
    assert all((row == kernels[1]).all(1).any() for row in kernels[0])


def two_inputs():
    query, document = keras.Input((16,), name="query"), keras.Input((16,), name="document")
    hidden = [layers.Dense(32, "relu")(query), layers.Dense(32, "relu")(document)]
    return keras.Model([query, document], layers.Dense(2)(layers.Concatenate()(hidden)))


@pytest.mark.slow
def test_samples_are_matched_with_inputs_as_by_keras():
    keras.utils.set_random_seed(0)
    model, rng = two_inputs(), np.random.default_rng(0)
    query = rng.normal(0, 1, (64, 16)).astype("float32")
    document = rng.normal(3, 0.1, (64, 16)).astype("float32")
    outputs = [
        slim(model, 0.5, samples=[batch])([query, document]).numpy()
        for batch in (
            {"query": query, "document": document},
            ({"document": document, "query": query}, np.zeros((64, 2))),
            ([query, document], np.zeros((64, 2))),
            [query, document],
            (query, document),
            ([query, document],),
            {"query": query, "document": document, "number": np.arange(64)},  # Keras ignores others
        )
    ]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


def test_stateful_layers_keep_their_states():
    model = keras.Sequential(
        [keras.Input((5, 8), batch_size=4), layers.LSTM(32, stateful=True), layers.Dense(16), layers.Dense(3)]
    )
    model(np.ones((4, 5, 8)))
    before = [np.array(state) for state in model.layers[0].states]
    slim(model, 0.5, samples=[np.full((4, 5, 8), -1.0)])
    for state, value in zip(model.layers[0].states, before, strict=True):
        np.testing.assert_array_equal(state, value)


def test_samples_get_the_type_and_rank_of_the_input():
    model = keras.Sequential([keras.Input((1,)), layers.Dense(32, "relu"), layers.Dense(2)])
    numbers = np.arange(8)
    small = [slim(model, 0.5, samples=[x]) for x in (numbers, numbers[:, None].astype("float32"))]
    np.testing.assert_array_equal(small[0](numbers[:, None]), small[1](numbers[:, None]))


class Overflow(layers.Layer):
    def call(self, inputs):
        return inputs * 1e38 * 1e38


def overflowing():
    return keras.Sequential([keras.Input((2,)), layers.Dense(16), Overflow()], name="net")


def large():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(16, name="wide"), layers.Dense(2)], name="net")
    model.layers[0].kernel.assign(np.full((4, 16), 3e38))
    return model


def words():
    embedding = layers.Embedding(5, 16, name="words")
    return keras.Sequential([keras.Input((3,)), embedding, layers.Flatten(), layers.Dense(2)], name="net")


PAIR = np.zeros((4, 16), "float32")


@pytest.mark.parametrize(
    ("make", "criterion", "samples", "message"),
    [
        (two_inputs, None, PAIR, r"has 1 arrays, but functional.* has 2 inputs"),
        (two_inputs, None, [PAIR], r"has 1 arrays, but functional.* has 2 inputs"),
        (two_inputs, None, [{"query": PAIR, "text": PAIR}], r"contain query, text, but the inputs"),
        (two_inputs, None, [[PAIR, PAIR[:, 1:]]], r"have shape \(4, 15\) for the input document"),
        (two_inputs, None, [["abc", PAIR]], r"'abc' for the input query .*is no array of type float32"),
        (two_inputs, None, [[PAIR, PAIR * np.nan]], r"contain NaN or infinity for the input document of"),
        (words, "taylor", None, "taylor needs samples="),
        (words, "taylor", [], "samples are empty: give at least one batch"),
        (words, "taylor", [np.full((2, 3), 9)], r"outputs of net cannot be computed on samples \(.*\): give"),
        (words, "taylor", [np.ones((1, 3)), np.ones((0, 3))], "samples contain an empty batch: leave it out"),
        (words, "rtic", [np.full((2, 3), 9)], r"words of net cannot be called on the samples \(.*\): give"),
        (words, "rtic", [], "samples are empty: give at least one batch"),
        (large, "rtic", [np.ones((2, 4))], "wide of net returns NaN or infinity for the samples: check"),
        (overflowing, "taylor", [np.ones((2, 2))], "outputs of net .* are NaN or infinite on batch 0 of the"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(make, criterion, samples, message):
    with pytest.raises(InputError, match=message):
        slim(make(), 0.5, criterion=criterion, multiple=1, samples=samples)
