"""Checks that apply to every captioner."""

import keras
import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(scope="session")
def inputs():
    """Four regions of three images, and captions of six tokens of a vocabulary of 20."""
    random = np.random.default_rng(2)
    return {
        "features": random.normal(size=(3, 4, 7)).astype("float32"),
        "tokens": random.integers(0, 20, (3, 6)).astype("int32"),
    }


def assert_learns(captioner, inputs):
    """Keras's own fit, compiled by XLA, reduces the loss on one batch."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    captioner.compile(keras.optimizers.Adam(0.03), loss, jit_compile=True)
    inputs = {**inputs, "tokens": inputs["tokens"][:, :2]}
    targets = np.roll(inputs["tokens"], -1, axis=1)
    before = loss(targets, captioner(inputs))
    data = tf.data.Dataset.from_tensors((inputs, targets)).repeat(20)
    captioner.fit(data, epochs=1, verbose=0, shuffle=False)
    assert loss(targets, captioner(inputs)) < 0.9 * before
