"""The processes of a training on several machines: they start together, exchange values, and notice a loss.

TensorFlow's coordination service checks that all workers are alive. If one is not, it aborts the collective
operations in which the others wait, after ten seconds at most; they end, and all are started again.
"""

import contextlib
import faulthandler
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.errors import InputError, WorkerLost

#: Seconds to wait until all workers have started.
JOIN = 300.0
_TRIES = 0.2
# How TensorFlow reports that another process of a collective operation is lost, and names it.
_BROKEN = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError),
    tf.errors.DeadlineExceededError,
)
_ABORTED = "Collective ops is aborted"
_TASK = re.compile(r"/job:worker/(?:replica:\d+/)?task:(\d+)")


def wait_for_workers(cluster: Cluster, seconds: float = JOIN) -> None:
    """Waits until all workers have started; TensorFlow would wait for an hour, deaf to Ctrl-C.

    Each listens on its port until it has reached all others, and TensorFlow's server listens there next.

    Args:
        cluster: the processes.
        seconds: how long to wait.

    Raises:
        InputError: the port of this process is in use, or another process does not answer in time.

    Examples:
        >>> wait_for_workers(Cluster(("10.0.0.1:2222", "10.0.0.2:2222"), 0), seconds=60)  # doctest: +SKIP
    """
    deadline, port = time.monotonic() + seconds, cluster.host_and_port(cluster.index)[1]
    dual: Any = {"family": socket.AF_INET6, "dualstack_ipv6": True} if socket.has_dualstack_ipv6() else {}
    try:
        server = socket.create_server(("", port), **dual)
    except OSError as error:
        raise InputError(
            f"{cluster.name()} cannot listen on port {port} ({error.strerror or error}): start each worker"
            " once, on a free port"
        ) from error
    with server:
        for index in range(len(cluster.workers)):
            while index != cluster.index:
                try:
                    socket.create_connection(cluster.host_and_port(index), timeout=10).close()
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise InputError(
                            f"{cluster.name(index)} did not answer within {seconds:g} s"
                            f" ({error.strerror or error}): start all workers together, and allow"
                            " connections to their ports"
                        ) from error
                    time.sleep(_TRIES)


def connected_strategy(cluster: Cluster) -> tf.distribute.Strategy:
    """The strategy of all workers, after they have started.

    Raises:
        InputError: see `wait_for_workers`.

    Examples:
        >>> connected_strategy(Cluster(("10.0.0.1:2222", "10.0.0.2:2222"), 0))  # doctest: +SKIP
    """
    wait_for_workers(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.index,
        num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
        rpc_layer="grpc",
    )
    terminate = signal.getsignal(signal.SIGTERM)
    # If a worker is lost right here, TensorFlow waits for an hour and stops Python.
    faulthandler.dump_traceback_later(JOIN, exit=True, file=2)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    finally:
        faulthandler.cancel_dump_traceback_later()
    if terminate is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, terminate)  # TensorFlow ignores it
    return strategy


def gather(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """The values of all devices, those of the first worker first. All workers must call it.

    Args:
        strategy: of the training.
        value: of this process; anything that JSON can represent.

    Examples:
        >>> gather(tf.distribute.get_strategy(), {"loss": 0.5})
        [{'loss': 0.5}]
    """
    if strategy.num_replicas_in_sync == 1:
        return [value]
    # Collective operations exchange numbers, of which each process may have another number.
    line = np.frombuffer(json.dumps(value).encode() + b"\n", np.uint8).astype(np.float32)
    lines = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(line))
    text = strategy.gather(lines, axis=0).numpy().astype(np.uint8).tobytes()
    return [json.loads(text) for text in text.splitlines()]


@contextlib.contextmanager
def lost_workers(cluster: Cluster | None) -> Iterator[None]:
    """In the block, errors with which TensorFlow reports a lost process become `WorkerLost`.

    Args:
        cluster: the processes; None for a single one, which loses none.

    Examples:
        >>> with lost_workers(Cluster(("a:1", "b:1"), 0)):  # doctest: +ELLIPSIS
        ...     raise tf.errors.UnavailableError(None, None, "/job:worker/task:1 is unhealthy")
        Traceback (most recent call last):
        tfsparsecap.errors.WorkerLost: worker 1 (b:1) has ended or does not answer: ...
    """
    try:
        yield
    except tf.errors.OpError as error:
        if cluster is None or not (isinstance(error, _BROKEN) or _ABORTED in str(error)):
            raise
        numbers = [int(number) for number in _TASK.findall(str(error)) if int(number) != cluster.index]
        name = cluster.name(numbers[0]) if numbers else "another worker"
        raise WorkerLost(
            f"{name} has ended or does not answer: start all workers again with --resume"
        ) from error
