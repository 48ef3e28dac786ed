"""Loading and running a file in a separate process: its memory and load time, and whether it crashes.

python -m tfsparsecap_export.verify.probe FILE THREADS     (started by `probe`; prints JSON)
"""

import contextlib
import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError, first_line

_COMMAND = (sys.executable, "-m", "tfsparsecap_export.verify.probe")


@dataclasses.dataclass(frozen=True)
class Probe:
    """What loading and running a file takes.

    Attributes:
        peak_bytes: growth of the process: its peak of resident memory minus what was resident when Python
            and the runtime were imported and nothing was loaded. The file is mapped into memory, as on
            Android, so only pages that are read count. None if the system is not Linux.
        load_ms: milliseconds from opening the file to allocated tensors, including expanding constants.
    """

    peak_bytes: int | None
    load_ms: float


def probe(path: Path, threads: int = 1) -> Probe:
    """Loads a .tflite file in a separate process and runs it twice on zeros.

    Raises:
        InputError: the runtime cannot load or run the file, or crashes.

    Examples:
        >>> from tfsparsecap.captioning.captioners import captioner_path
        >>> probe(captioner_path("small")).peak_bytes > 4e6
        True
    """
    command = [*_COMMAND, str(path), str(threads)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode < 0:
        name = signal.Signals(-result.returncode).name
        raise InputError(f"the runtime crashes on {path} ({name}): do not use that file, export it again")
    try:
        fields = json.loads(result.stdout)
    except ValueError:
        raise RuntimeError(f"the process that runs {path} failed: {result.stderr.strip()[-200:]}") from None
    if "error" in fields:
        raise InputError(f"the runtime cannot {fields['doing']} {path} ({fields['error']}): export it again")
    return Probe(**fields)


def _memory(name: str) -> int | None:
    """Bytes of an entry of Linux's process status: "VmRSS" is resident memory, "VmHWM" its peak."""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        match = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(match[1]) << 10 if match else None
    return None


def main(path: str, threads: str) -> None:
    """Loads and runs a file, and prints the fields of `Probe`, or what failed."""
    from ai_edge_litert.interpreter import Interpreter

    with contextlib.suppress(OSError):
        # Resets VmHWM on Linux, because imports may have used more memory temporarily.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _memory("VmRSS")
    doing = "load"
    try:
        start = time.perf_counter()
        interpreter = Interpreter(model_path=path, num_threads=int(threads))
        interpreter.allocate_tensors()
        load_ms = 1e3 * (time.perf_counter() - start)
        doing = "run"
        for _ in range(2):
            for detail in interpreter.get_input_details():
                interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
            interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        json.dump({"doing": doing, "error": first_line(error)}, sys.stdout)
        return
    after = _memory("VmHWM")
    peak = None if before is None or after is None else max(0, after - before)
    json.dump({"peak_bytes": peak, "load_ms": load_ms}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
