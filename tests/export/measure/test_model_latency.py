"""Latency of a Keras model."""

import keras
import pytest
from keras import layers
from tfsparsecap_export import model_latency

from tfsparsecap.errors import InputError


def test_a_latency_is_measured():
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2)])
    assert 0 < model_latency(model, runs=3) < 1000
    with pytest.raises(InputError, match="runs is 0"):
        model_latency(model, 0)
