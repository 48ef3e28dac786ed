"""The strategy of a training, what the workers must have in common, and batch normalisation over devices."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.trainer_processes import free_addresses
from tests.two_devices import two_devices
from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training import distribution
from tfsparsecap.captioning.training.callbacks import SaveEpoch
from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.captioning.training.distribution import gather, lost_workers, make_strategy, wait_for_workers
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.phases import phases
from tfsparsecap.errors import InputError, WorkerLost

from .training_runs import arrays, assert_same_arrays, history, train

CLUSTER = Cluster(("a:1", "b:1"), 0)
DATA = CaptionData("two", [Record("a.jpg", Path("absent.jpg"), ("a dog",), "train")])


class Pair:
    """A strategy of two devices."""

    num_replicas_in_sync = 2


def check(settings=(), data=DATA, resume=False, checkpoint=None):
    config = load_config(None, ["training.distribution=multi_worker", *settings])
    distribution.check_same_training(Pair(), CLUSTER, config, data, resume, checkpoint)


def test_workers_that_differ_are_named_with_a_remedy(monkeypatch, tmp_path):
    values = []
    checkpoints = [tmp_path / "1" / "epoch-0001.npz", tmp_path / "2" / "epoch-0001.npz"]
    for number, path in enumerate(checkpoints):
        path.parent.mkdir()
        path.write_bytes(bytes([number]))
    cat = CaptionData("two", [replace(DATA.records[0], captions=("a cat",))])
    monkeypatch.setattr(distribution, "gather", lambda strategy, value: values.append(value) or [value] * 2)
    check(resume=True, checkpoint=checkpoints[0])
    chief = values.pop()
    assert all(len(value) <= 100 for value in chief.values())  # digests
    monkeypatch.setattr(distribution, "gather", lambda strategy, value: [chief, value])
    start = {"resume": True, "checkpoint": checkpoints[0]}
    check([f"data.folder={tmp_path}", "training.start_from=elsewhere"], **start)  # locations may differ
    for arguments, sentence in (
        (
            {**start, "settings": ["training.learning_rate=0.7"]},
            "has another training.learning_rate than the",
        ),
        ({**start, "data": cat}, "has other data than the chief: give all workers copies"),
        ({}, "was started with --resume and the chief was not, or the reverse"),
        ({**start, "checkpoint": checkpoints[1]}, "does not see the newest checkpoint of the chief"),
    ):
        with pytest.raises(InputError, match=rf"worker 1 \(b:1\) {sentence}"):
            check(**arguments)
    chief["more"] = "0"
    with pytest.raises(InputError, match="has another more than the chief: start all workers with the same"):
        check(**start)


def test_workers_and_setting_belong_together():
    config = load_config(None, [])
    distribution.check_cluster(config, None)
    with pytest.raises(InputError, match="but workers are given: set"):
        distribution.check_cluster(config, CLUSTER)
    several = load_config(None, ["training.distribution=multi_worker"])
    distribution.check_cluster(several, CLUSTER)
    with pytest.raises(InputError, match="needs the addresses of the workers: give --workers"):
        distribution.check_cluster(several, None)


def test_devices_share_batches_equally():
    config = load_config(None, ["training.batch_size=6", "training.scst.batch_size=5"])
    distribution.check_shares(phases(config), 1)
    with pytest.raises(InputError, match=r"training\.scst\.batch_size is 5, which 2 devices cannot share"):
        distribution.check_shares(phases(config), 2)
    with pytest.raises(InputError, match=r"training\.batch_size is 6, which 4 devices .* a multiple of 4"):
        distribution.check_shares(phases(config), 4)


def test_workers_start_with_the_same_weights(monkeypatch):
    others = []
    monkeypatch.setattr(distribution, "gather", lambda strategy, value: [value, *others])
    weights = [keras.Variable([1.0])]
    distribution.check_same_weights(tf.distribute.get_strategy(), weights)
    distribution.check_same_weights(Pair(), weights)
    others.append("the digest of other weights")
    with pytest.raises(InputError, match="the workers would start with different weights: give all"):
        distribution.check_same_weights(Pair(), weights)


def test_trainings_of_the_same_process_exchange_sums_of_any_shape():
    strategy = two_devices()

    def total(size):
        def replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([size]))

        return strategy.experimental_local_results(tf.function(lambda: strategy.run(replica))())

    for size in (1, 24):  # with a strategy each, the second training fails
        assert distribution.make_strategy("mirrored") is strategy
        np.testing.assert_array_equal(total(size), np.full((2, size), 2.0))


@pytest.mark.slow
def test_two_devices_normalise_with_the_statistics_of_the_whole_batch():
    devices = two_devices()
    images = np.random.default_rng(0).normal(size=(4, 3)).astype("float32") * [1, 5, 9]

    def averages(strategy):
        with strategy.scope():
            inner = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
            model = keras.Sequential([keras.Input((3,)), inner])
        distribution.synchronize_batch_normalization(model)
        parts = np.split(images, strategy.num_replicas_in_sync)
        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group], tf.float32)
        )
        outputs = tf.function(lambda: strategy.run(lambda x: model(x, training=True), args=(values,)))()
        outputs = np.concatenate([np.array(part) for part in strategy.experimental_local_results(outputs)])
        return outputs, [np.array(weight) for weight in model.non_trainable_weights]

    assert devices.num_replicas_in_sync == 2
    expected, result = averages(distribution.make_strategy("default")), averages(devices)
    np.testing.assert_allclose(result[0], expected[0], atol=1e-5)
    for average, expected_average in zip(result[1], expected[1], strict=True):
        np.testing.assert_allclose(average, expected_average, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_the_loss_of_known_objects_on_two_devices_is_that_of_the_whole_batch():
    random = np.random.default_rng(3)
    tokens = random.integers(3, 20, (4, 6)).astype("int32")
    known = np.array([[1, 0], [0, 0], [0, 1], [-1, -1]], "float32")
    features = random.normal(size=(4, 5, 7)).astype("float32")
    inputs = {"features": features, "tokens": tokens[:, :-1], "objects": known}

    def trained(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            sizes = {"rnn_size": 8, "attention_size": 8, "feature_size": 7, "dropout": 0.0}
            captioner = SoftAttention(20, objects=("cat", "dog"), **sizes)
            captioner.compile(keras.optimizers.SGD(0.1))
        logs = []
        rows = tf.data.Dataset.from_tensor_slices((inputs, tokens[:, 1:]))
        Loop(captioner, strategy=strategy).run(
            lambda epoch, context=None: rows.batch(4 // strategy.num_replicas_in_sync),
            epochs=2,
            callbacks=[
                keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, values: logs.append(values["loss"]))
            ],
        )
        return logs, captioner.get_weights()

    (losses, weights), (expected, expected_weights) = (
        trained(strategy) for strategy in (two_devices(), distribution.make_strategy("default"))
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for weight, expected_weight in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(weight, expected_weight, atol=1e-5)


#: Seconds after which a test gives up; long, because other processes may need the processor.
PATIENCE = 600


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
def single_process(settings, tmp_path_factory):
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


def assert_close(checkpoint, expected_checkpoint):
    """The weights and the state of the optimizer are the same up to rounding."""
    values, expected = arrays(checkpoint), arrays(expected_checkpoint)
    assert values.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(values[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.slow
def test_two_workers_equal_one_process_and_survive_a_kill(settings, single_process, tmp_path):
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
    assert_close(folder.checkpoint(3), single_process.checkpoint(3))
    assert history(folder)[2]["loss"][:5] == history(single_process)[2]["loss"][:5]
    assert folder.model.is_file()


@pytest.mark.slow
def test_workers_with_contradictory_settings_end_with_the_same_sentence(settings, tmp_path):
    codes, printed = start(tmp_path, settings, more=((), ["training.learning_rate=0.7"]))
    assert codes == [2, 2], printed
    sentences = [line for text in printed for line in text.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 2 and len(set(sentences)) == 1
    assert "has another training.learning_rate than the chief" in sentences[0] and not list(
        tmp_path.iterdir()
    )


class Stopped(Exception):
    """Simulates a power failure."""


@pytest.mark.slow
def test_two_devices_equal_one_and_resume(settings, single_process, tmp_path, monkeypatch):
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
    assert_close(folder.checkpoint(3), single_process.checkpoint(3))
