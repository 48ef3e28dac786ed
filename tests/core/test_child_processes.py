"""Child processes end with their parent."""

import os
import signal
import subprocess
import sys

import pytest

from tfsparsecap.core.child_processes import end_with_parent, start_child

#: A command that says when it runs, and whether it outlives its parent. The package leaves out TensorFlow for
#: this name.
CHILD = """
import os, sys, time
sys.argv = ["tfsparsecap-export"]
from tfsparsecap.command import run
def main():
    os.write(1, b"" if "TFSPARSECAP_ENDS_WITH_STDIN" in os.environ else b"started ")
    time.sleep(SECONDS)
    os.write(1, b"survived")
run(main)
"""


def command(seconds):
    return [sys.executable, "-c", CHILD.replace("SECONDS", str(seconds))]


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_ends_with_a_parent_that_is_killed():
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            with open(writing, "wb") as output:
                start_child(command(60), output)
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as output:
        assert output.read(8) == b"started "
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert output.read() == b""  # until it has ended


def test_other_processes_do_not_watch_their_standard_input(monkeypatch):
    monkeypatch.delenv("TFSPARSECAP_ENDS_WITH_STDIN", raising=False)
    end_with_parent()
    done = subprocess.run(command(0.1), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    assert done.stdout == b"started survived"
