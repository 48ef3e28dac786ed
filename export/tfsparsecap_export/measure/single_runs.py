"""Runs of files that are timed one by one."""

import time

import numpy as np


def load(content: bytes, inputs: dict[int, np.ndarray] | None = None, threads: int = 1):
    """An interpreter of a file that has run once.

    Args:
        content: the bytes of the file.
        inputs: index of an input tensor -> its value; zeros by default.
        threads: CPU threads that kernels may use.

    Raises:
        ValueError, RuntimeError: the runtime does not load or run the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=threads)
    interpreter.allocate_tensors()
    if inputs is None:
        details = interpreter.get_input_details()
        inputs = {detail["index"]: np.zeros(detail["shape"], detail["dtype"]) for detail in details}
    for index, value in inputs.items():
        interpreter.set_tensor(index, value)
    interpreter.invoke()
    return interpreter


def run_seconds(interpreter) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    interpreter.invoke()
    return time.perf_counter() - start
