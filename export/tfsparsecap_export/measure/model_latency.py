"""Latency of a Keras model on LiteRT, for the latency budget of `sc.slim`."""

import time
from collections.abc import Sequence

import keras
import numpy as np

from tfsparsecap.errors import check_number
from tfsparsecap_export.keras_to_tflite.graph import float32_computation, model_graph
from tfsparsecap_export.samples import Sample


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
    from ai_edge_litert.interpreter import Interpreter

    runs = check_number("runs", runs, whole=True, at_least=1)
    with float32_computation(model):
        content = model_graph(model)
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def fastest_runs(contents: Sequence[bytes], sample: Sample, runs: int = 12) -> list[float]:
    """Returns the milliseconds of .tflite files on one thread, in turns: the fastest of `runs` of each.

    This is the time of the processor, which other programs that wait for it do not change.

    Args:
        contents: the bytes of files with the same inputs and one signature.
        sample: what they run on.
        runs: timed runs of each file, after one that is not timed.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreters = [Interpreter(model_content=content, num_threads=1) for content in contents]
    runners = [each.get_signature_runner(next(iter(each.get_signature_list()))) for each in interpreters]
    times: list[list[float]] = [[] for _ in runners]
    for _ in range(runs + 1):
        for run, mine in zip(runners, times, strict=True):
            start = time.thread_time()
            run(**sample)
            mine.append(time.thread_time() - start)
    return [1e3 * min(mine[1:]) for mine in times]
