"""Messages between the processes of a training: JSON, one line each, of limited size."""

import contextlib
import json
import socket
import threading
from typing import Any

from tfsparsecap.text import one_line

#: Largest message in bytes, and characters of a text in one that is shown to the user.
LARGEST, LONGEST_TEXT = 1 << 20, 500


class BadMessage(ValueError):
    """What arrived is not a message of this protocol."""


class Connection:
    """Sends and receives dictionaries. Nothing that arrives is executed, and its size is limited.

    Args:
        connected: a connected stream socket.

    Examples:
        >>> ours, theirs = map(Connection, socket.socketpair())
        >>> ours.send({"worker": 1})
        >>> theirs.receive(seconds=5)
        {'worker': 1}
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._received = bytearray()
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message. Any thread may call it.

        Raises:
            OSError: the connection is closed.
            BadMessage: the message is too long.
        """
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LARGEST:
            raise BadMessage(f"a message of {len(line)} bytes")
        with self._sending:
            self._socket.sendall(line)

    def receive(self, seconds: float | None) -> dict[str, Any] | None:
        """The next message; None if the other end has closed the connection. Only one thread may call it.

        Args:
            seconds: longest time to wait for more data; None waits forever.

        Raises:
            OSError: the connection is broken, or nothing arrived in time (TimeoutError).
            BadMessage: what arrived is too long or not a JSON object.
        """
        # `sendall` of another thread has the same time limit, which is long enough for it.
        self._socket.settimeout(seconds)
        while b"\n" not in self._received:
            if len(self._received) >= LARGEST:
                raise BadMessage(f"more than {LARGEST} bytes without an end of line")
            more = self._socket.recv(1 << 16)
            if not more:
                return None
            self._received += more
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received[:] = rest
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadMessage("not JSON") from error
        if not isinstance(message, dict):
            raise BadMessage("not a JSON object")
        return message

    def close(self) -> None:
        """Closes the connection; the other end receives None."""
        with contextlib.suppress(OSError):  # the other end has closed it before
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def text_of(value: Any) -> str:
    """A text from another process, as one short line for messages.

    Examples:
        >>> text_of("no space\\nleft"), text_of(None)
        ('no space left', '')
    """
    return one_line(value[:LONGEST_TEXT]) if isinstance(value, str) else ""
