"""Removed channels that others predict."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize
from tfsparsecap.errors import InputError
from tfsparsecap.slimming import regression
from tfsparsecap.slimming.graph import trace
from tfsparsecap.slimming.groups import Analysis
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
    place = (analysis.graph.nodes[0].args[0].index, -1)
    batches = [np.full((50, 2), number, "float32") for number in range(6)]
    (rows,) = regression._collect(analysis, {place: np.arange(2)}, batches).values()
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


def test_activations_that_overflow_are_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(16, name="wide"), layers.Dense(2)], name="net")
    model.layers[0].kernel.assign(np.full((4, 16), 3e38))
    with pytest.raises(
        InputError, match="wide of net returns NaN or infinity for the samples: check the pre"
    ):
        slim(model, 0.5, criterion="rtic", samples=[np.ones((2, 4))])


def test_samples_that_a_layer_refuses_are_named():
    words = [keras.Input((3,)), layers.Embedding(5, 16, name="words"), layers.Flatten(), layers.Dense(2)]
    with pytest.raises(
        InputError, match=r"words of net cannot be called on the samples \(.*\): give batches"
    ):
        slim(keras.Sequential(words, name="net"), 0.5, criterion="rtic", samples=[np.full((2, 3), 9)])


def test_empty_samples_are_refused(networks):
    with pytest.raises(InputError, match="samples are empty: give at least one batch"):
        slim(networks["residual"](), 0.5, samples=[])
