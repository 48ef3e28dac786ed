"""Networks that do not use half of their channels."""

import keras
import numpy as np
from keras import layers

from benchmarks.zero_channels import randomize, zero_channels


def test_half_of_the_channels_are_multiplied_by_zero():
    inputs = keras.Input((8, 8, 3))
    x = layers.BatchNormalization(name="first")(layers.Conv2D(16, 3, padding="same")(inputs))
    x = layers.ReLU()(x)
    model = keras.Model(inputs, layers.Conv2D(2, 3, padding="same")(x))
    rng = np.random.default_rng(0)
    batch = rng.random((4, 8, 8, 3), "float32")
    randomize(model, batch, rng)
    normalized = keras.Model(inputs, model.get_layer("first").output)(batch).numpy()
    deviation = normalized.std((0, 1, 2))
    np.testing.assert_allclose(deviation, np.abs(model.get_layer("first").gamma), rtol=0.1)
    assert zero_channels(model, rng) == (8, 8)
    kernel = np.array(model.layers[-1].kernel)
    assert (np.abs(kernel).sum((0, 1, 3)) == 0).sum() == 8
