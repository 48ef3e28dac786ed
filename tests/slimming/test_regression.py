"""Removed channels that others predict."""

import keras
import numpy as np
import pytest
from keras import layers

from benchmarks.zero_channels import randomize
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.plan import slim


def test_channels_that_depend_on_others_linearly_are_taken_over():
    inputs = keras.Input((6, 6, 4))
    x = layers.Conv2D(16, 1, name="mixed")(inputs)
    model = keras.Model(inputs, layers.Conv2D(3, 3, name="next")(x))
    x = np.random.default_rng(0).normal(1, 1, (32, 6, 6, 4)).astype("float32")
    small = slim(model, 0.5, samples=[x[:16], x[16:]])
    assert small.get_layer("mixed").filters == 8
    # 16 channels of four inputs: eight of them determine the others.
    error = [np.abs(one(x) - model(x)).max() for one in (small, slim(model, 0.5))]
    assert error[0] < 0.05 * error[1]


def test_a_network_stays_closer_to_its_outputs(networks, batch):
    model, rng = networks["residual"](), np.random.default_rng(0)
    x = batch(model, rng, 64)
    randomize(model, x, rng)
    errors = [np.square(slim(model, 0.4, samples=samples)(x) - model(x)).mean() for samples in ([x], None)]
    assert errors[0] < 0.9 * errors[1]


def test_empty_samples_are_refused(networks):
    with pytest.raises(InputError, match="samples are empty: give at least one batch"):
        slim(networks["residual"](), 0.5, samples=[])
