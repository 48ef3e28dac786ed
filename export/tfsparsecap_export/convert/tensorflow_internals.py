"""Private names of TensorFlow that the exporter depends on; an upgrade may remove them.

`tests/export/convert/test_tensorflow_internals.py` names the ones that an installed version lacks. Those of
Keras are in `tfsparsecap.keras_internals`. The generated TFLite schema, which is not a public interface
either, is imported by `flatbuffer.model_file` only.
"""

from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2


def freeze_variables(function):
    """Replaces the variables of a concrete function by constants, inside loops too."""
    return convert_variables_to_constants_v2(function, lower_control_flow=False)
