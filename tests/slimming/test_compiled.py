"""Slim models are compiled like the whole one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError

X, Y = np.random.default_rng(0).random((8, 4)).astype("float32"), np.arange(8.0)[:, None] % 2


pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((4,)), layers.Dense(32, "relu"), layers.Dense(1)], name="small")


@pytest.mark.slow
def test_losses_and_metrics_need_not_be_registered(model):
    def error(targets, outputs):
        return tf.abs(targets - outputs)

    class Largest(keras.metrics.Metric):
        def __init__(self, name="largest", **kwargs):
            super().__init__(name=name, **kwargs)
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, targets, outputs, sample_weight=None):
            self.value.assign(tf.reduce_max(tf.cast(outputs, "float32")))

        def result(self):
            return self.value + 0

    wrapped = keras.metrics.MeanMetricWrapper(lambda a, b: tf.abs(a - b), name="wrapped")
    model.compile("adam", lambda a, b: tf.square(a - b), metrics=[error, Largest(), wrapped, "mae"])
    model.fit(X, Y, epochs=2, verbose=0)
    small = sc.slim_plan(model, 0.5).apply(keep_optimizer=True)
    before = [metric.variables for metric in model.metrics]
    values = [variable.numpy() for part in before for variable in part]
    results = small.evaluate(X, Y, verbose=0, return_dict=True)
    assert results.keys() == {"loss", "error", "largest", "wrapped", "mae"}
    np.testing.assert_array_equal(values, [variable.numpy() for part in before for variable in part])
    assert results["error"] == pytest.approx(results["mae"]) == pytest.approx(results["wrapped"])
    small.fit(X, Y, epochs=1, verbose=0)
    assert int(small.optimizer.iterations) == 3
    assert model.evaluate(X, Y, verbose=0, return_dict=True)["error"] > 0


def test_a_metric_that_cannot_be_copied_is_refused_in_one_sentence(model):
    class Odd(keras.metrics.Mean):
        def __init__(self, share):
            super().__init__("odd")

        def get_config(self):
            return {}

    model.compile("adam", "mse", metrics=[Odd(1)])
    with pytest.raises(InputError, match=r"small cannot be compiled again .*give their classes get_config"):
        sc.slim_plan(model, 0.5).apply(keep_optimizer=True)
