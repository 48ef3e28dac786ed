"""Latency of a Keras model."""

import keras
import pytest
from keras import layers
from tfsparsecap_export import model_latency

from tfsparsecap.errors import InputError


def test_a_model_with_mixed_precision_is_measured_as_float32():
    convolution = layers.Conv2D(4, 3, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((8, 8, 3)), convolution, layers.Flatten(), layers.Dense(2)])
    assert 0 < model_latency(model, runs=3) < 1000
    assert convolution.compute_dtype == "float16"
    with pytest.raises(InputError, match="runs is 0"):
        model_latency(model, 0)
