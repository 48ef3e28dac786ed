"""EinsumDense, whose kernel may create several axes and multiply any axis of its input."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize, zero_channels
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.plan import slim, slim_plan


def batch(size=3):
    return np.random.default_rng(0).normal(size=(size, 6, 4)).astype("float32")


@pytest.mark.parametrize(
    ("equation", "output_shape", "bias_axes"),
    [
        ("abc,cd->abd", (6, 5), None),
        ("abc,cd->abd", (6, 5), "d"),
        ("abc,cd->abd", (6, 5), "b"),
        ("abc,cd->adb", (6, 6), None),
        ("abc,cde->abde", (6, 3, 5), "de"),
        ("abc,cde->abde", (6, 3, 5), "be"),
        ("abc,cde->abed", (6, 5, 3), "de"),
        ("...c,cd->...d", 5, "d"),
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
    error = [np.abs(one(x) - model(x)).max() for one in (small, slim(model, 0.5, multiple=1))]
    assert error[0] < 0.1 * error[1]


def test_samples_predict_two_axes_of_the_same_tensor():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 4))
    x = layers.Dense(12, name="channels")(layers.EinsumDense("btc,tu->buc", (12, 4), name="rows")(inputs))
    fewer = layers.EinsumDense("buc,ut->btc", (6, 12))(x)
    model, x = keras.Model(inputs, [layers.Dense(2)(fewer), layers.Dense(3)(x)[:, :1]]), batch(64)
    assert {group.name for group in Analysis(trace(model)).groups} == {"channels", "rows"}
    small = [slim(model, 0.5, criterion="rtic", multiple=1, samples=one) for one in ([x], None)]
    for number in range(2):
        error = [np.abs(one(x)[number] - model(x)[number]).max() for one in small]
        assert error[0] < 0.3 * error[1]


@pytest.mark.parametrize(
    ("equation", "output_shape"),
    [("ab...,bc->ac...", 12), ("...A,AB->...B", 12), ("abA,bc->acA", (12, 4))],
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


def test_channels_that_are_summed_stay():
    inputs = keras.Input((6, 4))
    x = layers.EinsumDense("btc,tu->buc", (12, 4), name="wide")(inputs)
    model = keras.Model(inputs, layers.EinsumDense("abc,cd->ad", 5, name="sum")(x))
    plan = slim_plan(model, None)
    assert plan.whole["wide"] == "sum sums the channels"


def test_a_bias_before_the_last_axis_keeps_the_sizes():
    """Keras adds a bias of shape (4, 1) to the last axis if this has four channels."""
    inputs = keras.Input((6, 4))
    x = layers.EinsumDense("btc,tu->buc", (12, 4), bias_axes="u", name="wide")(inputs)
    model = keras.Model(inputs, layers.EinsumDense("buc,ut->btc", (6, 4))(x))
    randomize(model, batch(), np.random.default_rng(0))
    plan = slim_plan(model, None)
    assert plan.whole["wide"] == "wide has no bias in its last axis"
