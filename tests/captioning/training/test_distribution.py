"""The strategy of a training, what the workers must have in common, and batch normalisation over devices."""

from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.two_devices import two_devices
from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training import distribution
from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.captioning.training.phases import phases
from tfsparsecap.errors import InputError

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
    both = two_devices()
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

    assert both.num_replicas_in_sync == 2
    expected, found = averages(distribution.make_strategy("default")), averages(both)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
