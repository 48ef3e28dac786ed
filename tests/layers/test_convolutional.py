"""Gated convolutions against stock Keras layers with masked kernels."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import layers

RANDOM = np.random.default_rng(0)
SEQUENCE = RANDOM.normal(size=(2, 7, 8)).astype("float32")
IMAGE = RANDOM.normal(size=(2, 7, 6, 8)).astype("float32")
VOLUME = RANDOM.normal(size=(2, 3, 4, 3, 8)).astype("float32")


def network(layer):
    return lambda: keras.Sequential([layer()])


CASES = {
    "1d": (network(lambda: keras.layers.Conv1D(6, 3)), SEQUENCE),
    "1d causal dilated": (
        network(lambda: keras.layers.Conv1D(6, 3, padding="causal", dilation_rate=2)),
        SEQUENCE,
    ),
    "2d": (network(lambda: keras.layers.Conv2D(6, (3, 2), strides=2, activation="relu")), IMAGE),
    "2d pointwise": (network(lambda: keras.layers.Conv2D(6, 1, use_bias=False)), IMAGE),
    "2d in groups": (network(lambda: keras.layers.Conv2D(6, 3, groups=2, padding="same")), IMAGE),
    "depthwise": (network(lambda: keras.layers.DepthwiseConv2D(3, depth_multiplier=2)), IMAGE),
    "3d": (network(lambda: keras.layers.Conv3D(6, 2)), VOLUME),
    "1d transposed": (network(lambda: keras.layers.Conv1DTranspose(6, 3, strides=2)), SEQUENCE),
    "2d transposed": (network(lambda: keras.layers.Conv2DTranspose(6, 3, padding="same")), IMAGE),
    "3d transposed": (network(lambda: keras.layers.Conv3DTranspose(6, 2)), VOLUME),
    "1d depthwise": (network(lambda: keras.layers.DepthwiseConv1D(3, depth_multiplier=2)), SEQUENCE),
    "1d separable": (network(lambda: keras.layers.SeparableConv1D(6, 3)), SEQUENCE),
    "2d separable": (network(lambda: keras.layers.SeparableConv2D(6, 3, depth_multiplier=2)), IMAGE),
}


@pytest.mark.parametrize(("block_shape", "training"), [((1, 1), False), ((4, 1), True), ((2, 2), True)])
@pytest.mark.parametrize("name", CASES)
def test_a_gated_layer_equals_the_stock_layer_with_masked_weights(twins, name, block_shape, training):
    make, x = CASES[name]
    gated, stock = twins.outputs(make, tf.constant(x), training=training, block_shape=block_shape)
    np.testing.assert_allclose(gated, stock, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["1d", "2d", "depthwise", "2d transposed", "1d separable"])
def test_gates_get_the_gradient_of_their_block(twins, name):
    make, x = CASES[name]
    for by_tape, by_numpy in twins.gradients(make, tf.constant(x), block_shape=(4, 1)):
        np.testing.assert_allclose(by_tape, by_numpy, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("channels", "height"),
    [(16, 16), (8, 8), (4, 4), (3, 1)],  # a 2 x 2 kernel of 4 channels has 16 rows
)
def test_blocks_stay_within_one_pixel(channels, height):
    layer = layers.GatedConv2D(5, 2, block_shape=(16, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer.build((None, 8, 8, channels))
    assert layer.kernel_gate.block == (height, 1)
    mask = np.zeros(layer.kernel_gate.logits.shape, "float32")
    mask[0, 0] = 1
    opened = np.argwhere(np.asarray(layer.kernel_gate.expand(tf.constant(mask))))
    np.testing.assert_array_equal(opened, [(0, 0, channel, 0) for channel in range(height)])


def test_blocks_of_transposed_convolutions_run_along_the_inputs_of_one_pixel():
    layer = layers.GatedConv2DTranspose(6, 2, block_shape=(4, 2))
    layer.build((None, 8, 8, 16))
    assert layer.kernel_gate.block == (2, 4) and tuple(layer.kernel.shape) == (2, 2, 6, 16)
    mask = np.zeros(layer.kernel_gate.logits.shape, "float32")
    mask[0, 0] = 1
    opened = np.argwhere(np.asarray(layer.kernel_gate.expand(tf.constant(mask))))
    np.testing.assert_array_equal(opened, [(0, 0, i, j) for i in range(2) for j in range(4)])


def test_depthwise_kernels_are_gated_by_single_weights_without_warning():
    layer = layers.GatedDepthwiseConv2D(3, block_shape=(16, 1))
    separable = layers.GatedSeparableConv2D(5, 3, block_shape=(16, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer.build((None, 8, 8, 16))
        separable.build((None, 8, 8, 16))
    assert layer.kernel_gate.block == separable.depthwise_kernel_gate.block == (1, 1)
    assert separable.pointwise_kernel_gate.block == (16, 1)
