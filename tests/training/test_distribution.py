"""The strategy of a training, what the workers must have in common, and batch normalisation over devices."""

from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.data.records import CaptionData, Record
from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import load_config
from tfsparsecap.training import distribution
from tfsparsecap.training.cluster import Cluster
from tfsparsecap.training.phases import phases
from tfsparsecap.training.workers import Alone

CLUSTER = Cluster(("a:1", "b:1"), 0)
DATA = CaptionData("two", [Record("a.jpg", Path("absent.jpg"), ("a dog",), "train")])


def facts(monkeypatch, settings=(), data=DATA, resume=False, checkpoint=None):
    """What a worker tells the chief, and the chief's sentences."""
    monkeypatch.setattr(distribution, "Team", lambda cluster, facts, problem, report: (facts, problem))
    config = load_config(None, ["training.distribution=multi_worker", *settings])
    options = {"resume": resume, "checkpoint": checkpoint, "report": str}
    return distribution.make_team(CLUSTER, config, data, **options)


def different(one, other):
    return [name for name in one if one[name] != other.get(name)]


def test_the_facts_name_each_setting_but_not_its_value_and_no_location(monkeypatch, tmp_path):
    own, problem = facts(monkeypatch)
    assert "training.learning_rate" in own and all(len(value) <= 100 for value in own.values())
    other, _ = facts(monkeypatch, ["training.learning_rate=0.7"])
    assert different(own, other) == ["training.learning_rate"]
    assert problem("training.learning_rate").startswith("has another training.learning_rate than the chief")
    assert facts(monkeypatch, [f"data.folder={tmp_path}", "training.start_from=elsewhere"])[0] == own


def test_the_facts_contain_data_and_checkpoint(monkeypatch, tmp_path):
    own, problem = facts(monkeypatch)
    record = replace(DATA.records[0], captions=("a cat",))
    other, _ = facts(monkeypatch, data=CaptionData("two", [record]))
    assert different(own, other) == ["data"] and problem("data").startswith("has other data than the chief")
    path = tmp_path / "epoch-0001.npz"
    path.write_bytes(b"1")
    first, _ = facts(monkeypatch, resume=True, checkpoint=path)
    assert different(own, first) == ["resume", "checkpoint"]
    path.write_bytes(b"2")
    second, _ = facts(monkeypatch, resume=True, checkpoint=path)
    assert different(first, second) == ["checkpoint"]
    assert "give all workers the same shared --runs" in problem("checkpoint")


def test_workers_and_setting_belong_together():
    config = load_config(None, [])
    assert isinstance(
        distribution.make_team(None, config, DATA, resume=False, checkpoint=None, report=str), Alone
    )
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


class Chief(Alone):
    size = 2

    def share(self, value):
        return "the digest of other weights"


def test_workers_start_with_the_same_weights():
    weights = [keras.Variable([1.0])]
    distribution.check_same_weights(Alone(), weights)
    with pytest.raises(InputError, match="the weights at the start differ from the chief's"):
        distribution.check_same_weights(Chief(), weights)


def test_trainings_of_the_same_process_exchange_sums_of_any_shape():
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")

    def total(size):
        strategy = distribution.make_strategy("mirrored")

        def replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([size]))

        return strategy.experimental_local_results(tf.function(lambda: strategy.run(replica))())

    for size in (1, 24):  # with a strategy each, the second training fails
        np.testing.assert_array_equal(total(size), np.full((2, size), 2.0))


@pytest.mark.slow
def test_two_devices_normalise_with_the_statistics_of_the_whole_batch():
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")
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

    both = distribution.make_strategy("mirrored")
    assert both.num_replicas_in_sync == 2
    expected, found = averages(distribution.make_strategy("default")), averages(both)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
