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


FACTORS = np.float32([10.0, 1.0, 0.5, 3.0, 1.0, 2.0])
OF_INPUTS = FACTORS[:, None]
OF_GROUPS = np.concatenate([np.repeat(part[:, None], 2, 1) for part in np.split(FACTORS, 2)], 1)


def normalized(inputs):
    return layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 1)(inputs)))


def conv(x, filters=4, **options):
    return layers.Conv2D(filters, 1, name="next", **options)(x)


@pytest.mark.parametrize(
    ("build", "divisor"),
    [
        (lambda x, inputs: conv(x), OF_INPUTS),
        (lambda x, inputs: layers.Conv2DTranspose(4, 3, name="next")(x), FACTORS),
        (lambda x, inputs: layers.SeparableConv2D(4, 3, name="next")(x), OF_INPUTS),
        (lambda x, inputs: layers.DepthwiseConv2D(3, depth_multiplier=2, name="next")(x), OF_INPUTS),
        (lambda x, inputs: conv(x, 6, groups=6), FACTORS),
        (lambda x, inputs: conv(x, groups=2), OF_GROUPS),
        # The groups of both summands: their labels differ.
        (lambda x, inputs: conv(layers.Add()([x, normalized(inputs)]), groups=2), OF_GROUPS),
        (lambda x, inputs: conv(layers.Add()([normalized(inputs), x]), groups=2), OF_GROUPS),
        (lambda x, inputs: conv(layers.Concatenate()([x, inputs])), np.append(FACTORS, [1, 1])[:, None]),
        (lambda x, inputs: layers.Dense(3, name="next")(layers.Flatten()(x)), np.tile(FACTORS, 16)[:, None]),
    ],
)
def test_a_factor_moves_from_gamma_to_the_next_weights_without_effect(build, divisor):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4, 4, 2))
    model = keras.Model(inputs, build(normalized(inputs), inputs))
    kernel = model.get_layer("next").weights[0]
    image = np.random.default_rng(0).normal(size=(1, 4, 4, 2)).astype("float32")

    def outputs_and_scores():
        analysis = Analysis(trace(model))
        scores = importance(analysis, "rtic", model)
        return model(image).numpy(), scores[np.unique(analysis.classes[:6])]  # of the channels of the gammas

    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.gamma.assign(np.random.default_rng(1).normal(size=6))
    outputs, scores = outputs_and_scores()
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.gamma.assign(layer.gamma * FACTORS)
    kernel.assign(kernel / divisor.astype("float32"))
    moved_outputs, moved_scores = outputs_and_scores()
    np.testing.assert_allclose(moved_outputs, outputs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(moved_scores, scores, rtol=1e-5)


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
