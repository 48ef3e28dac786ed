"""Private names of TensorFlow that the exporter depends on; an upgrade may remove them.

`tests/export/keras_to_tflite/test_tensorflow_internals.py` names the ones that an installed version lacks.
Those of Keras are in `tfsparsecap.core.keras_internals`. The generated TFLite schema, which is not a public
interface either, is imported by `flatbuffer.model_file` only.
"""

from collections.abc import Collection

import tensorflow as tf
from tensorflow.lite.python.convert import mlir_quantize
from tensorflow.lite.python.convert_phase import ConverterError
from tensorflow.lite.python.lite import TFLiteSavedModelConverterV2
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tfsparsecap.core.hidden_stderr import hidden_stderr


def freeze_variables(function):
    """Replaces the variables of a concrete function by constants, inside loops too."""
    return convert_variables_to_constants_v2(function, lower_control_flow=False)


def convert_saved_model(folder: str, signature: str) -> bytes:
    """Converts a function of a saved model to a .tflite file.

    `TFLiteConverter.from_saved_model` reads the folder four times, only to learn of names and sources.
    """
    converter = TFLiteSavedModelConverterV2(folder, {tf.saved_model.SERVING}, [signature])
    return converter._convert_from_saved_model(tf.compat.v1.GraphDef())


def quantize_activations(content: bytes, *, float_operators: Collection[str], float_results: Collection[str]):
    """Quantizes weights and activations of a float32 .tflite file to int8.

    Args:
        content: a file whose results have ranges, the `min` and `max` of their quantization parameters.
        float_operators: operators that stay float, such as `"SOFTMAX"`.
        float_results: names of the results of operations that stay float.

    Returns:
        A file with the same inputs and outputs. Weights of an output get one scale, so that the largest
        becomes 127.

    Raises:
        ValueError: the quantizer does not support the file.
    """
    try:
        with hidden_stderr():
            return mlir_quantize(
                content, denylisted_ops=set(float_operators), denylisted_nodes=set(float_results)
            )
    except ConverterError as error:
        raise ValueError(str(error)) from error
