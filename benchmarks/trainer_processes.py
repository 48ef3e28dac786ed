"""Processes that train one run after another: alone, or as the workers of one training.

Starting TensorFlow takes seconds, so that a process is used for many runs.
"""

import contextlib
import hashlib
import multiprocessing
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tfsparsecap.command import start_tensorflow
from tfsparsecap.errors import InputError, WorkerLost

#: Seconds after which a training that does not end is given up.
PATIENCE = 900.0
# `tcpi_bytes_acked` in Linux's `struct tcp_info`: bytes of the data that the other end has received.
_BYTES_ACKED = 120


@dataclass(frozen=True)
class Measured:
    """A run that has ended.

    Attributes:
        step: seconds per step of the last epoch, without the time spent waiting for data.
        sent: bytes per step of the last epoch that this process sent over TCP; None if unknown.
        trained: number of trained weights and gates.
        digest: of all variables of the captioner and its optimizer.
    """

    step: float
    sent: float | None
    trained: int
    digest: str


class Trainers:
    """One process, or two that train together on loopback. A context manager, which ends them.

    Args:
        count: number of processes.

    Examples:
        >>> with Trainers(2) as pair:  # doctest: +SKIP
        ...     pair.train(["name=dense", "pruning=null"], Path("runs"))
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._processes: list[Any] = []
        self._connections: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def train(self, settings: Sequence[str], runs: Path) -> list[Measured] | str:
        """Trains a run in all processes.

        Args:
            settings: `key=value` settings; several processes add `training.distribution=multi_worker`.
            runs: folder of all runs.

        Returns:
            What each process measured; or why the training failed.
        """
        if not self._processes:
            self._start()
        for connection in self._connections:
            connection.send((list(settings), str(runs)))
        answers = [self._answer(connection) for connection in self._connections]
        failed = [answer for answer in answers if isinstance(answer, str)]
        if failed:
            self._end()  # the others may wait for the one that failed
            return failed[0]
        return answers

    def _answer(self, connection: Any) -> Measured | str:
        try:
            return connection.recv() if connection.poll(PATIENCE) else f"no end within {PATIENCE:g} s"
        except EOFError:
            return "a process ended with a traceback"

    def _start(self) -> None:
        workers = free_addresses(self.count) if self.count > 1 else None
        spawn = multiprocessing.get_context("spawn")
        for index in range(self.count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, workers, index), daemon=True)
            process.start()
            theirs.close()  # so that the end of the process ends the connection
            self._processes.append(process)
            self._connections.append(ours)

    def _end(self) -> None:
        for process, connection in zip(self._processes, self._connections, strict=True):
            connection.close()
            process.kill()
            process.join()
        self._processes, self._connections = [], []


def free_addresses(count: int) -> tuple[str, ...]:
    """Loopback addresses whose ports are free."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets)


def sent_bytes() -> int | None:
    """Bytes that this process has sent over all its open TCP connections; None where Linux's counters are
    missing."""
    total = 0
    try:
        for connection in _own_sockets():
            total += struct.unpack_from(
                "=Q", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _BYTES_ACKED
            )[0]
    except (OSError, AttributeError, struct.error):
        return None
    return total


def _own_sockets() -> Iterator[socket.socket]:
    """The TCP sockets among the open files of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError, ConnectionError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if (
                    connection.family in (socket.AF_INET, socket.AF_INET6)
                    and connection.type == socket.SOCK_STREAM
                ):
                    yield connection


def _serve(connection: Any, workers: tuple[str, ...] | None, index: int) -> None:
    """Body of a process: trains what it receives until it is killed."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    start_tensorflow()
    import tensorflow as tf

    from tfsparsecap.captioning.settings.config_files import load_config
    from tfsparsecap.captioning.training.cluster import Cluster
    from tfsparsecap.captioning.training.loop import Loop
    from tfsparsecap.captioning.training.train_run import train_run

    cluster, several = None, []
    if workers is not None:
        cluster, several = Cluster(workers, index), ["training.distribution=multi_worker"]
    else:
        (device,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    measured: list[Measured] = []
    Loop._epoch = _measured(Loop._epoch, measured)
    while True:
        try:
            settings, runs = connection.recv()
        except EOFError:
            return
        try:
            config = load_config(None, [*settings, *several])
            train_run(config, runs=runs, verbose=0, report=lambda message: None, cluster=cluster)
            connection.send(measured[-1])
        except (InputError, WorkerLost) as error:
            connection.send(str(error))


def _measured(epoch_of: Callable, measured: list[Measured]) -> Callable:
    """The loop's `_epoch`, which also measures."""

    def epoch(loop: Any, dataset: Any, callbacks: Any, number: int) -> dict:
        before = sent_bytes()
        logs = epoch_of(loop, dataset, callbacks, number)
        after, steps = sent_bytes(), callbacks.params["steps"]
        digest = hashlib.sha256()
        for variable in [*loop.model.variables, *loop.optimizer.variables]:
            digest.update(variable.numpy().tobytes())
        measured.append(
            Measured(
                step=logs["seconds"] * (1 - logs["data_wait"]) / steps,
                sent=None if before is None or after is None else (after - before) / steps,
                trained=sum(
                    int(variable.value.shape.num_elements()) for variable in loop.model.trainable_variables
                ),
                digest=digest.hexdigest(),
            )
        )
        return logs

    return epoch
