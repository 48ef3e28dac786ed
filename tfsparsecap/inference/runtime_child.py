"""The process in which a `.tflite` file runs that may crash the runtime; `isolated` starts it as a script.

It imports nothing of this package, so that it starts quickly.

    python runtime_child.py PARENT THREADS SIGNATURE     (process id; "" is the first signature)

Messages in both directions are the length of a JSON object (8 bytes, little-endian), the object, and the
bytes of the arrays that it lists. The first message has the file as the array `model`; the answer has
`inputs` (name -> shape and type) and `outputs` (names). Each further message has the inputs of one run; the
answer has its outputs and `seconds`. An answer with `error` says why the runtime refuses.
"""

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

#: Limits of one run or of loading a file: seconds on the processor, on each thread, and on the clock.
CPU_SECONDS, SECONDS = 60, 600
# Memory of the process: this, and a multiple of the size of the file.
_BYTES, _COPIES = 4 << 30, 16
# Limits of messages, far above any real one.
_LONGEST_HEADER, _LARGEST_ARRAY = 1 << 20, 1 << 33
_REFUSALS = (
    *(ValueError, RuntimeError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, MemoryError, OSError),
)


def send(stream: IO[bytes], header: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> None:
    """Writes a message. Raises ValueError if an array does not consist of numbers."""
    arrays = arrays or {}
    for name, array in arrays.items():
        if array.dtype.kind not in "?biufc":
            raise ValueError(f"{name} does not consist of numbers")
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": listed}).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        stream.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads a message.

    Raises:
        EOFError: the other side has ended.
        ValueError: the bytes are not a message.
    """
    length = int.from_bytes(_read(stream, 8), "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    header = json.loads(_read(stream, length))
    arrays = {}
    for name, type_name, shape in header.pop("arrays"):
        dtype, size = np.dtype(type_name), math.prod(shape)
        if dtype.kind not in "?biufc" or min(shape, default=0) < 0 or size * dtype.itemsize > _LARGEST_ARRAY:
            raise ValueError(f"an array {type_name} {shape}")
        arrays[name] = np.frombuffer(_read(stream, size * dtype.itemsize), dtype).reshape(shape)
    return header, arrays


def _read(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def main(parent: str, threads: str, signature: str) -> None:
    """Answers messages until the parent process ends."""
    # What libraries print must not get between the answers.
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    with contextlib.suppress(EOFError):
        _, given = receive(requests)
        with _limits(int(threads), given["model"].size):
            try:
                run, about = _load(given.pop("model"), int(threads), signature)
            except _REFUSALS as error:
                send(answers, {"error": _first_line(error)})
                return
        send(answers, about)
        while True:
            _, feeds = receive(requests)
            with _limits(int(threads)):
                try:
                    start = time.perf_counter()
                    outputs = run(**feeds)
                    seconds = time.perf_counter() - start
                    send(answers, {"seconds": seconds}, outputs)
                except _REFUSALS as error:
                    send(answers, {"error": _first_line(error)})


def _load(content: np.ndarray, threads: int, signature: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of a file, and what to answer about it."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content.tobytes(), num_threads=threads)
    names = list(interpreter.get_signature_list())
    run = interpreter.get_signature_runner(signature or (names[0] if names else None))
    inputs = {
        name: [details["shape"].tolist(), np.dtype(details["dtype"]).str]
        for name, details in run.get_input_details().items()
    }
    return run, {"inputs": inputs, "outputs": list(run.get_output_details())}


@contextlib.contextmanager
def _limits(threads: int, file_size: int | None = None) -> Iterator[None]:
    """Ends the process if the block takes too long; with the size of a file, limits the memory from then on.

    The signals' default action needs no help of Python, which native code may block.
    """
    if file_size is not None:
        import resource

        for limit, size in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_AS, _BYTES + _COPIES * file_size),
        ):
            with contextlib.suppress(ValueError, OSError):  # a stricter limit holds already
                resource.setrlimit(limit, (size, resource.getrlimit(limit)[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS * threads)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_with(parent: int) -> None:
    """Ends this process after its parent, even if a run never returns."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


if __name__ == "__main__":
    main(*sys.argv[1:])
