"""Workers on loopback: they wait for each other, exchange values, notice a loss; whole trainings."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.trainer_processes import free_addresses
from tests.two_devices import two_devices
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.training.callbacks import SaveEpoch
from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.captioning.training.distribution import make_strategy
from tfsparsecap.captioning.training.workers import gather, lost_workers, wait_for_workers
from tfsparsecap.errors import InputError, WorkerLost

from .training_runs import arrays, assert_same_arrays, history, train

#: Seconds after which a test gives up; long, because other processes may need the processor.
PATIENCE = 600
CLUSTER = Cluster(("a:1", "b:1"), 0)


def test_workers_wait_for_each_other():
    addresses, joined = free_addresses(2), threading.Barrier(2)

    def join(index):
        cluster = Cluster(addresses, index)
        wait_for_workers(cluster, PATIENCE)
        with socket.create_server(cluster.host_and_port(index)):  # as TensorFlow does
            joined.wait(PATIENCE)

    worker = threading.Thread(target=join, args=(1,), daemon=True)
    worker.start()
    join(0)
    worker.join(PATIENCE)
    assert not worker.is_alive() and not joined.broken


def test_a_missing_worker_and_a_port_in_use_are_named():
    addresses = free_addresses(2)
    for index, name in enumerate(("worker 1", "the chief")):
        missing = addresses[1 - index]
        with pytest.raises(
            InputError, match=rf"{name} \({missing}\) did not answer within 0.1 s .*start all"
        ):
            wait_for_workers(Cluster(addresses, index), 0.1)
    with (
        socket.create_server(("", int(addresses[0].rpartition(":")[2]))),
        pytest.raises(
            InputError, match=rf"the chief \({addresses[0]}\) cannot listen on port .*each worker once"
        ),
    ):
        wait_for_workers(Cluster(addresses, 0), 0.1)


def test_all_devices_get_the_values_of_all():
    assert gather(make_strategy("default"), {"loss": 0.1}) == [{"loss": 0.1}]
    strategy = two_devices()
    value = {"loss": 0.1, "text": "größer\n" * 100}
    assert gather(strategy, value) == [value, value]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (tf.errors.UnavailableError(None, None, "/job:worker/task:1 is unhealthy"), r"worker 1 \(b:1\) has"),
        (
            tf.errors.UnavailableError(None, None, "/job:worker/replica:0/task:0 ends"),
            "another worker has ended",
        ),
        (
            tf.errors.InternalError(None, None, "Collective ops is aborted by: x"),
            "start all workers again with",
        ),
    ],
)
def test_errors_of_the_exchange_become_a_lost_worker(error, sentence):
    with pytest.raises(WorkerLost, match=sentence), lost_workers(CLUSTER):
        raise error


@pytest.mark.parametrize(
    ("cluster", "kind"), [(CLUSTER, tf.errors.InvalidArgumentError), (None, tf.errors.UnavailableError)]
)
def test_other_errors_stay(cluster, kind):
    with pytest.raises(kind), lost_workers(cluster):
        raise kind(None, None, "wrong")


# Whole trainings.

#: A larger epsilon, because Adam's first steps would otherwise amplify rounding errors of tiny gradients.
SETTINGS = [
    "name=workers",
    "training.epochs=3",
    "training.batch_size=50",
    "training.adam_epsilon=1e-3",
    "training.validation_images=0",
    "data.max_length=3",
    "data.test=0",
]


@pytest.fixture(scope="module")
def settings(tiny_settings, shared_folder):
    return [*tiny_settings, *SETTINGS, f"data.folder={shared_folder / 'scenes_of_workers'}"]


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """Folder of the run of a single process."""
    return train(tmp_path_factory.mktemp("alone"), settings)[0]


def start(runs, settings, *arguments, fatal=(-1, -1), more=((), ())):
    """Starts two worker processes, with more settings each; returns exit codes and what they printed."""
    addresses, processes = free_addresses(2), []
    for index in range(2):
        command = [sys.executable, str(Path(__file__).with_name("worker_process.py")), str(fatal[index])]
        command += [*settings, *more[index], "--runs", str(runs), "--quiet", *arguments]
        command += ["--workers", ",".join(addresses), "--worker", str(index)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        processes.append(subprocess.Popen(command, env=environment, **pipes))
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], printed


def assert_close(found, expected):
    """The weights and the state of the optimizer are the same up to rounding."""
    found, expected = arrays(found), arrays(expected)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.slow
def test_two_workers_equal_one_process_and_survive_a_kill(settings, alone, tmp_path):
    folder = RunFolder(tmp_path / "workers")
    codes, printed = start(tmp_path, settings, fatal=(-1, 2))
    assert codes == [3, -15], printed
    (sentence,) = [line for line in printed[0].splitlines() if line.startswith("error: ")]
    assert "error: worker 1 (127.0.0.1:" in sentence and "start all workers again with --resume" in sentence
    undisturbed = shutil.copy(folder.checkpoint(2), tmp_path)
    folder.checkpoint(2).unlink()
    codes, printed = start(tmp_path, settings, "--resume")
    assert codes == [0, 0], printed
    assert_same_arrays(arrays(folder.checkpoint(2)), arrays(undisturbed))
    assert_close(folder.checkpoint(3), alone.checkpoint(3))
    assert history(folder)[2]["loss"][:5] == history(alone)[2]["loss"][:5]
    assert folder.model.is_file()


class Stopped(Exception):
    """Simulates a power failure."""


@pytest.mark.slow
def test_two_devices_equal_one_and_resume(settings, alone, tmp_path, monkeypatch):
    two_devices()
    settings = [*settings, "training.distribution=mirrored"]
    save = SaveEpoch.on_epoch_end

    def save_and_stop(self, epoch, logs=None):
        save(self, epoch, logs)
        if epoch == 1:
            raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(SaveEpoch, "on_epoch_end", save_and_stop)
        train(tmp_path, settings)
    folder = RunFolder(tmp_path / "workers")
    undisturbed = shutil.copy(folder.checkpoint(2), tmp_path)
    folder.checkpoint(2).unlink()
    train(tmp_path, settings, resume=True)
    assert_same_arrays(arrays(folder.checkpoint(2)), arrays(undisturbed))
    assert_close(folder.checkpoint(3), alone.checkpoint(3))
