"""Private names of TensorFlow that the exporter depends on; an upgrade may remove them.

`tests/export/convert/test_tensorflow_internals.py` names the ones that an installed version lacks. Those of
Keras are in `tfsparsecap.keras_internals`. The generated TFLite schema, which is not a public interface
either, is imported by `flatbuffer.model_file` only.
"""

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

#: Option of the converter. Without it, int8 layers get one scale per output channel, which needs version 12
#: of FULLY_CONNECTED. TFLite 2.16.1, the newest release for Android on Maven Central, supports version 11.
PER_TENSOR_QUANTIZATION = "_experimental_disable_per_channel_quantization_for_dense_layers"


def freeze_variables(function):
    """Replaces the variables of a concrete function by constants, inside loops too."""
    return convert_variables_to_constants_v2(function, lower_control_flow=False)


def use_per_tensor_quantization(converter: tf.lite.TFLiteConverter) -> None:
    """Makes a converter use one scale per weight matrix."""
    setattr(converter, PER_TENSOR_QUANTIZATION, True)
