"""Importance of channels, compared with values computed by hand."""

import keras
import numpy as np
import pytest
from keras import layers

from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.importance import importance
from tfsparsecap.slimming.operation_graph import trace


@pytest.fixture
def model():
    inputs = keras.Input((2,))
    x = layers.Dense(2, name="a", use_bias=False)(inputs)
    x = layers.BatchNormalization(name="normal")(x)
    x = layers.Dense(2, name="b")(x)
    model = keras.Model(inputs, layers.Dense(1, name="c")(x))
    model.get_layer("a").kernel.assign([[1.0, -3.0], [2.0, 0.0]])
    model.get_layer("b").kernel.assign([[1.0, 3.0], [1.0, 1.0]])
    model.get_layer("normal").gamma.assign([-2.0, 0.5])
    return model


@pytest.mark.parametrize(
    ("criterion", "expected"),
    [
        ("l1", [1.0, 1.0, 2 / 3, 4 / 3]),
        ("l2", [5 / 7, 9 / 7, 2 / 6, 10 / 6]),
        # gamma², and for b, which has no gamma, its squared norm scaled to the mean of gamma²
        ("rtic", [4.0, 0.25, 2.125 * 2 / 6, 2.125 * 10 / 6]),
    ],
)
def test_norms_and_gammas(model, criterion, expected):
    scores = importance(Analysis(trace(model)), criterion, model)
    np.testing.assert_allclose(scores[:4], expected, rtol=1e-6)


def test_gammas_of_a_residual_sum_are_averaged(networks):
    model = networks["residual"]()
    scales = [one for one in model.layers if isinstance(one, layers.BatchNormalization)]
    for number, layer in enumerate(scales):
        layer.gamma.assign(np.full(layer.gamma.shape, number + 1.0))
    analysis = Analysis(trace(model))
    scores = importance(analysis, "rtic", model)
    groups = {group.name: scores[group.classes].mean() for group in analysis.groups}
    # The first normalisation of each block scales channels of the sum as well.
    gammas = {layer.name: int(layer.gamma[0]) for layer in scales}
    of_sum = [value for name, value in gammas.items() if model.get_layer(name).gamma.shape == (16,)]
    assert groups["stem + 2"] == pytest.approx(np.mean(np.square(of_sum)))


def test_taylor_is_the_squared_change_of_the_outputs(model):
    samples = np.random.default_rng(0).normal(size=(500, 2)).astype("float32")
    scores = importance(Analysis(trace(model)), "taylor", model, np.split(samples, 500))
    b, c = model.get_layer("b"), model.get_layer("c").kernel.numpy()[:, 0]
    hidden = keras.Model(model.input, b.input)(samples).numpy()
    change = c * (hidden @ b.kernel.numpy()) / np.sqrt(np.mean(model(samples).numpy() ** 2))
    np.testing.assert_allclose(scores[2:4], np.square(change).mean(0), rtol=0.3)


def test_taylor_of_recurrent_layers_equals_finite_differences():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3, 4)), layers.LSTM(5), layers.Dense(1)])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 3, 4)).astype("float32")
    analysis = Analysis(trace(model))
    scores = importance(analysis, "taylor", model, [x])
    lstm, slopes, level = model.layers[0], [], float(model(x)[0, 0])
    weights = lstm.get_weights()
    for unit in range(5):
        outputs = []
        for step in (-0.01, 0.01):
            scaled = [weight.copy() for weight in weights]
            for kernel in scaled[:2]:
                kernel[:, unit::5] *= 1 + step  # of all four gates
            lstm.set_weights(scaled)
            outputs.append(float(model(x)[0, 0]) / level)
        lstm.set_weights(weights)
        slopes.append((outputs[1] - outputs[0]) / 0.02)
    (group,) = analysis.groups
    # The one output has random weights, whose mean square is about one.
    ratios = scores[group.classes] / np.square(slopes)
    np.testing.assert_allclose(ratios, ratios.mean(), rtol=0.02)
    assert 0.5 < ratios.mean() < 2
