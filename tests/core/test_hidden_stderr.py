"""What C++ code prints to standard error is hidden, and nothing after it."""

import os
import threading

from tfsparsecap.core.hidden_stderr import hidden_stderr


def test_only_messages_of_the_block_are_hidden(capfd):
    os.write(2, b"before ")
    with hidden_stderr() as messages:
        os.write(2, b"inside ")
        with hidden_stderr():
            os.system("echo of a child >&2")
        os.write(2, b"again")
        messages.seek(0)
        assert messages.read() == b"inside again"
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_blocks_of_several_threads_restore_standard_error(capfd):
    def hide():
        for _ in range(50):
            with hidden_stderr():
                os.write(2, b"inside")

    threads = [threading.Thread(target=hide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_a_closed_standard_error_stays_closed(monkeypatch):
    def closed(descriptor):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    with hidden_stderr() as messages:
        assert messages.read() == b""
