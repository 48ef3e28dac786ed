"""Constant channels are removed without changing the outputs."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize, zero_channels
from tfsparsecap.slimming.folding import dead
from tfsparsecap.slimming.graph import trace
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.plan import slim
from tfsparsecap.slimming.statistics import Propagation

#: Networks with groups that are never without effect: normalised, attended or recurrent channels.
PARTLY = {"vision_transformer", "grouped", "recurrent", "by_hand", "windows"}


def test_constant_channels_of_every_network_go_without_effect(networks, batch):
    for name, make in networks.items():
        network, rng = make(), np.random.default_rng(0)
        randomize(network, batch(network, rng), rng)
        chosen, exact = zero_channels(network, rng)
        assert exact == chosen or name in PARTLY, name
        before = network.count_params()
        smaller, x = slim(network, None, multiple=1), batch(network, rng)
        if exact:
            assert smaller.count_params() < before
        np.testing.assert_allclose(smaller(x), network(x), atol=1e-4, err_msg=name)
        assert network.count_params() == before


def test_a_constant_before_padding_is_only_exact_if_it_is_zero():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(16, 1, use_bias=False)(inputs)
    x = layers.BatchNormalization(name="normal")(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(16, 3, padding="same", name="padded")(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))
    gamma, beta = np.ones(16), np.zeros(16)
    gamma[:4], beta[:4] = 0, [-1, 0, 1, 2]
    normal = model.get_layer("normal")
    normal.gamma.assign(gamma)
    normal.beta.assign(beta)
    analysis = Analysis(trace(model))
    (group, _) = analysis.groups
    exact = dead(analysis, Propagation(analysis))[group.classes]
    np.testing.assert_array_equal(np.flatnonzero(exact), [0, 1])


@pytest.mark.parametrize(("fill", "exact"), [(0.0, [0]), (0.5, [])])
def test_a_constant_is_not_exact_next_to_a_border_with_another_value(fill, exact):
    inputs = keras.Input((8, 16, 3))
    convolution = layers.Conv2D(16, 1)
    x = layers.Resizing(8, 8, pad_to_aspect_ratio=True, fill_value=fill)(convolution(inputs))
    model = keras.Model(inputs, layers.Conv2D(4, 1)(x))
    kernel, bias = convolution.get_weights()
    kernel[..., :2], bias[:2] = 0, [0, 0.5]
    convolution.set_weights([kernel, bias])
    analysis = Analysis(trace(model))
    (group,) = analysis.groups
    found = dead(analysis, Propagation(analysis))[group.classes]
    np.testing.assert_array_equal(np.flatnonzero(found), exact)
    x = np.random.default_rng(0).random((2, 8, 16, 3), "float32")
    np.testing.assert_allclose(slim(model, None, multiple=1)(x), model(x), atol=1e-6)


def make_half_constant(normalization):
    normalization.gamma.assign(np.repeat([0.0, 1.0], 8))
    normalization.beta.assign(np.linspace(-1, 1, 16))


def test_the_constant_moves_into_the_moving_mean_or_a_new_bias():
    inputs = keras.Input((6,))
    x = layers.BatchNormalization(name="first")(layers.Dense(16, use_bias=False)(inputs))
    with_mean = layers.BatchNormalization(name="second")(layers.Dense(8, use_bias=False, name="linear")(x))
    new_bias = layers.Dense(8, use_bias=False, name="active", activation="relu")(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()([with_mean, new_bias])))
    make_half_constant(model.get_layer("first"))
    smaller = slim(model, None)
    assert smaller.get_layer("active").use_bias and not smaller.get_layer("linear").use_bias
    assert np.abs(smaller.get_layer("second").moving_mean).max() > 0
    x = np.random.default_rng(0).random((5, 6), "float32")
    np.testing.assert_allclose(smaller(x), model(x), atol=1e-5)


def test_an_output_of_the_model_is_no_place_for_a_constant_of_the_normalisation_after_it():
    inputs = keras.Input((6, 6, 3))
    x = layers.BatchNormalization(name="first")(layers.Conv2D(16, 1)(inputs))
    x = layers.Conv2D(5, 3, use_bias=False, name="returned")(x)
    model = keras.Model(inputs, [x, layers.BatchNormalization(name="second")(x)])
    make_half_constant(model.get_layer("first"))
    smaller = slim(model, None)
    assert smaller.get_layer("first").gamma.shape == (8,) and smaller.get_layer("returned").use_bias
    x = np.random.default_rng(0).random((2, 6, 6, 3), "float32")
    for own, expected in zip(smaller(x), model(x), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "channels"),
    [
        (lambda x: layers.TimeDistributed(layers.Dense(4, use_bias=False))(x), 8),
        (lambda x: layers.TimeDistributed(layers.Dense(4, "relu", use_bias=False))(x), 16),
        (lambda x: layers.MultiHeadAttention(2, 4, use_bias=False, output_shape=4)(x, x), 16),
        (lambda x: layers.EinsumDense("abc,cd->adb", (4, 6))(x), 16),
    ],
)
def test_the_next_moving_mean_takes_a_constant_only_from_its_own_channels(make, channels):
    inputs = keras.Input((6, 4))
    x = layers.BatchNormalization(name="first")(layers.Dense(16)(inputs))
    model = keras.Model(inputs, layers.BatchNormalization()(make(x)))
    make_half_constant(model.get_layer("first"))
    smaller = slim(model, None)
    assert smaller.get_layer("first").gamma.shape == (channels,)
    x = np.random.default_rng(0).random((2, 6, 4), "float32")
    np.testing.assert_allclose(smaller(x), model(x), atol=1e-5)


@pytest.mark.parametrize("groups", [1, 4])
def test_the_mean_of_other_channels_moves_too(groups):
    """Removing channels of known mean keeps the mean of the output; dropping them does not."""
    inputs = keras.Input((8, 8, 4))
    x = layers.Conv2D(32, 1, use_bias=False)(inputs)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(16, 3, groups=groups, name="next")(x)
    model = keras.Model(inputs, x)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8, 8, 4)).astype("float32")
    randomize(model, x, rng)
    means = [np.mean(model(x), (0, 1, 2))]
    means += [np.mean(slim(model, 0.5, fold=fold)(x), (0, 1, 2)) for fold in (True, False)]
    assert np.abs(means[1] - means[0]).max() < 0.3 * np.abs(means[2] - means[0]).max()
