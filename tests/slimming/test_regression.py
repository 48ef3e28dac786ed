"""Removed channels that others predict."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize
from tfsparsecap.errors import InputError
from tfsparsecap.slimming import regression
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.plan import slim


def test_channels_that_depend_on_others_linearly_are_taken_over():
    inputs = keras.Input((6, 6, 4))
    x = layers.Conv2D(16, 1, name="mixed")(inputs)
    model = keras.Model(inputs, layers.Conv2D(3, 3, name="next")(x))
    x = np.random.default_rng(0).normal(1, 1, (32, 6, 6, 4)).astype("float32")
    small = slim(model, 0.5, samples=[x[:16], x[16:]])
    assert small.get_layer("mixed").filters == 8
    # 16 channels of four inputs: eight of them determine the others.
    error = [np.abs(one(x) - model(x)).max() for one in (small, slim(model, 0.5))]
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
    small = [slim(model, 0.5, criterion="rtic", multiple=1, skip=skip, samples=one) for one in ([x], None)]
    assert small[0].get_layer("normal").gamma.shape == (16,)
    error = [np.abs(one(x) - model(x)).max() for one in small]
    assert error[0] < 0.1 * error[1]


def test_shared_layers_take_over_nothing():
    keras.utils.set_random_seed(0)
    inputs, shared = keras.Input((4,)), layers.Dense(8, name="shared")
    parts = [shared(layers.Dense(16, name=name)(inputs)) for name in ("left", "right")]
    model = keras.Model(inputs, layers.Concatenate()(parts))
    small = slim(model, 0.5, samples=[np.ones((8, 4), "float32")])
    kernels = [one.get_layer("shared").kernel.numpy() for one in (small, model)]
    assert all((row == kernels[1]).all(1).any() for row in kernels[0])


def test_a_network_stays_closer_to_its_outputs(networks, batch):
    model, rng = networks["residual"](), np.random.default_rng(0)
    x = batch(model, rng, 64)
    randomize(model, x, rng)
    errors = [np.square(slim(model, 0.4, samples=samples)(x) - model(x)).mean() for samples in ([x], None)]
    assert errors[0] < 0.9 * errors[1]


def two_inputs():
    query, document = keras.Input((16,), name="query"), keras.Input((16,), name="document")
    hidden = [layers.Dense(32, "relu")(query), layers.Dense(32, "relu")(document)]
    return keras.Model([query, document], layers.Dense(2)(layers.Concatenate()(hidden)))


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


def test_nested_inputs_are_matched():
    rng = np.random.default_rng(0)
    first, second, third = (keras.Input((16,)) for _ in range(3))
    hidden = [layers.Dense(32, "relu")(one) for one in (first, second, third)]
    model = keras.Model([[first, second], third], layers.Dense(2)(layers.Concatenate()(hidden)))
    arrays = rng.normal(size=(3, 64, 16)).astype("float32")
    small = slim(model, 0.5, samples=[([[arrays[0], arrays[1]], arrays[2]],)])
    assert small([[arrays[0], arrays[1]], arrays[2]]).shape == (64, 2)


def test_rows_are_drawn_evenly_from_all_batches_and_limited(monkeypatch):
    monkeypatch.setattr(regression, "ROWS", 40)
    monkeypatch.setattr(regression, "ALL_ROWS", 60)
    model = keras.Sequential([keras.Input((2,)), layers.Dense(8, name="a"), layers.Dense(2)])
    analysis = Analysis(trace(model))
    place = (analysis.graph.nodes[0].args[0].index, -1, None)
    batches = [np.full((50, 2), number, "float32") for number in range(6)]
    (rows,) = regression.activations(analysis, {place}, batches).values()
    assert rows.shape == (60, 2)
    assert min(np.bincount(rows[:, 0].astype(int), minlength=6)) >= 3


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


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((4, 16), "float32"), r"has 1 arrays, but functional.* has 2 inputs"),
        ([np.zeros((4, 16), "float32")], r"has 1 arrays, but functional.* has 2 inputs"),
        ([{"query": np.zeros((4, 16)), "text": np.zeros((4, 16))}], r"contain query, text, but the inputs"),
        ([[np.zeros((4, 16)), np.zeros((4, 15))]], r"have shape \(4, 15\) for the input document"),
        (["abc"], r"has 1 arrays, but functional.* has 2 inputs"),
        (
            [["abc", np.zeros((4, 16))]],
            r"samples contain 'abc' for the input query .*is no array of type float32",
        ),
        (
            [[np.zeros((4, 16)), np.full((4, 16), np.nan)]],
            r"contain NaN or infinity for the input document of",
        ),
    ],
)
def test_samples_that_are_not_the_inputs_are_refused(samples, message):
    with pytest.raises(InputError, match=message):
        slim(two_inputs(), 0.5, samples=samples)


def overflowing():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(16, name="wide"), layers.Dense(2)], name="net")
    model.layers[0].kernel.assign(np.full((4, 16), 3e38))
    return model


def words():
    embedding = layers.Embedding(5, 16, name="words")
    return keras.Sequential([keras.Input((3,)), embedding, layers.Flatten(), layers.Dense(2)], name="net")


@pytest.mark.parametrize(
    ("make", "samples", "message"),
    [
        (
            overflowing,
            [np.ones((2, 4))],
            "wide of net returns NaN or infinity for the samples: check the pre",
        ),
        (words, [np.full((2, 3), 9)], r"words of net cannot be called on the samples \(.*\): give batches"),
        (words, [], "samples are empty: give at least one batch"),
    ],
)
def test_samples_that_a_model_cannot_compute_are_refused(make, samples, message):
    with pytest.raises(InputError, match=message):
        slim(make(), 0.5, criterion="rtic", samples=samples)
