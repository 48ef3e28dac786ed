"""A file loaded and run in a process of its own: what memory that takes, and whether it survives it.

python -m tfsparsecap_export.verify.probe FILE INPUTS.npz THREADS     (started by `probe`; prints JSON)
"""

import contextlib
import dataclasses
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError

Sample = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Probe:
    """What loading and running a file takes.

    Attributes:
        peak_bytes: how far the process grew at most: its peak of resident memory (VmHWM on Linux, else
            ru_maxrss) less what was resident before, when the interpreter, NumPy and the runtime were
            imported and nothing was loaded. The file is mapped into memory, as on Android, and counts with
            the pages that are read. None where the system does not tell.
        load_ms: milliseconds from the file to tensors that are ready, expanding constants included.
    """

    peak_bytes: int | None
    load_ms: float


def probe(path: Path, samples: list[Sample], threads: int = 1) -> Probe:
    """Loads a .tflite file of one signature in a process of its own and runs it on each sample.

    Raises:
        InputError: the runtime cannot load or run the file, or crashes on it.

    Example:
        >>> probe(Path("captioner.tflite"), synthetic_samples(inputs, 2)).peak_bytes / 1e6
        9.8
    """
    return Probe(**in_own_process("tfsparsecap_export.verify.probe", path, samples, threads))


def in_own_process(module: str, path: Path, samples: list[Sample], *numbers: int):
    """What a module prints as JSON when it is run with a .tflite file and its inputs.

    Raises:
        InputError: it said what is wrong with the file, or crashed.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(
            inputs, **{f"{i}/{name}": a for i, sample in enumerate(samples) for name, a in sample.items()}
        )
        result = subprocess.run(
            [sys.executable, "-m", module, str(path), str(inputs), *map(str, numbers)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    answer = None
    with contextlib.suppress(ValueError):
        answer = json.loads(result.stdout)
    if result.returncode == 0 and answer is not None:
        return answer
    if isinstance(answer, dict) and "error" in answer:
        raise InputError(f"the runtime cannot {answer['doing']} {path} ({answer['error']}): export it again")
    if result.returncode < 0:
        name = signal.Signals(-result.returncode).name
        raise InputError(f"the runtime crashes on {path} ({name}): do not use that file, export it again")
    said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    raise RuntimeError(f"{module} failed on {path}: {said[0]}")


def read_samples(path: str) -> list[Sample]:
    """The inputs that `in_own_process` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        samples = {}
        for key in stored.files:
            number, _, name = key.partition("/")
            samples.setdefault(int(number), {})[name] = stored[key]
    return [samples[number] for number in sorted(samples)]


def answer(doing: str, error: Exception) -> int:
    """Prints what a file's process ends with where the file is at fault; the exit code."""
    json.dump(
        {"doing": doing, "error": (str(error).strip() or type(error).__name__).splitlines()[0]}, sys.stdout
    )
    return 2


def _memory() -> tuple[int | None, int | None]:
    """Bytes resident now, and the most that ever were."""
    with contextlib.suppress(OSError, AttributeError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        now, peak = (re.search(rf"{name}:\s+(\d+) kB", status).group(1) for name in ("VmRSS", "VmHWM"))
        return int(now) << 10, int(peak) << 10
    with contextlib.suppress(ImportError):
        import resource

        # A process keeps what its parent had at most; before loading that is taken for what there is now.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return peak, peak
    return None, None


def main(path: str, inputs: str, threads: str) -> int:
    """Loads and runs, and prints the fields of `Probe`, or what went wrong."""
    from ai_edge_litert.interpreter import Interpreter

    samples = read_samples(inputs)
    with contextlib.suppress(OSError):
        # Importing may have taken more for a moment than is left: Linux forgets the peak when told to.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, _ = _memory()
    doing = "load"
    try:
        start = time.perf_counter()
        interpreter = Interpreter(model_path=path, num_threads=int(threads))
        interpreter.allocate_tensors()
        load_ms = 1e3 * (time.perf_counter() - start)
        run = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        doing = "run"
        for sample in samples:
            run(**sample)
    except (RuntimeError, ValueError) as error:
        return answer(doing, error)
    _, peak = _memory()
    json.dump({"peak_bytes": None if peak is None else max(0, peak - before), "load_ms": load_ms}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
