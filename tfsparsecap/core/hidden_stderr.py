"""Hides what libraries print to standard error from C++, which no log level of Python reaches."""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

# File descriptor 2 belongs to all threads: a second block begins where the first one ends.
_LOCK = threading.RLock()


@contextmanager
def hidden_stderr() -> Iterator[IO[bytes]]:
    """Redirects file descriptor 2 in the block to a temporary file, which it yields.

    Examples:
        >>> with hidden_stderr() as messages:
        ...     _ = os.write(2, b"no news")
        ...     _ = messages.seek(0)
        ...     messages.read()
        b'no news'
    """
    with _LOCK, tempfile.TemporaryFile() as messages:
        if sys.stderr is not None:
            sys.stderr.flush()
        try:
            stderr = os.dup(2)
        except OSError:  # it is closed
            yield messages
            return
        os.dup2(messages.fileno(), 2)
        try:
            yield messages
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
