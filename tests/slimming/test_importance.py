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
        # gamma² times the squared weights of b, and for b, which has no gamma, its squared norm, scaled
        ("rtic", [4.0 * 10, 0.25 * 2, 20.25 * 2 / 6, 20.25 * 10 / 6]),
    ],
)
def test_norms_and_gammas(model, criterion, expected):
    scores = importance(Analysis(trace(model)), criterion, model)
    np.testing.assert_allclose(scores[:4], expected, rtol=1e-6)


def test_scores_of_a_residual_sum_are_averaged():
    inputs = x = keras.Input((4, 4, 2))
    x = layers.BatchNormalization(name="stem")(layers.Conv2D(3, 1)(x))
    y = layers.ReLU()(
        layers.BatchNormalization(name="inner")(layers.Conv2D(5, 3, name="into", padding="same")(x))
    )
    y = layers.BatchNormalization(name="block")(layers.Conv2D(3, 1, name="back")(y))
    x = layers.GlobalAveragePooling2D()(layers.Add()([x, y]))
    model = keras.Model(inputs, layers.Dense(2, name="head")(x))
    rng = np.random.default_rng(1)
    for name in ("stem", "inner", "block"):
        gamma = model.get_layer(name).gamma
        gamma.assign(rng.normal(size=gamma.shape))
    analysis = Analysis(trace(model))
    scores = importance(analysis, "rtic", model)
    gammas = {name: np.square(model.get_layer(name).gamma.numpy()) for name in ("stem", "inner", "block")}
    into, back, head = (model.get_layer(name).kernel.numpy() for name in ("into", "back", "head"))
    of_head = np.square(head).sum(1)
    of_stem = gammas["stem"] * (np.square(into).sum((0, 1, 3)) + of_head) / 2
    of_sum = (of_stem + gammas["block"] * of_head) / 2
    of_inner = gammas["inner"] * np.square(back).sum((0, 1, 3))
    groups = {group.size: scores[group.classes] for group in analysis.groups}
    np.testing.assert_allclose(groups[3], of_sum, rtol=1e-5)
    np.testing.assert_allclose(groups[5], of_inner, rtol=1e-5)


@pytest.mark.parametrize("between", [None, layers.DepthwiseConv2D(3, name="depthwise"), layers.Flatten()])
def test_a_factor_moves_from_gamma_to_the_next_weights_without_effect(between):
    inputs = keras.Input((4, 4, 2))
    x = layers.ReLU()(layers.BatchNormalization(name="normal")(layers.Conv2D(6, 1)(inputs)))
    if isinstance(between, layers.DepthwiseConv2D):
        x = layers.BatchNormalization()(between(x))
    x = layers.Conv2D(4, 1, name="next")(x) if not isinstance(between, layers.Flatten) else between(x)
    model = keras.Model(inputs, layers.Dense(3, name="last")(x))
    normal = model.get_layer("normal")
    names = {"depthwise", "next"} & {layer.name for layer in model.layers}
    kernel = model.get_layer(min(names) if names else "last").kernel
    image = np.random.default_rng(0).normal(size=(1, 4, 4, 2)).astype("float32")

    def outputs_and_scores():
        return model(image).numpy(), importance(Analysis(trace(model)), "rtic", model)

    outputs, scores = outputs_and_scores()
    factors = np.float32([10.0, 1.0, 0.5, 3.0, 1.0, 2.0])
    normal.gamma.assign(normal.gamma * factors)
    axis = np.tile(factors, kernel.shape[0] // 6) if kernel.shape[0] > 6 else factors
    kernel.assign(kernel / axis[:, None])
    moved_outputs, moved_scores = outputs_and_scores()
    np.testing.assert_allclose(moved_outputs, outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved_scores[:6], scores[:6], rtol=1e-5)  # the channels of the gammas


@pytest.mark.slow
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
