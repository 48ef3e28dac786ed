"""Validation scores in `fit` reach the pruning method; rejected metrics; emptied layers."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import PruningMethod, Relevance, Supermask, prune, strip_pruning
from tfsparsecap.pruning.feedback import ValidationDriven, warn_of_emptied

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 8)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")


class Listener(ValidationDriven, PruningMethod):
    """Records the logs it gets; stops the training after `stop_after` epochs."""

    def __init__(self, stop_after=None, required_metric=None):
        super().__init__(0.5)
        self.stop_after, self.required_metric, self.received = stop_after, required_metric, []

    def step(self, gate_gradients):
        self.steps_done.assign_add(1)

    def on_validation_end(self, logs):
        self.received.append(logs)
        return len(self.received) == self.stop_after

    def check_metric(self, names):
        if self.required_metric and self.required_metric not in names:
            raise InputError(f"no {self.required_metric} in {sorted(names)}")


class Scores(keras.callbacks.Callback):
    """A callback of the user that adds to the logs."""

    def on_epoch_end(self, epoch, logs=None):
        logs["val_score"] = 10.0 + epoch


class Passes(keras.Sequential):
    """A class that passes its arguments on to Keras."""

    def fit(self, *args, **kwargs):
        return super().fit(*args, **kwargs)


class Ordered(keras.Sequential):
    """A class with parameters in another order, the others of which it passes on, as those of KerasHub."""

    def fit(self, x=None, y=None, sample_weight=None, **kwargs):
        return super().fit(x, y, sample_weight=sample_weight, **kwargs)


def made(method, cls=keras.Sequential, **options):
    keras.utils.set_random_seed(2)
    layers = [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2, "softmax")]
    model = prune(cls(layers), method)
    # Eager unless the steps are tested: compiling takes longer than these trainings.
    options = options or {"run_eagerly": True}
    optimizer, loss = keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"], **options)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "weights"), [(Passes, ()), (Ordered, (np.ones(len(X)),))])
def test_fit_passes_the_logs_of_each_epoch_to_the_method_which_may_stop_it(cls, weights):
    method = Listener(stop_after=3)
    model = made(method, cls)
    history = model.fit(X, Y, *weights, validation_data=(X, Y), epochs=5, verbose=0).history
    names = {"loss", "accuracy", "val_loss", "val_accuracy", "sparsity"}
    assert [set(logs) for logs in method.received] == [names] * 3
    for name in names:
        assert [logs[name] for logs in method.received] == history[name]
    assert len(model.fit(X, Y, epochs=2, verbose=0).epoch) == 2


@pytest.mark.slow
def test_feedback_comes_after_custom_callbacks():
    for fit in (
        lambda model: model.fit(X, Y, 8, 2, 0, [Scores()]),
        lambda model: model.fit(X, Y, epochs=2, verbose=0, callbacks=Scores()),
    ):
        method = Listener(required_metric="val_score")
        fit(made(method))
        assert [logs["val_score"] for logs in method.received] == [10.0, 11.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"validation_data": (X, Y)},
            "logs contain accuracy, loss, sparsity, val_accuracy, val_loss; did you",
        ),
        ({"validation_split": 0.5}, "did you mean 'val_accuracy'"),
        ({}, "logs contain accuracy, loss, sparsity; give fit validation_data= or validation_split="),
    ],
)
def test_a_missing_metric_is_rejected_before_training(given, message):
    model = made(Relevance(lower_bound=0.5, metric="val_acuracy"))
    before = model.get_weights()
    with pytest.raises(InputError, match=message):
        model.fit(X, Y, verbose=0, **given)
    assert int(model.optimizer.iterations) == 0
    for own, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"callbacks": [Scores()]},
        {"validation_data": ((X[i : i + 8], Y[i : i + 8]) for i in [0, 8]), "validation_steps": 1},
    ],
    ids=["callback", "generator"],
)
def test_a_metric_missing_from_the_first_epochs_causes_a_warning(arguments):
    model = made(Relevance(lower_bound=0.5, metric="val_other"))
    with pytest.warns(UserWarning, match="judging by the first epochs, Relevance .* 'val_other'"):
        model.fit(X, Y, epochs=2, verbose=0, **arguments)


def test_fit_prunes_down_to_the_bound_and_stops(compiled):
    options = {"pruning_percentage": 0.3, "patience": 2, "finetune_validations": 2}
    model = made(Relevance(lower_bound=0.9, metric="val_accuracy", **options), steps_per_execution=5)
    history = model.fit(
        X, Y, batch_size=8, validation_data=(X, Y), epochs=200, shuffle=False, verbose=0
    ).history
    assert len(history["loss"]) < 200 and model.pruning.finished
    scored = model.evaluate(X, Y, verbose=0, return_dict=True)["accuracy"]
    assert scored >= 0.9
    sparsity = model.pruning.target
    assert 0.5 < sparsity < 0.99
    stripped = strip_pruning(model)
    nonzeros = sum(np.count_nonzero(layer.kernel) for layer in stripped.layers)
    assert nonzeros == round((1 - sparsity) * (8 * 16 + 16 * 2))
    stripped.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    assert stripped.evaluate(X, Y, verbose=0, return_dict=True)["accuracy"] == pytest.approx(scored)


@pytest.mark.slow
def test_epochs_without_validation_are_not_counted():
    method = Relevance(lower_bound=0.0, metric="val_accuracy", pruning_percentage=0.5)
    model = made(method)
    history = model.fit(X, Y, validation_data=(X, Y), validation_freq=2, epochs=5, verbose=0).history
    assert history["sparsity"] == pytest.approx([0, 0, 0.5, 0.5, 0.75])


def with_unused_layer():
    """`unused` has no influence on the outputs, so all its weights are unimportant."""
    inputs = keras.Input((16,))
    unused = keras.layers.Dense(32, name="unused")(inputs)
    hidden = keras.layers.Dense(64, activation="relu")(inputs)
    model = keras.Model(
        inputs, keras.layers.Dense(1)(hidden) + 0.0 * keras.ops.mean(unused, axis=-1, keepdims=True)
    )
    model.compile("adam", "mse")
    return model


DATA = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32), np.ones((64, 1), np.float32)


def pruned(**options):
    return prune(with_unused_layer(), Supermask(0.5, total_steps=12, **options))


def test_a_layer_is_named_in_the_epoch_that_empties_it():
    emptied = pruned(minimum_density=0.0)
    expected = (
        "unused/kernel keeps 0 of 512; name these layers in skip, such as '.*unused',"
        " or set a larger minimum_density"
    )
    with pytest.warns(UserWarning, match=expected) as caught:
        emptied.fit(*DATA, batch_size=16, epochs=3, verbose=0)
    assert sum("keeps" in str(warning.message) for warning in caught) == 1, "once, not in each epoch"


@pytest.mark.slow
class TwoOptimizers(keras.Sequential):
    def compile(self, first, second):
        super().compile(loss="mse")
        self.first, self.second = first, second

    def train_step(self, data):
        for optimizer, layer in zip((self.first, self.second), self.layers, strict=True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(data[0], training=True) - data[1]))
            variables = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)
        return {"loss": loss}


def test_a_training_with_other_optimizers_is_named_after_its_first_epoch():
    model = TwoOptimizers([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)], name="pair")
    prune(model, Supermask(0.5, total_steps=4))
    model.compile(keras.optimizers.SGD(), keras.optimizers.SGD())
    with pytest.warns(UserWarning, match="an epoch of training has not pruned pair") as caught:
        model.fit(tf.ones([4, 4]), tf.ones([4, 2]), epochs=2, verbose=0)
    assert sum("an epoch of" in str(warning.message) for warning in caught) == 1


def test_other_trainings_are_quiet_and_keep_their_callbacks():
    seen = []
    own = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = pruned()
        model.fit(*DATA, batch_size=16, epochs=2, verbose=0, callbacks=own)
        callbacks = keras.callbacks.CallbackList([own], add_history=True, model=model)
        model.fit(*DATA, batch_size=16, epochs=1, verbose=0, callbacks=callbacks)
        assert warn_of_emptied("model", model.pruning) == frozenset()
    assert seen == [0, 1, 0]
