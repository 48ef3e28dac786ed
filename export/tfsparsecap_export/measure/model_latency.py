"""Latency of a Keras model on LiteRT, for the latency budget of `sc.slim`."""

import keras

from tfsparsecap.errors import check_number
from tfsparsecap_export.keras_to_tflite.graph import float32_computation, model_graph
from tfsparsecap_export.measure.single_runs import load, run_seconds


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
