"""Private names of TensorFlow: a failing test names what an upgrade removed."""

import tensorflow as tf
from tfsparsecap_export.convert import tensorflow_internals as internals


def test_the_converter_still_has_the_option_for_per_tensor_quantization():
    converter = tf.lite.TFLiteConverter.from_concrete_functions([])
    assert getattr(converter, internals.PER_TENSOR_QUANTIZATION) is False  # default of TensorFlow 2.21
