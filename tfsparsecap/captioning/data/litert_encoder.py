"""Runs a frozen encoder on LiteRT, which takes half of TensorFlow's time on a CPU."""

import importlib.util
import os
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap.core.keras_internals import conversion_error

_RUNTIME = "ai_edge_litert"
# Largest difference between features of the two, as a share of the largest feature.
_TOLERANCE = 1e-3


def litert_encoder(encoder: keras.Layer, image_size: int) -> Callable[[np.ndarray], np.ndarray] | None:
    """Converts an encoder to float32 operations of LiteRT, in memory; takes seconds.

    Args:
        encoder: built Keras layer, float32 [B, S, S, 3] (0 to 255) -> [B, N, D], in inference mode.
        image_size: `S`.

    Returns:
        A function from images, uint8 [n, S, S, 3], to features, float32 [n, N, D]. None if TensorFlow has a
        GPU, the encoder does not compute in float32, or LiteRT is not installed, lacks an operation or
        returns other features.

    Examples:
        >>> encode = litert_encoder(tfsparsecap.captioning.models.MobileNetV1Encoder(), 48)  # doctest: +SKIP
        >>> encode(np.zeros((5, 48, 48, 3), np.uint8)).shape  # doctest: +SKIP
        (5, 36, 192)
    """
    if tf.config.list_logical_devices("GPU") or encoder.compute_dtype != "float32":
        return None
    if importlib.util.find_spec(_RUNTIME) is None:
        return None
    # LiteRT gets constants, not variables.
    constants = [(variable, keras.ops.convert_to_numpy(variable)) for variable in encoder.variables]

    @tf.function(autograph=False)
    def features_of(image: tf.Tensor) -> tf.Tensor:
        values = [(variable, tf.constant(value)) for variable, value in constants]
        with keras.StatelessScope(state_mapping=values):
            return encoder(image, training=False)

    concrete = features_of.get_concrete_function(tf.TensorSpec([1, image_size, image_size, 3], tf.float32))
    sample = np.random.default_rng(0).integers(0, 256, (1, image_size, image_size, 3), np.uint8)
    expected = keras.ops.convert_to_numpy(concrete(tf.cast(sample, tf.float32)))
    try:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
        with hidden_stderr():
            encode = _function_of(converter.convert())
        close = np.abs(encode(sample) - expected).max() <= _TOLERANCE * np.abs(expected).max()
    except (conversion_error(), RuntimeError, ValueError):  # an operation is missing, or a limit exceeded
        return None
    return encode if close else None


def _function_of(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """The function that a converted encoder computes."""
    from ai_edge_litert.interpreter import Interpreter

    wanted = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    threads = int(wanted) if wanted.isdigit() else 0
    interpreter = Interpreter(model_content=content, num_threads=threads or os.cpu_count())
    interpreter.allocate_tensors()
    input_index, output_index = (
        details[0]["index"] for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )

    def encode(images: np.ndarray) -> np.ndarray:
        features = []
        for image in images:  # a batch takes longer per image
            interpreter.set_tensor(input_index, image[None].astype(np.float32))
            interpreter.invoke()
            features.append(interpreter.get_tensor(output_index)[0])
        return np.stack(features)

    return encode
