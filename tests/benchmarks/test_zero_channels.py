"""Networks with constant channels."""

import keras
import numpy as np
from keras import layers

from benchmarks.zero_channels import randomize, zero_channels


def test_half_of_the_channels_become_constant():
    inputs = keras.Input((8, 8, 3))
    x = layers.BatchNormalization(name="first")(layers.Conv2D(16, 3, padding="same")(inputs))
    x = layers.ReLU(name="features")(x)
    model = keras.Model(inputs, layers.Conv2D(2, 3, padding="same")(x))
    rng = np.random.default_rng(0)
    batch = rng.random((4, 8, 8, 3), "float32")
    randomize(model, batch, rng)
    normalized = keras.Model(inputs, model.get_layer("first").output)(batch).numpy()
    deviation = normalized.std((0, 1, 2))
    np.testing.assert_allclose(deviation, np.abs(model.get_layer("first").gamma), rtol=0.1)
    assert zero_channels(model, rng) == (8, 8)
    features = keras.Model(inputs, model.get_layer("features").output)(batch).numpy()
    constant = features.std((0, 1, 2)) == 0
    # What padding would change at the borders is zero.
    assert sum(constant) >= 8 and not features[..., constant].any()
