"""Child processes that end with their parent, however it ends."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

# Set in the environment of such a child, which removes it: its own children do not watch anything.
_VARIABLE = "TFSPARSECAP_ENDS_WITH_STDIN"


def start_child(
    command: Sequence[str], output: IO, environment: Mapping[str, str] = os.environ
) -> subprocess.Popen:
    """Starts a command that calls `end_with_parent`; it ends when this process does, even if that is killed.

    Its standard input is a pipe whose other end only this process holds: the operating system closes it.

    Args:
        command: the program and its arguments.
        output: file of its standard output and errors.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**environment, _VARIABLE: "1"},
    )


def end_with_parent() -> None:
    """Ends this process when the one that started it with `start_child` ends; does nothing in others."""
    if os.environ.pop(_VARIABLE, None) is not None:
        threading.Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    # Not an exception, which a long computation outside Python would delay.
    os.kill(os.getpid(), signal.SIGKILL)
