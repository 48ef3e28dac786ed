"""EinsumDense, whose kernel may create several axes and multiply any axis of its input."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize, zero_channels
from tfsparsecap.slimming.plan import slim, slim_plan


def batch(size=3):
    return np.random.default_rng(0).normal(size=(size, 6, 4)).astype("float32")


@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes"),
    [
        ("abc,cd->abd", (6, 5), "d"),
        ("abc,cd->abd", (6, 5), "b"),
        ("abc,cd->adb", (6, 6), None),
        ("abc,cde->abde", (6, 3, 5), "be"),
        ("abc,cde->abed", (6, 5, 3), "de"),
    ],
)
def test_unused_channels_go_with_a_bias_of_any_axes(equation, output_shape, bias_axes):
    inputs = keras.Input((6, 4))
    outputs = layers.EinsumDense(equation, output_shape, bias_axes=bias_axes)(layers.Dense(16)(inputs))
    model, rng = keras.Model(inputs, outputs), np.random.default_rng(0)
    randomize(model, batch(), rng)
    assert slim(model, 0.5, samples=[batch()])(batch()).shape == model(batch()).shape
    assert zero_channels(model, rng) == (8, 8)
    small = slim(model, None, multiple=1)
    assert small.layers[1].units == 8
    np.testing.assert_allclose(small(batch()), model(batch()), atol=1e-5)


def mixed_positions():
    """12 positions that are made of 6, on the second axis."""
    inputs = keras.Input((6, 4))
    x = layers.EinsumDense("btc,tu->buc", (12, 4), name="wide")(inputs)
    return keras.Model(inputs, layers.EinsumDense("buc,ut->btc", (6, 4))(x))


def test_samples_predict_channels_of_any_axis():
    keras.utils.set_random_seed(0)
    model, x = mixed_positions(), batch(64)
    small = slim(model, 0.5, multiple=1, samples=[x])
    assert small.get_layer("wide").output.shape == (None, 6, 4)
    # The six positions that stay determine the others.
    error = [np.abs(network(x) - model(x)).max() for network in (small, slim(model, 0.5, multiple=1))]
    assert error[0] < 0.1 * error[1]


@pytest.mark.parametrize(
    ("equation", "output_shape"), [("ab...,bc->ac...", 12), ("...A,AB->...B", 12), ("abA,bc->acA", (12, 4))]
)
def test_the_output_shape_shrinks_for_all_equations(equation, output_shape):
    inputs = keras.Input((6, 4))
    x = layers.EinsumDense(equation, output_shape, name="first")(inputs)
    axis = x.shape.index(12)
    x = layers.Permute((2, 1))(x) if axis == 1 else x
    model = keras.Model(inputs, layers.Dense(2)(x))
    smaller = slim(model, 0.5, multiple=1)
    assert smaller.get_layer("first").output.shape[axis] == 6
    assert smaller(batch()).shape == model(batch()).shape


@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes", "last", "reason"),
    [
        ("btc,tu->buc", (12, 4), None, ("abc,cd->ad", 5), "sum sums the channels"),
        # Keras adds a bias of shape (4, 1) to the last axis if this has four channels.
        ("btc,tu->buc", (12, 4), "u", ("buc,ut->btc", (6, 4)), "wide has no bias in its last axis"),
    ],
)
def test_channels_of_unusual_equations_stay(equation, output_shape, bias_axes, last, reason):
    inputs = keras.Input((6, 4))
    x = layers.EinsumDense(equation, output_shape, bias_axes=bias_axes, name="wide")(inputs)
    model = keras.Model(inputs, layers.EinsumDense(*last, name="sum")(x))
    randomize(model, batch(), np.random.default_rng(0))
    assert slim_plan(model, None).whole["wide"] == reason
