"""Running a `.tflite` file in a child process, so that a crash of the runtime becomes one sentence."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.inference import runtime_child

# -P: names of modules of this package, which are next to the script, hide no others.
_COMMAND: Sequence[str] = (sys.executable, "-P", str(Path(runtime_child.__file__).resolve()))
_SLOW = {signal.SIGPROF, signal.SIGALRM}


class IsolatedRunner:
    """A signature of a `.tflite` file in a process of its own, which ends with this object or with Python.

    Args:
        content: the bytes of the file.
        label: names the file in messages.
        signature: its name; None takes the first.
        threads: CPU threads of the runtime.

    Attributes:
        inputs: name -> shape and type.
        outputs: names.
        seconds: what the latest run took in the child process.

    Raises:
        InputError: the runtime crashes, or needs more than 60 seconds of CPU time for one run.
        RuntimeError: it refuses the file.

    Examples:
        >>> run = IsolatedRunner(Path("model.tflite").read_bytes(), "model.tflite")  # doctest: +SKIP
        >>> run(image=np.zeros((1, 224, 224, 3), np.uint8))["scores"].shape  # doctest: +SKIP
        (3,)
    """

    def __init__(self, content: bytes, label: str, signature: str | None = None, threads: int = 1) -> None:
        self._label, self._lock, self.seconds = label, threading.Lock(), 0.0
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        command = [*_COMMAND, str(os.getpid()), str(threads), signature or ""]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            start_new_session=True,  # Ctrl-C is the caller's
        )
        self._close = weakref.finalize(self, _end, self._process, self._messages)
        about, _ = self._ask({"model": np.frombuffer(content, np.uint8)})
        self.outputs = set(about["outputs"])
        self.inputs = {
            name: (tuple(shape), np.dtype(type_name)) for name, (shape, type_name) in about["inputs"].items()
        }

    def __call__(self, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs of one run. Errors are those of the class."""
        about, outputs = self._ask(feeds)
        self.seconds = float(about["seconds"])
        return outputs

    def close(self) -> None:
        """Ends the process."""
        self._close()

    def _ask(self, arrays: dict[str, np.ndarray]) -> tuple[dict, dict[str, np.ndarray]]:
        assert self._process.stdin is not None and self._process.stdout is not None  # they are pipes
        with self._lock:
            if not self._close.alive:
                raise InputError(f"the process that ran {self._label} has ended: load the file again")
            try:
                runtime_child.send(self._process.stdin, {}, arrays)
                header, found = runtime_child.receive(self._process.stdout)
            except (OSError, EOFError) as error:
                raise self._ended() from error
            except (ValueError, TypeError, LookupError) as error:
                self._close()
                raise self._nonsense() from error
            except BaseException:  # interrupted: its answer would be taken for that of the next input
                self._close()
                raise
        if "error" in header:
            raise RuntimeError(header["error"])
        return header, found

    def _ended(self) -> Exception:
        """Why the process has ended; it is ended if it has not."""
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return self._nonsense()
        finally:
            self._messages.seek(0)
            messages = self._messages.read().decode("utf-8", "replace").strip()
            self._close()
        if code >= 0:
            return RuntimeError(f"the process that runs {self._label} failed: {messages[-300:]}")
        name = signal.Signals(-code).name
        if -code in _SLOW:
            limit = runtime_child.CPU_SECONDS
            return InputError(f"the runtime needs more than {limit} s for {self._label}: export it again")
        return InputError(
            f"the runtime crashes on {self._label} ({name}): do not use this file, export it again"
        )

    def _nonsense(self) -> InputError:
        return InputError(
            f"the runtime answers nonsense for {self._label}: do not use this file, export it again"
        )


def _end(process: subprocess.Popen, messages: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, messages):
        if stream is not None:
            with contextlib.suppress(OSError):  # what was not sent yet cannot be sent any more
                stream.close()
