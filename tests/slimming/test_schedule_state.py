"""Folders of schedules: what continues, and what is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.graph import trace
from tfsparsecap.slimming.schedule_state import fingerprint

X = np.random.default_rng(0).random((8, 8)).astype("float32")
Y = np.arange(8) % 2


pytestmark = pytest.mark.usefixtures("eager")


def network(units=32, activation="relu", classes=2, size=8):
    hidden = [layers.Dense(units, activation), layers.BatchNormalization(), layers.Dropout(0.1)]
    model = keras.Sequential([keras.Input((size,)), *hidden, layers.Dense(16), layers.Dense(classes)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_a_fingerprint_knows_the_architecture_but_no_names_and_values():
    first = fingerprint(trace(network()))
    assert first == fingerprint(trace(network()))
    for other in (network(units=24), network(activation="gelu"), network(classes=3), network(size=9)):
        assert fingerprint(trace(other)) != first


def test_a_folder_continues_for_a_model_that_is_created_again_only(tmp_path):
    def fit(model, ratio=0.5, epochs=2, skip=0, **options):
        schedule = sc.Slim(ratio, 2, skip=[model.layers[skip]], **options)
        return schedule.fit(model, X, Y, epochs=epochs, folder=tmp_path, verbose=0)

    small = fit(network(), 0.3)
    assert [one.units for one in small.layers if isinstance(one, layers.Dense)] == [32, 8, 2]
    again = fit(network(), 0.3)
    np.testing.assert_array_equal(small(X), again(X))
    with pytest.raises(
        InputError, match=r"the schedule in .* is of a model with other layers or sizes: give"
    ):
        fit(network(units=40), 0.3)
    for arguments, message in (
        ({"epochs": 4}, f"epochs is 4, but the schedule in {tmp_path} has 2: give the same"),
        ({"ratio": 0.2}, "ratio is 0.2, but the schedule in .* has 0.3"),
        ({"criterion": "l1"}, "criterion is l1, but the schedule in .* has taylor"),
        ({"skip": -2}, "skip names other layers than in the schedule"),
    ):
        with pytest.raises(InputError, match=message):
            fit(network(), **{"ratio": 0.3, **arguments})


class Doubled(layers.Layer):
    def call(self, inputs):
        return inputs * 2


@pytest.mark.parametrize(
    ("extra", "compiled"),
    [
        (lambda: layers.Lambda(lambda x: x * 2), {"loss": "mse"}),
        (Doubled, {"loss": "mse"}),
        (layers.ReLU, {"loss": lambda a, b: tf.square(b)}),
        (layers.ReLU, {"loss": "mse", "metrics": [lambda a, b: tf.square(b)]}),
    ],
)
def test_what_could_not_be_loaded_is_refused_before_any_training(tmp_path, extra, compiled):
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(32), layers.ReLU(), layers.Dense(16), extra(), layers.Dense(1)]
    )
    model.compile("adam", **compiled)
    began = []
    schedule, call = (
        sc.Slim(0.5, 1),
        keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: began.append(1)),
    )
    with pytest.raises(
        InputError, match=r"folder= needs a model that can be loaded again, but .* cannot \(.*"
    ):
        schedule.fit(model, X, Y, epochs=1, folder=tmp_path / "a", callbacks=[call], verbose=0)
    assert not began and not list((tmp_path / "a").glob("*"))
    schedule.fit(model, X, Y, epochs=1, callbacks=call, verbose=0)
    assert began
