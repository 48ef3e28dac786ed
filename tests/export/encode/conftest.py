"""A network with every kind of layer whose weights become int8."""

import keras
import numpy as np
import pytest
from tfsparsecap_export.keras_to_tflite import graph


@pytest.fixture(scope="session")
def mixed_network():
    """A network with every kind of layer whose weights become int8, and photographs like its own."""
    keras.utils.set_random_seed(6)
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((17, 17, 3), batch_size=1, name="image"),
            layers.Conv2D(12, 3, strides=2, padding="same", activation="relu6"),
            layers.DepthwiseConv2D(3, padding="valid", activation="relu6"),
            layers.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2),
            layers.Conv2DTranspose(24, 3, strides=2, activation="relu"),
            layers.Conv2D(40, 1, activation="gelu"),
            layers.Conv2D(40, 3, groups=4),
            layers.Conv2D(16, 3, padding="same", dilation_rate=2),
            layers.LayerNormalization(),
            layers.Dense(48, activation="gelu"),
            layers.Dense(16, use_bias=False),
        ]
    )
    random = np.random.default_rng(7)
    for weight in network.weights:
        # Outliers and biases, as in real networks.
        weight.assign(weight * np.exp(random.normal(0, 1, weight.shape)) + 0.1 * (len(weight.shape) == 1))
    patches = random.integers(0, 256, (60, 5, 5, 3), np.uint8)
    inputs = np.kron(patches, np.ones((1, 4, 4, 1)))[:, :17, :17].astype(np.float32) / 128 - 1
    return graph.model_graph(network), network, inputs
