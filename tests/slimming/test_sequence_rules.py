"""Slimming of attention layers and transformers."""

import keras
import numpy as np
import pytest
from keras import layers

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.plan import slim, slim_plan


def test_attention_with_two_output_axes_stays_whole():
    inputs = keras.Input((6, 8))
    x = layers.MultiHeadAttention(2, 16, output_shape=(4, 5), name="attention")(inputs, inputs)
    x = layers.Dense(16, name="free")(x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    plan = slim_plan(model, 0.5)
    assert [group.name for group in plan.groups] == ["free"]
    assert any(note.startswith("attention (MultiHeadAttention) has no rule") for note in plan.notes)
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    assert slim(model, 0.5)(x).shape == model(x).shape


def test_units_of_keras_hubs_transformer_that_add_nothing_are_removed():
    hub = pytest.importorskip("keras_hub")
    inputs = keras.Input((5, 16))
    encoder = hub.layers.TransformerEncoder(32, 2, activation="gelu", name="encoder")
    model = keras.Model(inputs, layers.Dense(3)(encoder(inputs)))
    inner, outer = (
        next(weight for weight in encoder.weights if f"feedforward_{name}_dense/kernel" in weight.path)
        for name in ("intermediate", "output")
    )
    inner.assign(np.asarray(inner) * np.tile([1e-3, 1.0], 16))
    outer.assign(np.asarray(outer) * np.tile([0.0, 1.0], 16)[:, None])
    x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype("float32")
    plan, small = slim_plan(model, 0.5), slim(model, 0.5)
    np.testing.assert_allclose(small(x), model(x), atol=1e-5)
    assert model.count_params() - small.count_params() == 16 * (16 + 1 + 16)
    # Of each token: four projections, two products with five tokens, 32 units, 3 outputs.
    assert plan.before.flops == 5 * (4 * 16 * 16 + 2 * 5 * 16 + 2 * 16 * 32 + 3 * 16)
    assert plan.before.flops - plan.after.flops == 5 * 2 * 16 * 16

    softmax = hub.layers.TransformerEncoder(32, 2, activation="softmax")
    with pytest.raises(InputError, match="has an activation of all units"):
        slim(keras.Model(inputs, softmax(inputs)), 0.5)
