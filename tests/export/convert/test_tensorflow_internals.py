"""Private names of TensorFlow: a failing test names what an upgrade removed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.convert import graph
from tfsparsecap_export.convert import tensorflow_internals as internals


def test_variables_become_constants():
    variable = tf.Variable([2.0])
    function = tf.function(lambda x: {"y": x * variable}).get_concrete_function(
        tf.TensorSpec((1,), tf.float32)
    )
    frozen = internals.freeze_variables(function)
    variable.assign([5.0])
    assert not frozen.variables
    np.testing.assert_array_equal(frozen(tf.constant([3.0]))[0], [6.0])


def test_files_without_ranges_stay_float(monkeypatch):
    content = graph.model_graph(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]))
    options = {"float_operators": ["SOFTMAX"], "float_results": []}
    assert internals.quantize_activations(content, **options)[4:8] == b"TFL3"

    def refuse(*arguments, **options):
        raise internals.ConverterError("no")

    monkeypatch.setattr(internals, "mlir_quantize", refuse)
    with pytest.raises(ValueError, match="no"):
        internals.quantize_activations(content, **options)
