"""Latency of a Keras model."""

import keras
import numpy as np
import pytest
from keras import layers
from tfsparsecap_export import model_latency
from tfsparsecap_export.keras_to_tflite.graph import model_graph
from tfsparsecap_export.measure.model_latency import fastest_runs

from tfsparsecap.errors import InputError


def test_a_latency_is_measured():
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2)])
    assert 0 < model_latency(model, runs=3) < 1000
    with pytest.raises(InputError, match="runs is 0"):
        model_latency(model, 0)


def test_a_model_with_mixed_precision_is_measured_as_float32():
    convolution = layers.Conv2D(4, 3, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((8, 8, 3)), convolution, layers.Flatten(), layers.Dense(2)])
    assert model_latency(model, runs=1) > 0
    assert convolution.compute_dtype == "float16"


def test_files_are_timed_in_turns():
    model = keras.Sequential([keras.Input((8,), name="x"), layers.Dense(2)])
    times = fastest_runs([model_graph(model)] * 2, {"x": np.zeros((1, 8), np.float32)}, runs=2)
    assert len(times) == 2 and all(0 < time < 1000 for time in times)
