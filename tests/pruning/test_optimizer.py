"""The wrapping optimizer: weights are updated by the inner optimizer, gates by the method."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.two_devices import two_devices
from tfsparsecap import SNIP, LotteryTicket, Relevance, Supermask, prune
from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap.pruning import PruningMethod
from tfsparsecap.pruning.optimizer import PruningOptimizer

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 8)).astype("float32")
Y = RANDOM.normal(size=(16, 3)).astype("float32")


class Still(PruningMethod):
    """Does not change the gates and records the gradients it gets."""

    def attach(self, model):
        super().attach(model)
        self.count = self.add_state("count", ())
        self.seen = []
        for gate in self.gates:
            gate.samples = False

    def step(self, gate_gradients):
        self.seen.append(gate_gradients)
        self.count.assign_add(1.0)


def dense(**options):
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(6, "relu", **options), keras.layers.Dense(3, name="last")]
    )


OPTIMIZERS = {
    "adam with decay": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "clipped by norm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
    "averaged": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5),
    "accumulated": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_behind_open_gates_train_like_stock_weights(name):
    stock, gated = dense(), prune(dense(), Still(0.5))
    for model in (stock, gated):
        model.compile(OPTIMIZERS[name](), "mse")
        model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    for layer, twin in zip(stock.layers, gated.layers, strict=True):
        np.testing.assert_allclose(twin.stored_weight("kernel"), layer.kernel, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(twin.bias, layer.bias, rtol=1e-5, atol=1e-6)
    for gate in gates(gated):
        np.testing.assert_array_equal(gate.logits, np.full(gate.logits.shape, 5.0))  # no decay, no average
    assert float(gated.pruning.count) == 8


def test_the_method_gets_the_gradient_of_each_gate_or_none():
    model = prune(dense(), Still(0.5))
    optimizer = model.pruning.wrap(keras.optimizers.SGD(0.1))
    first, last = gates(model)
    variables = [variable for variable in model.trainable_variables if variable is not last.logits]
    gradients = [
        tf.ones(variable.shape) * (7.0 if variable is first.logits else 1.0)
        for variable in reversed(variables)
    ]
    optimizer.apply(gradients, list(reversed(variables)))
    (seen,) = model.pruning.seen
    np.testing.assert_array_equal(seen[0], np.full(first.logits.shape, 7.0))
    assert seen[1] is None


def test_learning_rate_and_iterations_come_from_the_inner_optimizer():
    model = prune(dense(), Still(0.5))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[halve])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.0025)
    assert float(model.optimizer.inner_optimizer.learning_rate) == pytest.approx(0.0025)
    assert int(model.optimizer.iterations) == 4 * 2


def test_settings_of_the_inner_optimizer_can_be_changed_after_compile():
    def bias(pruned, change):
        model = prune(dense(), Supermask(0.5, total_steps=9)) if pruned else dense()
        model.compile(keras.optimizers.AdamW(1e-9, weight_decay=1e8, clipnorm=1.0), "mse")
        change(model.optimizer)
        for variable in model.weights:
            if variable.name == "bias":
                variable.assign(tf.ones(variable.shape))
        model.train_on_batch(X, Y)
        return np.array(next(variable for variable in model.weights if variable.name == "bias"))

    for change in (
        lambda optimizer: optimizer.exclude_from_weight_decay(var_names=["bias"]),
        lambda optimizer: setattr(optimizer, "weight_decay", 5e8),
    ):
        np.testing.assert_allclose(bias(True, change), bias(False, change), rtol=1e-5)
    wrapped = prune(dense(), Supermask(0.5, total_steps=9)).pruning.wrap(keras.optimizers.Adam(clipnorm=2.0))
    assert wrapped.clipnorm == 2.0 and wrapped.beta_1 == 0.9 and not hasattr(wrapped, "beta_3")
    wrapped.global_clipnorm = 3.0
    assert wrapped.inner_optimizer.global_clipnorm == 3.0


def test_gates_that_a_custom_loop_leaves_out_are_named():
    model = prune(dense(), Supermask(0.5, total_steps=9))
    optimizer = model.pruning.wrap(keras.optimizers.Adam())
    optimizer.build(model.trainable_variables)
    for variables in (model.trainable_variables, model.layers[-1].trainable_variables):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X, training=True) - Y))
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.apply(gradients, variables)
        missing = model.layers[0].stored_weight("kernel").path
        messages = [str(warning.message) for warning in caught if "get no gradient" in str(warning.message)]
        assert [missing in message for message in messages] == [True] * (len(variables) < 4)


def test_wrapping_twice_wraps_once_and_optimizers_of_other_models_are_rejected():
    model, other = prune(dense(), Still(0.5)), prune(dense(), Still(0.5))
    optimizer = model.pruning.wrap(keras.optimizers.Adam())
    assert model.pruning.wrap(optimizer) is optimizer
    scaled = model.pruning.wrap(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()))
    assert isinstance(scaled, keras.optimizers.LossScaleOptimizer)
    assert isinstance(scaled.inner_optimizer, PruningOptimizer)
    assert isinstance(model.pruning.wrap(scaled).inner_optimizer.inner_optimizer, keras.optimizers.Adam)
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer
    with pytest.raises(InputError, match="another model"):
        other.pruning.wrap(optimizer)


BY_SCORE = {"lower_bound": 1e9, "metric": "val_loss", "weight_decay": 0.01}
#: Methods, and the sparsity that they reach.
REPLICATED = {
    "supermask": (lambda: Supermask(0.5, 8), 0.5),
    "gradual ticket": (lambda: LotteryTicket(0.5, 8, allocation="gradual"), 0.5),
    "snip": (lambda: SNIP(0.5, batches=3), 0.5),
    "relevance": (lambda: Relevance(**BY_SCORE), 1 - 0.9**3),
    "mixed precision": (lambda: Supermask(0.5, 8), 0.5),
}


def trained_on(strategy, make):
    keras.utils.set_random_seed(1)
    with strategy.scope():  # not around prune, which must find the model's strategy
        layers = [keras.layers.Embedding(9, 8), keras.layers.Flatten(), keras.layers.Dense(4)]
        model = keras.Sequential([keras.Input((3,)), *layers])
    prune(model, make())
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 4, 0.5)
    with strategy.scope():
        model.compile(keras.optimizers.AdamW(rate, weight_decay=0.1, use_ema=True, epsilon=1e-3), "mse")
    random = np.random.default_rng(0)
    pairs = random.integers(0, 9, (32, 3)), 9 * random.normal(size=(32, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(pairs).batch(16)
    model.fit(data, validation_data=data if hasattr(model.pruning, "metric") else None, epochs=4, verbose=0)
    return model


def copies(variable):
    return [np.array(value) for value in getattr(variable.value, "values", [variable.value])]


@pytest.mark.parametrize("name", REPLICATED)
def test_training_on_two_replicas_equals_training_on_one_device(name, compiled):
    two, (make, sparsity) = two_devices(), REPLICATED[name]
    if name == "mixed precision":  # rounds differently on each
        keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        replicated_model = trained_on(two, make)
    finally:
        keras.config.set_dtype_policy("float32")
    assert float(replicated_model.pruning.current_sparsity()) == pytest.approx(sparsity, abs=0.02)
    assert int(tf.convert_to_tensor(replicated_model.optimizer.iterations)) == 8
    variables = [*replicated_model.weights, *replicated_model.optimizer.variables]
    for variable in variables:
        first, *more = copies(variable)
        for copy in more:
            np.testing.assert_array_equal(first, copy, err_msg=variable.path)
    if name != "mixed precision":
        tf.config.run_functions_eagerly(True)  # saves time; replicas have compiled steps
        try:
            single_model = trained_on(tf.distribute.get_strategy(), make)
        finally:
            tf.config.run_functions_eagerly(False)
        for mine, theirs in zip(
            [*single_model.weights, *single_model.optimizer.variables], variables, strict=True
        ):
            np.testing.assert_allclose(
                copies(mine)[0], copies(theirs)[0], rtol=1e-3, atol=1e-4, err_msg=theirs.path
            )


class WithoutConfig(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1


def test_a_compiled_model_is_unchanged_if_its_optimizer_cannot_be_created_again():
    model, method = dense(), Supermask(0.5, total_steps=10)
    optimizer = keras.optimizers.Adam(WithoutConfig())
    model.compile(optimizer, "mse")
    with pytest.raises(InputError, match=r"Adam or its schedule .* call prune before compile"):
        prune(model, method)
    assert type(model) is keras.Sequential and not gates(model) and model.optimizer is optimizer
    model = prune(dense(), method)  # the method can be used for another model
    model.compile(optimizer, "mse")
    model.train_on_batch(X, Y)


def test_gradients_of_gates_are_not_scaled_by_loss_scaling():
    class Seen(PruningMethod):
        def step(self, gate_gradients):
            seen.append([np.asarray(gradient) for gradient in gate_gradients])

    gradients = {}
    for scaling in ("none", "factor", "dynamic"):
        seen = []
        keras.utils.set_random_seed(3)
        model = prune(dense(), Seen(0.5))
        for gate in gates(model):
            gate.samples = False
        optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=64.0 if scaling == "factor" else None)
        if scaling == "dynamic":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)
        model.compile(optimizer, "mse")
        model.train_on_batch(X, Y)
        gradients[scaling] = seen[0], model.get_weights()
    for scaling in ("factor", "dynamic"):
        for mine, plain in zip(gradients[scaling][0], gradients["none"][0], strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-8)
        for mine, plain in zip(gradients[scaling][1], gradients["none"][1], strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)


def test_a_checkpoint_of_model_and_optimizer_contains_the_state_of_the_method(tmp_path):
    def made():
        model = prune(dense(), Supermask(0.5, total_steps=20))
        return model, model.pruning.wrap(keras.optimizers.Adam())

    def step(model, optimizer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X, training=True) - Y))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)

    model, optimizer = made()
    for _ in range(8):
        step(model, optimizer)
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "state")
    again, resumed = made()
    resumed.build(again.trainable_variables)
    tf.train.Checkpoint(model=again, optimizer=resumed).restore(path).assert_consumed()
    assert int(again.pruning.steps_done) == 8
    for mine, theirs in zip(optimizer.variables, resumed.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_averages_can_be_swapped_if_the_loss_is_scaled():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = prune(dense(), Still(0.5))
        model.compile(keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5), "mse")
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        model.fit(X, Y, batch_size=4, epochs=1, verbose=0, callbacks=[swap])
        averaged = model.optimizer.inner_optimizer.inner_optimizer
        for weight, average in zip(
            keras_internals.optimizer_variables(averaged),
            averaged._model_variables_moving_average,
            strict=True,
        ):
            np.testing.assert_array_equal(weight, average)
        model.compile(keras.optimizers.Adam(0.1), "mse")
        with pytest.raises(ValueError, match="use_ema=True"):
            model.fit(X, Y, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)])
    finally:
        keras.config.set_dtype_policy("float32")
