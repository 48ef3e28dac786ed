"""A case: a kind of input, damaged by a seed, and what reading it did."""

import contextlib
import io
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple

from tfsparsecap.command import run

from .formats import Formats
from .guard import CANARY, Guard
from .inputs import Inputs, cheap
from .mutations import remove

LONGEST_MESSAGE = 600
#: Above the memory before the case, in bytes.
MOST_MEMORY = 1 << 30
#: On the processor, so that other processes do not count.
MOST_SECONDS = 60.0
# On the clock, for what waits without computing.
_LONGEST_WAIT = 600.0


class Prepared(NamedTuple):
    """A damaged input that lies in the case's folder, and what reads it.

    Attributes:
        read: returns an exit code; None is 0.
        about: what reads it, for the reader of a violation.
        damage: how to damage the input; not called for a valid one.
        reads_only: whether the files of the input must stay as they are.
    """

    read: Callable[[], int | None]
    about: str
    damage: Callable[[], None]
    reads_only: bool = True


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: on the command line.
        prepare: writes valid files into a folder.
        cases: of `make fuzz`.
        quick_cases: of continuous integration.
    """

    name: str
    prepare: Callable[[Inputs, Path, Formats], Prepared]
    cases: int
    quick_cases: int


@dataclass
class Outcome:
    """What a case did.

    Attributes:
        code: 0 or 2; None if it ended in another way.
        message: of the exit code 2, or the traceback.
        memory: largest number of bytes above those before the case.
        seconds: on the processor.
        violations: sentences; empty if the case is fine.
    """

    kind: str
    seed: int
    about: str = ""
    code: int | None = None
    message: str = ""
    memory: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class TooSlow(BaseException):
    """A case has reached its time limit."""


class _Ending:
    """A context that keeps how its block ended, whatever was raised."""

    code: int | None = None
    message = ""
    wrong = ""

    def __enter__(self) -> "_Ending":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            return True
        if isinstance(error, SystemExit) and error.code in (0, 2):
            self.code = int(error.code)
        elif isinstance(error, KeyboardInterrupt):
            return False
        else:
            # Those of the fuzzer itself come first.
            steps = traceback.format_exception(kind, error, trace)
            self.message = "".join(steps)[-6000:]
            self.wrong = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
        return True


class Session:
    """Runs cases in a folder.

    Args:
        folder: a new one; everything that the cases need and write is below it.
        most_memory, most_seconds: limits of a case.
    """

    def __init__(self, folder: Path, most_memory: int = MOST_MEMORY, most_seconds: float = MOST_SECONDS):
        self.folder = folder.resolve()
        self.inputs = Inputs(self.folder / "valid")
        self._most_memory, self._most_seconds = most_memory, most_seconds
        outside = self.folder / "outside"
        outside.mkdir()
        (outside / "keep.txt").write_text("nothing changes this file\n")
        (outside / f"{CANARY}.py").write_text("raise RuntimeError('imported')\n")

    def run(self, kind: Kind, seed: int, damaged: bool = True) -> Outcome:
        """Runs a case; equal seeds give equal cases.

        Args:
            damaged: whether the input is damaged; otherwise the outcome must have the code 0.
        """
        case = self.folder / "case"
        remove(case)
        (case / "tmp").mkdir(parents=True)
        random = Random(f"{kind.name} {seed}")
        outcome = Outcome(kind.name, seed)
        prepared = kind.prepare(self.inputs, case, Formats(random))
        if damaged:
            prepared.damage()
        outcome.about = prepared.about
        guard = Guard(case, [self.folder / "valid", self.folder / "outside"])
        before = _tree(case) if prepared.reads_only else {}
        output = io.TextIOWrapper(io.BytesIO(), "utf-8", line_buffering=True)
        forget_peak()
        start, peak = time.process_time(), _peak()
        with _Ending() as ending, self._surroundings(case, output), guard.watched():
            run(prepared.read)  # as the commands do
        outcome.seconds = time.process_time() - start
        outcome.memory = _peak() - peak
        outcome.code, outcome.message = ending.code, ending.message or _said(output)
        outcome.violations = [ending.wrong] * bool(ending.wrong) + guard.violations
        outcome.violations += self._judged(outcome, case)
        if prepared.reads_only and (lost := [name for name, one in before.items() if _stat(name) != one]):
            outcome.violations.append(f"changed or removed its input {os.path.relpath(lost[0], case)}")
        return outcome

    def save(self, kind: Kind, outcome: Outcome, folder: Path) -> None:
        """Writes the damaged input of a case again, with what happened."""
        self.run_only_damage(kind, outcome.seed, folder)
        lines = [outcome.about, *outcome.violations, "", outcome.message, ""]
        (folder / "violation.txt").write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")

    def run_only_damage(self, kind: Kind, seed: int, folder: Path) -> None:
        """Writes the damaged input of a case into a folder, and does not read it."""
        remove(folder)
        folder.mkdir(parents=True)
        kind.prepare(self.inputs, folder, Formats(Random(f"{kind.name} {seed}"))).damage()

    def _judged(self, outcome: Outcome, case: Path) -> Iterator[str]:
        if outcome.memory > self._most_memory:
            yield f"took {outcome.memory >> 20} MB"
        if outcome.seconds > self._most_seconds:
            yield f"took {outcome.seconds:.0f} s"
        message = outcome.message.replace(str(case), "")
        if outcome.code == 2 and not message.strip():
            yield "exit code 2 without a message"
        if "is not installed: pip install" in message:  # no module that a file names is missing
            yield message
        if outcome.code == 2 and len(message) > LONGEST_MESSAGE:
            yield f"a message of {len(message)} characters"
        if outcome.code == 2 and re.search(r"[\0-\x08\x0b-\x1f\x7f]|\n.", message.strip()):
            yield f"a message with line breaks or control characters: {message!r:.200}"

    @contextlib.contextmanager
    def _surroundings(self, case: Path, output: io.TextIOWrapper) -> Iterator[None]:
        """The working directory, temporary folder, terminal and time limit of a case."""
        import tempfile
        from unittest import mock

        directory = Path.cwd()
        os.chdir(case)
        try:
            with (
                mock.patch.object(tempfile, "tempdir", str(case / "tmp")),
                mock.patch.object(sys, "dont_write_bytecode", True),
                mock.patch.object(sys, "path", [*sys.path, str(self.folder / "outside")]),
                mock.patch.dict(os.environ, {"HOME": str(case), "XDG_CACHE_HOME": str(case / "tmp")}),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(output),
                cheap(),
                _time_limit(self._most_seconds, case),
            ):
                yield
        finally:
            os.chdir(directory)


def _said(output: io.TextIOWrapper) -> str:
    """The errors that a command printed."""
    lines = output.buffer.getvalue().decode("utf-8", "replace").split("\n")  # type: ignore[attr-defined]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[0] if errors else ""


@contextlib.contextmanager
def _time_limit(seconds: float, case: Path) -> Iterator[None]:
    """Raises TooSlow in the block after some seconds of work; only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        for path in case.rglob("*"):
            if path.is_fifo():  # ends what waits for it in other threads
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        raise TooSlow(f"{seconds:.0f} s of work, or {_LONGEST_WAIT:.0f} s of waiting")

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, _LONGEST_WAIT),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _tree(folder: Path) -> dict[str, tuple[int, int, int] | None]:
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            found[path] = _stat(path)
    return found


def forget_peak() -> bool:
    """Makes `_peak` count from now on; returns whether Linux allows it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _peak() -> int:
    """The largest number of bytes of memory that the process had."""
    with open("/proc/self/status") as file:
        found = re.search(r"VmHWM:\s+(\d+) kB", file.read())
    return int(found[1]) << 10 if found else 0
