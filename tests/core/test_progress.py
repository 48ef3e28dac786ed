"""Bars of long computations: shown on terminals only."""

import os
import pty
import select
import sys

from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap.core.progress import progress_bar, shown_progress, silent, with_count


def computed() -> list[int]:
    with progress_bar() as progress, hidden_stderr():
        return list(with_count(progress, "counting [sheep]", [1, 2, 3]))


def test_a_bar_is_shown_on_a_terminal_while_messages_are_hidden(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    stderr_copy = os.dup(2)
    os.dup2(theirs, 2)
    try:
        assert computed() == [1, 2, 3]
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
    text = b""
    while select.select([ours], [], [], 0)[0]:
        text += os.read(ours, 1 << 16)
    assert b"counting [sheep]" in text
    os.close(ours)
    os.close(theirs)


def test_elsewhere_nothing_is_shown(capfd):
    assert computed() == [1, 2, 3]
    assert capfd.readouterr().err == "" and sys.stderr is not None


def test_a_given_progress_takes_the_place_of_the_bar():
    seen = []
    with shown_progress(lambda *step: seen.append(step)) as progress:
        list(with_count(progress, "two", "ab"))
    assert seen == [("two", 0.0), ("two", 0.5)]
    with shown_progress(silent) as progress:
        assert progress is silent
