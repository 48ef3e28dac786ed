"""Iterative slimming, and the regularizer on gamma."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.iterative import Slim, first_epochs, regularize_gammas

X = np.random.default_rng(0).random((32, 8)).astype("float32")
Y = (X.sum(1) > 4).astype("int32")


pytestmark = pytest.mark.usefixtures("eager")


@pytest.fixture
def model():
    stack = [keras.Input((8,)), layers.Dense(64, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([*stack, layers.Dense(32, "relu"), layers.Dense(2, "softmax")], name="small")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model


def units(model):
    return [layer.units for layer in model.layers if hasattr(layer, "units")]


@pytest.mark.slow
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
    before, after = (network.optimizer._velocities for network in (model, small))
    kernels = [network.layers[0].kernel.numpy() for network in (model, small)]
    indices = [int(np.flatnonzero((column == kernels[0].T).all(1)).item()) for column in kernels[1].T]
    np.testing.assert_array_equal(after[0], before[0].numpy()[:, indices])
    assert all(np.abs(velocity).max() > 0 for velocity in after)


@pytest.mark.slow
def test_skipped_layers_may_be_objects_and_callbacks_may_be_created_for_each_iteration(model):
    created = []

    def callbacks():
        created.append(keras.callbacks.TerminateOnNaN())
        return created[-1:]

    schedule = Slim(0.3, iterations=2, multiple=1, skip=[model.layers[0]])
    small = schedule.fit(model, X, Y, epochs=2, callbacks=callbacks, verbose=0)
    assert units(small) == [64, 22, 2] and len(created) == 2


@pytest.mark.slow
def test_a_measured_latency_is_compared_with_that_of_the_whole_model(model):
    def latency(network):
        return 10.0 + sum(units(network)[:2])  # the estimate has another ratio

    schedule = Slim(0.3, iterations=3, multiple=1, budget="latency", latency=latency)
    small = schedule.fit(model, X, Y, epochs=3, verbose=0)
    assert sum(units(small)[:2]) == 64 and len(schedule.plans) == 3  # 74.2 = 0.7 * 106 at most


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"ratio": 1}, {}, "ratio is 1: give a number above 0 and below 1"),
        ({"iterations": 0}, {}, "iterations is 0"),
        ({"budgets": "flops"}, {}, "there is no option of Slim 'budgets': did you mean budget"),
        ({}, {"epochs": 2}, "epochs is 2, fewer than the 5 iterations"),
        ({"ratio": 0.95}, {}, "can lose at most"),
        (
            {},
            {"x": iter([(X, Y)]), "y": None},
            r"generator to its end in the first epoch: give steps_per_epoch=",
        ),
        ({}, {"x": None, "y": None}, r"Slim\.fit has no data to train on: give a data set"),
        ({}, {"initial_epoch": 1}, "counts the epochs itself: leave initial_epoch= out"),
        (
            {},
            {"callbacks": lambda: [keras.callbacks.BackupAndRestore("backup")]},
            r"Slim\.fit cannot continue an interrupted run from a BackupAndRestore",
        ),
        ({}, {"callbacks": keras.callbacks.BackupAndRestore("backup")}, r"call sc\.slim between trainings"),
        ({}, {"model": None}, r"sc\.Slim takes a Keras 3 model, not a builtins.NoneType"),
        (
            {},
            {"model": keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="plain")},
            "plain is not compiled",
        ),
    ],
)
def test_bad_schedules_are_refused_before_any_training(model, options, arguments, message):
    with pytest.raises(InputError, match=message):
        Slim(**options).fit(**{"model": model, "x": X, "y": Y, "epochs": 5, **arguments})


@pytest.mark.parametrize("name", ["train_step", "test_step", "compute_loss", "compute_metrics"])
def test_a_model_that_trains_in_its_own_way_is_refused(model, name):
    kind = type("Mine", (keras.Model,), {name: lambda self, *args, **kwargs: None})
    mine = kind(model.inputs, model.outputs, name="mine")
    mine.compile("adam", "mse")
    with pytest.raises(
        InputError, match=f"mine, a Mine, has its own {name}, which the slim model, a stock one,"
    ):
        Slim(0.5, 1).fit(mine, X, Y, epochs=1)
    assert units(sc.slim(mine, 0.5)) == [32, 16, 2]


def test_gammas_are_regularized_in_place_and_saved(model, tmp_path):
    regularize_gammas(model, 0.01)
    assert float(model.losses[0]) == pytest.approx(0.64)
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert float(loaded.losses[0]) == pytest.approx(0.64)
    assert not regularize_gammas(model, 0).losses
    with pytest.raises(
        InputError, match=r"sc\.regularize_gammas takes a Keras 3 model, not a builtins.NoneType"
    ):
        regularize_gammas(None)
    with pytest.raises(InputError, match="raw is not built"):
        regularize_gammas(keras.Sequential([layers.Dense(2), layers.BatchNormalization()], name="raw"))
    with pytest.raises(InputError, match="dense has no batch normalisation"):
        regularize_gammas(keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="dense"))


class Batches(keras.utils.PyDataset):
    """Batches that never end."""

    def __len__(self):
        return 2

    @property
    def num_batches(self):
        return None

    def __getitem__(self, index):
        return X[:16], Y[:16]


def generator():
    while True:
        yield X, Y


DATA = {
    "arrays": lambda: (X, Y),
    "endless data set": lambda: (tf.data.Dataset.from_tensors((X, Y, np.ones(32))).repeat(),),
    "Keras data set": lambda: (Batches(workers=0),),
    "generator": lambda: (generator(),),
}


@pytest.mark.parametrize("kind", ["arrays", "endless data set", "Keras data set", "generator"])
def test_training_examples_are_the_samples(kind):
    inputs = keras.Input((8,), name="eight")
    hidden = layers.BatchNormalization()(layers.Dense(64, use_bias=False)(inputs))
    model = keras.Model(inputs, layers.Dense(2, "softmax")(layers.ReLU()(hidden)))
    _, dense, normalisation, *_ = model.layers
    dead = np.arange(64) % 2 == 1  # constant, but with the largest weights
    dense.kernel.assign(dense.kernel * np.where(dead, 9.0, 1.0).astype("float32"))
    normalisation.set_weights([np.ones(64), np.where(dead, -999.0, 0.5), np.zeros(64), np.ones(64)])
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    small = Slim(0.5, iterations=1, multiple=1).fit(
        model, *DATA[kind](), epochs=1, steps_per_epoch=1, verbose=0
    )
    columns = [kernel.numpy().T for kernel in (dense.kernel, small.layers[1].kernel)]
    indices = [int(np.flatnonzero((column == columns[0]).all(1)).item()) for column in columns[1]]
    # Norms alone keep what is constant.
    assert dead[indices].all() if kind == "generator" else not dead[indices].any()
    assert len(indices) == 32


def test_errors_of_training_examples_say_what_they_are(model):
    damaged = np.full_like(X, np.nan)
    with pytest.raises(
        InputError, match=r"NaN or infinity .* \(Slim\.fit takes training examples as samples"
    ):
        Slim(0.5, 1).fit(model, damaged, Y, epochs=1)
    with pytest.raises(InputError, match=r"NaN or .* and the weights of the model$"):
        Slim(0.5, 1, samples=[damaged]).fit(model, X, Y, epochs=1)
