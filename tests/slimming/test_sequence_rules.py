"""Recurrent and attention layers."""

import keras
import numpy as np
from keras import layers

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
