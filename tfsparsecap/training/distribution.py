"""One device or several, on one machine or several: the strategy of `training.distribution`."""

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.data.records import CaptionData
from tfsparsecap.errors import InputError
from tfsparsecap.keras_internals import nested_layers
from tfsparsecap.runs.run_folder import MAY_CHANGE
from tfsparsecap.settings.files import setting_values
from tfsparsecap.settings.schema import Config
from tfsparsecap.training.cluster import Cluster
from tfsparsecap.training.phases import Phase
from tfsparsecap.training.workers import Alone, Team

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
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(cluster.workers)}),
            task_type="worker",
            task_id=cluster.index,
            num_accelerators={"GPU": len(tf.config.list_physical_devices("GPU"))},
            rpc_layer="grpc",
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
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


def make_team(
    cluster: Cluster | None,
    config: Config,
    data: CaptionData,
    *,
    resume: bool,
    checkpoint: Path | None,
    report: Callable[[str], None],
) -> Alone:
    """The processes of a training; with a cluster it waits until all have joined, see `Team`.

    Args:
        cluster: the processes; None for a single one.
        config, data, resume, checkpoint: must be the same in all processes, except for locations of files.
        report: called with messages about the progress.

    Raises:
        InputError: a process is missing, or the chief rejects this one.
    """
    if cluster is None:
        return Alone()
    versions = [importlib.metadata.version("tfsparsecap"), tf.__version__, keras.__version__, np.__version__]
    facts: dict[str, str] = {"version": _digest(versions), "workers": _digest(cluster.workers)}
    facts["resume"] = str(resume)
    settings = {key: value for key, value in setting_values(config).items() if key not in _OWN}
    facts |= {key: _digest(value) for key, value in settings.items()}
    facts["data"] = data.digest()
    facts["checkpoint"] = "none" if checkpoint is None else _file_digest(checkpoint)

    def problem(fact: str) -> str:
        other = f"has another {fact} than the chief: start all workers with the same settings"
        return _PROBLEMS.get(fact, other)

    return Team(cluster, facts, problem, report)


def check_shares(found: Iterable[Phase], replicas: int) -> None:
    """Raises InputError if the devices cannot share a batch equally."""
    for phase in found:
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


def check_same_weights(team: Alone, variables: Iterable[keras.Variable]) -> None:
    """Checks that all workers start with the same values.

    Raises:
        InputError: this worker has others than the chief.
    """
    if team.size == 1:
        return
    own = hashlib.sha256()
    for variable in variables:
        own.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
    if team.share(own.hexdigest()) != own.hexdigest():
        raise InputError(
            "the weights at the start differ from the chief's: give all workers the same files as"
            " training.start_from and model.encoder.weights"
        )


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _digest(value: Any) -> str:
    """A digest, so that no setting leaves the machine."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
