"""Iterative slimming, and the regularizer on gamma."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.schedule import Slim, first_epochs, regularize_gammas

X = np.random.default_rng(0).random((32, 8)).astype("float32")
Y = (X.sum(1) > 4).astype("int32")


@pytest.fixture(autouse=True)
def eager():
    """Compiling a training step for each iteration would take seconds."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def model():
    stack = [keras.Input((8,)), layers.Dense(64, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([*stack, layers.Dense(32, "relu"), layers.Dense(2, "softmax")], name="small")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model


def units(model):
    return [layer.units for layer in model.layers if isinstance(layer, layers.Dense)]


def test_each_iteration_removes_the_same_amount(model):
    schedule = Slim(0.5, iterations=3, multiple=8)
    small = schedule.fit(model, X, Y, epochs=4, verbose=0)
    assert units(model) == [64, 32, 2]
    assert [plan.after.channels for plan in schedule.plans] == [80, 64, 48]
    assert sum(units(small)[:2]) == 48 and len(schedule.history["loss"]) == 4
    assert int(small.optimizer.iterations) == 4


@pytest.mark.parametrize(
    ("epochs", "iterations", "first"),
    [(1, 1, [0]), (8, 1, [0]), (3, 3, [0, 1, 2]), (8, 3, [0, 2, 4]), (10, 5, [0, 1, 2, 3, 5])],
)
def test_the_last_iteration_gets_half_of_the_epochs(epochs, iterations, first):
    assert first_epochs(epochs, iterations) == first


def test_the_optimizer_keeps_its_state_of_the_channels_that_stay(model):
    model.fit(X, Y, epochs=2, verbose=0)
    plan = sc.slim_plan(model, 0.5)
    small = plan.apply(keep_optimizer=True)
    assert int(small.optimizer.iterations) == 2
    before, after = (one.optimizer._velocities for one in (model, small))
    kernels = [one.layers[0].kernel.numpy() for one in (model, small)]
    kept = [int(np.flatnonzero((column == kernels[0].T).all(1)).item()) for column in kernels[1].T]
    np.testing.assert_array_equal(after[0], before[0].numpy()[:, kept])
    assert all(np.abs(one).max() > 0 for one in after)


@pytest.mark.slow
def test_a_killed_schedule_continues_where_it_was(model, tmp_path):
    class Killed(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 3:
                raise KeyboardInterrupt

    def fit(callbacks=None, epochs=6):
        return Slim(0.5, iterations=3).fit(
            model, X, Y, epochs=epochs, folder=tmp_path, callbacks=callbacks, shuffle=False, verbose=0
        )

    with pytest.raises(KeyboardInterrupt):
        fit(lambda: [Killed()])
    small = fit()
    assert sum(units(small)[:2]) == 48 and int(small.optimizer.iterations) == 6
    whole = Slim(0.5, iterations=3).fit(model, X, Y, epochs=6, shuffle=False, verbose=0)
    np.testing.assert_allclose(small(X), whole(X), atol=1e-5)
    np.testing.assert_allclose(fit()(X), small(X), atol=1e-6)  # a finished one is loaded
    with pytest.raises(InputError, match="contains another schedule"):
        fit(epochs=7)
    (saved,) = tmp_path.glob("*.keras")
    content = bytearray(saved.read_bytes())
    content[len(content) // 2] ^= 8
    saved.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*keras .*: delete .*, or give another folder"):
        fit()
    (tmp_path / "schedule.json").write_bytes(b'{"about"')
    with pytest.raises(InputError, match=r"schedule\.json is damaged"):
        fit()


def test_bad_schedules_are_refused_before_any_training(model):
    with pytest.raises(InputError, match="ratio is 1: give a number above 0 and below 1"):
        Slim(1)
    with pytest.raises(InputError, match="iterations is 0"):
        Slim(0.5, 0)
    with pytest.raises(InputError, match="epochs is 2, fewer than the 5 iterations"):
        Slim(0.5).fit(model, X, Y, epochs=2)
    with pytest.raises(InputError, match="can lose at most"):
        Slim(0.95).fit(model, X, Y, epochs=5)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="plain")
    with pytest.raises(InputError, match="plain is not compiled"):
        Slim().fit(model, X, epochs=5)


def test_gammas_are_regularized_in_place_and_saved(model, tmp_path):
    regularize_gammas(model, 0.01)
    assert float(model.losses[0]) == pytest.approx(0.64)
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert float(loaded.losses[0]) == pytest.approx(0.64)
    assert not regularize_gammas(model, 0).losses
    with pytest.raises(InputError, match="dense has no batch normalisation"):
        regularize_gammas(keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="dense"))
