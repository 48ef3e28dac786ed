"""The processes of a training on several machines: they join, share decisions, and notice who is lost.

TensorFlow exchanges gradients. Everything else goes through a connection of each worker to the chief: a
handshake before TensorFlow starts, in which the chief compares versions, settings, data and checkpoint; the
chief's scores after each epoch, so that all take the same decisions; and signs of life.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import tensorflow as tf

from tfsparsecap.errors import InputError, WorkerLost
from tfsparsecap.training.cluster import Cluster
from tfsparsecap.training.connection import LONGEST_TEXT, BadMessage, Connection, text_of

#: Seconds to wait: for all workers to join; for a greeting; between signs of life; for a sign of life; and
#: for the main thread to end, which may wait inside TensorFlow for a lost worker.
JOIN, GREETING, SIGN, SILENCE, END = 300.0, 10.0, 2.0, 40.0, 10.0
#: Exit code of a command whose training has lost a worker.
LOST = 3
# Errors of TensorFlow if another process of the exchange is lost.
_BROKEN = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    *(tf.errors.InternalError, tf.errors.DeadlineExceededError, tf.errors.FailedPreconditionError),
)
_GREETINGS = 64
_AGAIN = "start all workers again with --resume"


class Alone:
    """The only process of a training; its interface is that of `Team`."""

    is_chief, size = True, 1
    cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass

    def share(self, value: Any) -> Any:
        """Returns the chief's value."""
        return value

    def end_training(self) -> None:
        """Called after the last step: the chief evaluates, and all others wait until it has finished."""


class Team(Alone):
    """The processes of a training that exchange gradients. A context manager around all of the training.

    In the block, the errors with which TensorFlow reports a lost process become `WorkerLost`. If the main
    thread does not notice the loss within ten seconds, because it waits inside TensorFlow, the process is
    ended with exit code 3.

    Args:
        cluster: the processes.
        facts: what must be the same in all of them: name -> text.
        problem: name of a fact that differs -> what is wrong and what to do, after the name of the worker.
        report: called with messages about the progress.
        seconds: how long to wait until all have joined.
        end: ends the process with an exit code.

    Raises:
        InputError: not all processes have joined in time, or the chief rejects this one.
    """

    def __init__(
        self,
        cluster: Cluster,
        facts: Mapping[str, str],
        problem: Callable[[str], str],
        report: Callable[[str], None] = print,
        *,
        seconds: float = JOIN,
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        self.cluster: Cluster = cluster
        self.facts, self.problem, self.report, self.end = facts, problem, report, end
        self.is_chief, self.size = cluster.is_chief, len(cluster.workers)
        self._others: dict[int, Connection] = {}
        self._changed = threading.Condition()
        self._started = self._finished = self._closed = False
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lost, self._left = "", threading.Event()
        self._noticed = threading.Event()
        self._server: socket.socket | None = None
        deadline = time.monotonic() + seconds
        try:
            if self.is_chief:
                self._gather(deadline, seconds)
            else:
                self._join(deadline, seconds)
        except BaseException:
            self._close()
            raise
        threading.Thread(target=self._send_heartbeats, daemon=True).start()
        for index, connection in self._others.items():
            threading.Thread(target=self._listen, args=(index, connection), daemon=True).start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tells the others how this process ended."""
        if isinstance(error, _BROKEN):
            # The operating system or missing signs of life tell which process is lost.
            self._noticed.wait(SILENCE + SIGN)
        self._left.set()
        lost = self._lost
        if error is None:
            self._send_all({"done": True})
        elif not lost:
            reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__} {error}"
            self._send_all({"failed": reason[:LONGEST_TEXT]})
        self._close()
        if lost and not isinstance(error, WorkerLost | KeyboardInterrupt | None):
            raise WorkerLost(lost) from error

    def share(self, value: Any) -> Any:
        if self.is_chief:
            self._send_all({"share": value})
            return value
        return self._next("share")

    def end_training(self) -> None:
        self._finished = True
        if not self.is_chief:
            self._next("done")

    def _next(self, kind: str) -> Any:
        message = self._inbox.get()
        if self._lost:
            raise WorkerLost(self._lost)
        if kind not in message:
            raise WorkerLost(f"the chief sent {', '.join(message)[:50]} instead of {kind}: {_AGAIN}")
        return message[kind]

    # The handshake.

    def _gather(self, deadline: float, seconds: float) -> None:
        """Waits until all others have joined the chief."""
        self._server = _listening(self.cluster)
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()
        self.report(f"waiting for {self.size - 1} other worker{'s' * (self.size > 2)}")
        with self._changed:
            while len(self._others) < self.size - 1:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    missing = [i for i in range(1, self.size) if i not in self._others]
                    names = ", ".join(map(self.cluster.name, missing))
                    raise InputError(f"{names} did not join within {seconds:g} s: start all workers together")
            self._started = True
        self._send_all({"start": True})

    def _accept(self, server: socket.socket) -> None:
        greetings = threading.BoundedSemaphore(_GREETINGS)
        while True:
            try:
                connected, _ = server.accept()
            except OSError:
                return  # closed
            if greetings.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(connected, greetings), daemon=True).start()
            else:
                connected.close()

    def _greet(self, connected: socket.socket, greetings: threading.BoundedSemaphore) -> None:
        """Lets a process join or rejects it; also late ones."""
        connection = Connection(connected)
        try:
            greeting = connection.receive(GREETING)
            with self._changed:
                index, answer = self._check_greeting(greeting or {})
                if answer:
                    connection.send({"rejected": answer})
                    connection.close()
                    return
                before, self._others[index] = self._others.get(index), connection
                connection.send({"welcome": True})
                self._changed.notify_all()
            if before is not None:  # killed and started again, or started twice
                name = self.cluster.name(index)
                with contextlib.suppress(OSError):  # killed
                    before.send({"rejected": f"{name} was started a second time: start each worker once"})
                before.close()
        except (OSError, BadMessage):
            connection.close()
        finally:
            greetings.release()

    def _check_greeting(self, greeting: dict[str, Any]) -> tuple[int, str]:
        """The worker that greets, and why it is rejected; empty if it is welcome."""
        index, facts = greeting.get("worker"), greeting.get("facts")
        if type(index) is not int or not 0 < index < self.size or not isinstance(facts, dict):
            return 0, "the chief does not understand this worker: start the same version everywhere"
        name = self.cluster.name(index)
        different = [key for key in (*self.facts, *facts) if self.facts.get(key) != facts.get(key)]
        if different and different[0] in self.facts:
            reason = self.problem(different[0])
        elif different:
            reason = "has other settings than the chief: start all workers with the same version"
        elif self._started:
            reason = "is late: the training is running without it; stop all workers and start them again"
        else:
            return index, ""
        self.report(f"{name} was rejected: it {reason}")
        return index, f"{name} {reason}"

    def _join(self, deadline: float, seconds: float) -> None:
        """Joins the chief."""
        address, chief = self.cluster.control_address(), self.cluster.name(0)
        self.report(f"{self.cluster.name()} joins {chief}")
        while True:
            try:
                connected = socket.create_connection(address, timeout=GREETING)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise InputError(
                        f"{chief} does not answer on port {address[1]} ({error}): start all workers together,"
                        " and allow connections to that port"
                    ) from error
                time.sleep(0.2)
        connection = self._others[0] = Connection(connected)
        try:
            connection.send({"worker": self.cluster.index, "facts": dict(self.facts)})
            message = connection.receive(GREETING + SILENCE)
            if message is not None and "welcome" in message:
                message = connection.receive(max(1.0, deadline - time.monotonic()) + SILENCE)
        except (OSError, BadMessage) as error:
            raise InputError(
                f"{chief} stopped before the training began ({error}): start it again"
            ) from error
        if message is None or "start" not in message:
            reason = text_of((message or {}).get("rejected")) or text_of((message or {}).get("failed"))
            raise InputError(reason or f"{chief} stopped before the training began: start it again")

    # The training.

    def _send_heartbeats(self) -> None:
        while not self._closed:
            self._send_all({"alive": True})
            time.sleep(SIGN)

    def _listen(self, index: int, connection: Connection) -> None:
        name = self.cluster.name(index)
        while not self._closed:
            try:
                message = connection.receive(SILENCE)
            except ConnectionError:  # it was killed before it had read all messages
                message = None
            except (OSError, BadMessage):
                self._lose(f"{name} does not answer any more: {_AGAIN}")
                return
            if message is None:
                self._lose(f"{name} has ended: {_AGAIN}")
                return
            if "failed" in message:
                self._lose(f"{name} has stopped: {text_of(message['failed'])}")
                return
            if "lost" in message:
                self._lose(text_of(message["lost"]))
                return
            if "share" in message or "done" in message:
                self._inbox.put(message)
            if "done" in message:
                return

    def _lose(self, sentence: str) -> None:
        """Ends the training: first by waking the main thread and, if that fails, by ending the process."""
        with self._changed:
            if self._lost or self._closed or (self._finished and self.is_chief):
                return
            self._lost = sentence
        self._send_all({"lost": sentence})
        self._noticed.set()
        self._inbox.put({})
        if not self._left.wait(END):
            print(f"error: {sentence}", file=sys.stderr, flush=True)
            self.end(LOST)

    def _send_all(self, message: dict[str, Any]) -> None:
        for connection in list(self._others.values()):
            # `_listen` notices a broken connection.
            with contextlib.suppress(OSError):
                connection.send(message)

    def _close(self) -> None:
        self._closed = True
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            self._server.close()
        for connection in list(self._others.values()):
            connection.close()


def _listening(cluster: Cluster) -> socket.socket:
    """A server on the chief's control address."""
    host, port = cluster.control_address()
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise InputError(
            f"the chief cannot listen on {host}:{port} ({error.strerror or error}): give the chief an address"
            " of this machine, and a port whose next one is free"
        ) from error
