"""One device or several, on one machine or several: their strategy, what they exchange, and losses.

TensorFlow's coordination service checks that all workers are alive. If one is not, it aborts the collective
operations in which the others wait, after ten seconds at most; they end, and all are started again.
"""

import contextlib
import faulthandler
import functools
import hashlib
import importlib.metadata
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.runs.checkpoints import weights_digest
from tfsparsecap.captioning.runs.run_folder import MAY_CHANGE
from tfsparsecap.captioning.settings.config_files import setting_values
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.captioning.training.phases import Phase
from tfsparsecap.core.keras_internals import nested_layers
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


#: Settings that may differ among the workers: locations.
_OWN = (
    *MAY_CHANGE,
    "training.start_from",
    "training.teacher",
    "model.encoder.weights",
    "model.encoder.slimmed",
)
_PROBLEMS = {
    "version": "has another version of tfsparsecap, TensorFlow, Keras or NumPy than the chief: install it",
    "workers": "has another list of workers than the chief: give all the same list in the same order",
    "resume": "was started with --resume and the chief was not, or the reverse: start all in the same way",
    "data": "has other data than the chief: give all workers copies of the same images and captions",
    "checkpoint": "does not see the newest checkpoint of the chief: give all workers the same shared --runs",
}


def make_strategy(name: str, cluster: Cluster | None = None) -> tf.distribute.Strategy:
    """The distribution strategy of a training.

    Variables must be created inside its `scope()`. `multi_worker` waits until all workers have started, and
    must be created before TensorFlow computes anything in this process. The same arguments return the same
    strategy again: two strategies would number their exchanges alike, which TensorFlow confuses.

    Args:
        name: `default` (one device), `mirrored` (all devices of this machine: its GPUs, otherwise its logical
            CPU devices), or `multi_worker` (all GPUs, or the CPU, of each process in `cluster`).
        cluster: the processes of `multi_worker`.

    Raises:
        InputError: another worker has not started within five minutes, or the port of this one is in use.

    Examples:
        >>> make_strategy("default").num_replicas_in_sync
        1
    """
    return tf.distribute.get_strategy() if name == "default" else _strategy(name, cluster)


@functools.cache
def _strategy(name: str, cluster: Cluster | None) -> tf.distribute.Strategy:
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    else:
        assert cluster is not None
        strategy = connected_strategy(cluster)
    # All batches are full. Otherwise the workers would agree before each step whether one has no batch left.
    strategy.extended.experimental_enable_get_next_as_optional = False
    return strategy


def check_cluster(config: Config, cluster: Cluster | None) -> None:
    """Raises InputError unless there is a cluster exactly if the settings need one."""
    several = config.training.distribution == "multi_worker"
    if several and cluster is None:
        raise InputError(
            "training.distribution=multi_worker needs the addresses of the workers: give --workers"
            " HOST:PORT,HOST:PORT and --worker N, or set TF_CONFIG"
        )
    if cluster is not None and not several:
        raise InputError(
            f"training.distribution is {config.training.distribution}, but workers are given: set"
            " training.distribution=multi_worker, or leave out --workers and TF_CONFIG"
        )


def check_same_training(
    strategy: tf.distribute.Strategy,
    cluster: Cluster | None,
    config: Config,
    data: CaptionData,
    resume: bool,
    checkpoint: Path | None,
) -> None:
    """Checks that all workers do the same training. All must call it.

    Args:
        strategy, cluster: of the training; nothing is checked without a cluster.
        config, data, resume, checkpoint: must be the same in all processes, except for locations of files.

    Raises:
        InputError: in all workers, with the same sentence: one differs from the chief.
    """
    if cluster is None:
        return
    versions = [importlib.metadata.version("tfsparsecap"), tf.__version__, keras.__version__, np.__version__]
    facts: dict[str, str] = {"version": _digest(versions), "workers": _digest(cluster.workers)}
    facts["resume"] = str(resume)
    settings = {key: value for key, value in setting_values(config).items() if key not in _OWN}
    facts |= {key: _digest(value) for key, value in settings.items()}
    facts["data"] = data.digest()
    facts["checkpoint"] = "none" if checkpoint is None else _file_digest(checkpoint)
    gathered = gather(strategy, facts)
    chief, devices = gathered[0], len(gathered) // len(cluster.workers)
    for index, theirs in enumerate(gathered[::devices]):
        for fact in (*chief, *theirs):
            if chief.get(fact) != theirs.get(fact):
                setting = f"has another {fact} than the chief: start all workers with the same settings"
                raise InputError(f"{cluster.name(index)} {_PROBLEMS.get(fact, setting)}")


def check_same_weights(strategy: tf.distribute.Strategy, variables: Iterable[keras.Variable]) -> None:
    """Checks that all workers start with the same values. All must call it.

    Raises:
        InputError: in all workers: they differ.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    if len(set(gather(strategy, weights_digest(variables)))) > 1:
        raise InputError(
            "the workers would start with different weights: give all of them the same files as"
            " training.start_from and model.encoder.weights"
        )


def leave_together(strategy: tf.distribute.Strategy, cluster: Cluster | None) -> None:
    """Called after the last step: all wait until the chief has evaluated, so that all end in the same way.

    The chief does not mind if another worker is lost before.
    """
    if cluster is not None:
        with contextlib.suppress(*((tf.errors.OpError,) if cluster.is_chief else ())):
            gather(strategy, None)


def check_shares(phases: Iterable[Phase], replicas: int) -> None:
    """Raises InputError if the devices cannot share a batch equally."""
    for phase in phases:
        if phase.batch_size % replicas:
            section = "" if phase.kind == "train" else f"{phase.kind}."
            raise InputError(
                f"training.{section}batch_size is {phase.batch_size}, which {replicas} devices cannot share"
                f" equally: set a multiple of {replicas}"
            )


def synchronize_batch_normalization(model: keras.Model) -> None:
    """Lets all batch normalisation of a model use the statistics of the whole batch, over all devices.

    Otherwise each device normalises with its part of the batch, and their moving averages differ.
    """
    for layer in nested_layers(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _digest(value: Any) -> str:
    """A digest, so that no setting leaves the machine."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
