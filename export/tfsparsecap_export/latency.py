"""Latency of a Keras model on LiteRT, for the latency budget of `sc.slim`; timed runs of a file."""

import time

import keras
import numpy as np

from tfsparsecap.errors import check_number
from tfsparsecap_export.keras_to_tflite.graph import float32_computation, model_graph


def model_latency(model: keras.Model, runs: int = 20) -> float:
    """Returns the milliseconds of a Keras model as float32, one example on one thread: the fastest of `runs`.

    Args:
        model: a built model that is not a captioner.
        runs: timed runs, after one that is not timed.

    Raises:
        InputError: the model cannot be converted, or `runs` is below 1.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(4)]
        >>> model_latency(keras.Sequential(layers)) > 0
        True
    """
    runs = check_number("runs", runs, whole=True, at_least=1)
    with float32_computation(model):
        interpreter = load(model_graph(model))
    return 1e3 * min(run_seconds(interpreter) for _ in range(runs))


def load(content: bytes, value: np.ndarray | None = None):
    """An interpreter of a file that has run once, on one thread.

    Args:
        content: the bytes of the file.
        value: of its only input; zeros by default.

    Raises:
        ValueError, RuntimeError: the runtime does not load or run the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        zeros = np.zeros(detail["shape"], detail["dtype"])
        interpreter.set_tensor(detail["index"], zeros if value is None else value)
    interpreter.invoke()
    return interpreter


def run_seconds(interpreter) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    interpreter.invoke()
    return time.perf_counter() - start
