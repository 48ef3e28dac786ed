"""Pruned models in compile, fit and custom training, saved and loaded."""

import copy
import json
import pickle
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import (
    SNIP,
    FrozenMask,
    LotteryTicket,
    Magnitude,
    Relevance,
    Schedule,
    Supermask,
    SupermaskLoss,
    prune,
    strip_pruning,
)
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 3, 8)).astype("float32")
Y = RANDOM.integers(0, 3, 16)
LOSS = "sparse_categorical_crossentropy"


@keras.saving.register_keras_serializable("tests")
class Unbuilt(keras.Model):
    """Creates its weights when called, like most subclassed models."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm, self.head = keras.layers.LayerNormalization(), keras.layers.Dense(3, "softmax")

    def call(self, x):
        return self.head(self.norm(keras.ops.mean(x, axis=1)))


def functional():
    inputs = keras.Input((3, 8))
    x = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs)
    x = keras.layers.Bidirectional(keras.layers.LSTM(4))(keras.layers.BatchNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(x))


def sequential():
    return keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(6, "relu"),
            keras.layers.Dense(3, "softmax"),
        ]
    )


def subclassed():
    model = Unbuilt()
    model(X)
    return model


def trained(model, method, **options):
    prune(model, method, **options)
    model.compile(keras.optimizers.AdamW(0.01), LOSS, metrics=["accuracy"])
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    return model


def sparse():
    return strip_pruning(prune(sequential(), Magnitude(0.5)))


def frozen():
    model = sequential()
    model.layers[1].trainable = False
    return model


BY_SCORE = {"lower_bound": 0.5, "metric": "val_score", "pruning_percentage": 0.1}
#: A model, a method that is still pruning after 4 of 10 steps, and options of `prune`.
CONTINUED = {
    "supermask": (subclassed, lambda: Supermask(0.5, 10), {}),
    "supermask_loss": (sequential, lambda: SupermaskLoss(0.5, 10, schedule=Schedule(end=0.7)), {}),
    "gates of frozen layers": (frozen, lambda: Supermask(0.5, 10), {"prune_frozen": True}),
    "lottery": (sequential, lambda: LotteryTicket(0.5, 10, rounds=3, rewind_to=0.5), {}),
    "gradual ticket": (sequential, lambda: LotteryTicket(0.5, 10, allocation="gradual"), {}),
    "magnitude": (sequential, lambda: Magnitude(0.5, 10, schedule=Schedule(begin=0.5)), {}),
    "snip": (sequential, lambda: SNIP(0.5, 10, batches=5), {}),
    "relevance": (sequential, lambda: Relevance(0.5, **BY_SCORE), {}),
    "frozen": (sparse, lambda: FrozenMask(), {}),
}


def stepped(model, steps):
    for _ in range(steps):
        model.train_on_batch(X, Y)
        if hasattr(model.pruning, "on_validation_end"):
            model.pruning.on_validation_end({"val_score": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUED)
@pytest.mark.filterwarnings("ignore:.*does not divide", "ignore:.*may differ from")
def test_training_of_a_loaded_model_continues_with_the_same_weights(tmp_path, name):
    make, method, options = CONTINUED[name]
    model, rate = (
        prune(make(), method(), **options),
        keras.optimizers.schedules.ExponentialDecay(0.01, 5, 0.9),
    )
    model.compile(keras.optimizers.AdamW(rate), LOSS, metrics=["accuracy"])
    stepped(model, 4)
    model.save(tmp_path / "pruned.keras")
    again = keras.models.load_model(tmp_path / "pruned.keras")
    assert again.pruning.get_config() == model.pruning.get_config()
    assert again.pruning.ungated_layers == model.pruning.ungated_layers
    for attribute in ("block", "independent"):
        mine, theirs = ([getattr(gate, attribute) for gate in gates(network)] for network in (model, again))
        assert mine == theirs
    assert len(again.trainable_variables) == len(model.trainable_variables)
    assert int(again.pruning.steps_done) == 4
    for network in (model, again):
        stepped(network, 6)
    pairs = zip(model.weights, again.weights, strict=True)
    states = zip(model.optimizer.variables, again.optimizer.variables, strict=True)
    for mine, theirs in [*pairs, *states]:
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5, err_msg=mine.path)
    assert float(again.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.05)


LOAD = """
import sys
import keras, numpy as np, tensorflow as tf
folder = sys.argv[1]
x, y = np.load(folder + "/x.npy"), np.load(folder + "/y.npy")
tf.config.run_functions_eagerly(True)
model = keras.models.load_model(folder + "/stripped.keras")
np.testing.assert_allclose(model.predict(x, verbose=0), np.load(folder + "/functional.npy"), atol=1e-5)
assert not [name for name in sys.modules if name.startswith("tfsparsecap")]

import tfsparsecap
model = keras.models.load_model(folder + "/functional.h5")
np.testing.assert_allclose(model.predict(x, verbose=0), np.load(folder + "/functional.npy"), atol=1e-5)
model = keras.models.load_model(folder + "/functional.keras")
np.testing.assert_allclose(model.predict(x, verbose=0), np.load(folder + "/functional.npy"), atol=1e-5)
assert int(model.pruning.steps_done) == 8
history = model.fit(x, y, batch_size=4, verbose=0).history
assert abs(history["sparsity"][-1] - 0.5) < 0.01, history
captioner = keras.models.load_model(folder + "/captioner.keras")
inputs = {"features": x, "tokens": np.ones((16, 4), "int32")}
np.testing.assert_allclose(captioner(inputs), np.load(folder + "/captioner.npy"), atol=1e-5)
assert abs(float(captioner.pruning.current_sparsity()) - 0.5) < 0.01
tfsparsecap.strip_pruning(captioner)
np.testing.assert_allclose(captioner(inputs), np.load(folder + "/captioner.npy"), atol=1e-5)
print("done")
"""


@pytest.mark.slow
def test_a_new_process_loads_pruned_models_and_stripped_ones_without_this_package(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    model = trained(functional(), Supermask(0.5, total_steps=12))
    model.save(tmp_path / "functional.keras")
    model.save(tmp_path / "functional.h5")
    np.save(tmp_path / "functional.npy", model.predict(X, verbose=0))

    captioner = SoftAttention(20, embedding_size=6, rnn_size=8, attention_size=4, feature_size=8)
    prune(captioner, Supermask(0.5, total_steps=4))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    captioner.compile("adam", loss, run_eagerly=True)
    inputs = {"features": X, "tokens": np.ones((16, 4), "int32")}
    captioner.fit(inputs, np.ones((16, 4), "int32"), batch_size=4, epochs=1, verbose=0)
    captioner.save(tmp_path / "captioner.keras")
    np.save(tmp_path / "captioner.npy", captioner(inputs))
    strip_pruning(model).save(tmp_path / "stripped.keras")
    with zipfile.ZipFile(tmp_path / "stripped.keras") as archive:
        for name in ("config.json", "metadata.json"):
            assert "tfsparsecap" not in archive.read(name).decode()
        assert json.loads(archive.read("config.json"))["class_name"] == "Functional"
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]


def test_pruned_models_of_classes_that_are_not_registered_are_loaded_with_custom_objects(tmp_path):
    class WithCall(keras.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.dense = keras.layers.Dense(8)

        def call(self, x):
            return self.dense(x)

    class WithTrainStep(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = keras.Input(X.shape[1:])
    for model in (WithCall(), WithTrainStep(inputs, keras.layers.Dense(8)(inputs))):
        model(X)
        kind = type(model)
        model = prune(model, "magnitude", sparsity=0.5)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras", custom_objects={kind.__name__: kind})
        np.testing.assert_array_equal(again(X), model(X))
        assert again.pruning.gates and isinstance(again, kind)


def test_a_stripped_model_can_be_compiled_and_trained():
    model = prune(sequential(), Supermask(0.75, total_steps=4))
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, verbose=0)
    strip_pruning(model)
    assert not model.get_compile_config()
    model.compile("sgd", LOSS)
    assert set(model.fit(X, Y, verbose=0).history) == {"loss"}
    assert type(model.optimizer) is keras.optimizers.SGD


@pytest.mark.slow
def test_a_compiled_model_keeps_its_settings_with_a_new_optimizer():
    model = sequential()
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 100)
    model.compile(keras.optimizers.Adam(schedule, weight_decay=0.1), LOSS, metrics=["accuracy"])
    model.fit(X, Y, verbose=0)
    model.predict(X, verbose=0)
    model.evaluate(X, Y, verbose=0)
    prune(model, Supermask(0.75, total_steps=8))
    inner = model.optimizer.inner_optimizer
    assert isinstance(inner, keras.optimizers.Adam)
    assert inner.weight_decay == 0.1
    assert inner.get_config()["learning_rate"]["config"]["initial_learning_rate"] == 0.01
    for gate in gates(model):
        gate.logits.assign(-gate.logits)
    closed = model.predict(X, verbose=0)  # only biases: the function traced earlier is not used
    np.testing.assert_allclose(closed, np.repeat(closed[:1], 16, axis=0), atol=1e-6)
    for gate in gates(model):
        gate.logits.assign(-gate.logits)
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert set(history) == {"loss", "accuracy", "sparsity"}
    assert history["sparsity"][-1] == pytest.approx(0.75, abs=0.01)


@pytest.mark.slow
def test_mixed_precision_with_loss_scaling():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = sequential()
        model.compile("adam", LOSS)
        prune(model, SupermaskLoss(0.75, total_steps=8))
        before = [np.asarray(gate.logits) for gate in gates(model)]
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
        assert all(np.any(old != new.logits) for old, new in zip(before, gates(model), strict=True))
        assert all(np.all(np.isfinite(weight)) for weight in model.weights)
        strip_pruning(model)
        assert model.predict(X, verbose=0).dtype == "float16"
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.slow
def test_custom_train_steps_and_custom_loops_prune():
    class Own(Unbuilt):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"my_loss": loss}

    model = Own()
    model(X)
    prune(model, Supermask(0.75, total_steps=8))
    model.compile("adam", LOSS)
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert set(history) == {"my_loss", "sparsity"}
    assert history["sparsity"][-1] == pytest.approx(0.75, abs=0.02)

    model = prune(sequential(), Supermask(0.75, total_steps=8))
    optimizer = model.pruning.wrap(keras.optimizers.Adam())
    for _ in range(8):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(X, training=True)[:, 0])
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.75, abs=0.01)


def test_train_on_batch_returns_the_same_format_as_keras():
    model = prune(sequential(), Supermask(0.75, total_steps=8))
    model.compile("adam", LOSS)
    assert np.ndim(model.train_on_batch(X, Y)) == 0
    assert set(model.train_on_batch(X, Y, return_dict=True)) == {"loss", "sparsity"}
    model.compile("adam", LOSS, metrics=["accuracy"])
    assert len(model.train_on_batch(X, Y)) == 2


def test_a_layer_that_another_model_prunes_is_rejected_until_that_model_is_stripped():
    shared = keras.layers.Dense(8, name="shared")
    first = keras.Sequential([keras.Input((8,)), shared, keras.layers.Dense(3)])
    second = keras.Sequential([keras.Input((8,)), shared, keras.layers.Dense(4)], name="two")
    prune(first, Magnitude(0.5))
    with pytest.raises(InputError, match="shared of two is already pruned as a part of another model"):
        prune(second, Supermask(0.5, total_steps=10))
    assert type(second) is keras.Sequential and type(second.layers[1]) is keras.layers.Dense
    strip_pruning(first)
    assert len(prune(second, Supermask(0.5, total_steps=10)).pruning.gates) == 2


def test_keras_compiles_with_xla_unless_the_method_does_not_support_it(compiled):
    def history(**options):
        keras.utils.set_random_seed(5)
        model = prune(sequential(), Supermask(0.5, 4, schedule=Schedule(begin=0.2, end=0.8)))
        model.compile(keras.optimizers.Adam(0.01), LOSS, **options)
        return model, model.fit(X, Y, batch_size=8, shuffle=False, epochs=2, verbose=0).history

    (model, metrics), (_, expected) = history(jit_compile=True), history(jit_compile=False)
    assert model.jit_compile and metrics["sparsity"][-1] == pytest.approx(0.5, abs=0.01)
    for name, values in expected.items():
        assert metrics[name] == pytest.approx(values, rel=1e-6, abs=1e-6)

    class Own(Supermask):
        supports_jit = False

    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        prune(model := sequential(), Own(0.5, 10)).compile("adam", LOSS, jit_compile=True)
    assert not model.jit_compile
    strip_pruning(model)
    assert all(layer.supports_jit for layer in model._flatten_layers())


def test_compiled_functions_of_models_with_the_same_layers_are_not_used_after_prune_and_strip(compiled):
    shared = keras.layers.Dense(3, use_bias=False)
    model, other = (keras.Sequential([keras.Input((8,)), shared]) for _ in range(2))
    before = other.predict(X[:, 0], verbose=0)
    prune(model, Magnitude(0.5))
    pruned = other.predict(X[:, 0], verbose=0)
    np.testing.assert_allclose(pruned, model.predict(X[:, 0], verbose=0))
    assert np.any(before != pruned)
    strip_pruning(model)
    shared.kernel.assign(2 * shared.kernel)
    np.testing.assert_allclose(other.predict(X[:, 0], verbose=0), 2 * pruned, rtol=1e-5)


def test_functions_that_generate_has_traced_are_not_used_after_prune_and_strip():
    class Writer(keras.Sequential):  # as KerasHub's tasks
        generate_function = None

        def generate(self, x):
            if self.generate_function is None:
                self.generate_function = tf.function(self)
            return self.generate_function(x)

    model = Writer(sequential().layers)
    before = np.asarray(model.generate(X))
    prune(model, Magnitude(0.9))
    pruned = np.asarray(model.generate(X))
    np.testing.assert_allclose(pruned, model(X), atol=1e-6)
    assert np.any(pruned != before)
    strip_pruning(model)
    assert model.generate_function is None
    assert "generate_function" not in vars(strip_pruning(prune(sequential(), Magnitude(0.9))))


@pytest.mark.parametrize("copied", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy])
def test_a_pruned_model_is_pickled_and_copied(copied):
    model = trained(sequential(), Supermask(0.5, total_steps=16))
    again = copied(model)
    assert type(again) is type(model) and int(again.pruning.steps_done) == 8
    np.testing.assert_array_equal(again(X), model(X))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.quantize("int8"), r"small is pruned: call sc\.strip_pruning on it before model"),
        (lambda model: model.save_to_preset("preset"), r"on it before save_to_preset, or save it"),
    ],
)
def test_what_needs_a_model_without_gates_is_refused(call, message):
    layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(4)]
    model = prune(keras.Sequential([keras.Input((8,)), *layers], name="small"), Magnitude(0.5), skip="first")
    with pytest.raises(InputError, match=message):
        call(model)
    assert [layer.quantization_mode for layer in layers] == [None, None]
    strip_pruning(model).quantize("int8")
    assert [layer.quantization_mode for layer in layers] == ["int8", "int8"]


@pytest.mark.slow
def test_a_clone_can_be_trained_and_pruned():
    model = prune(functional(), Magnitude(0.5))
    clone = keras.models.clone_model(model)
    assert type(clone) is type(functional())
    trained(clone, Magnitude(0.5))
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone(X), model(X), atol=1e-6)


def test_a_model_with_a_custom_compile_is_loaded_without_optimizer(tmp_path):
    @keras.saving.register_keras_serializable("tests")
    class Compiled(keras.Sequential):
        def compile(self, *, rate):
            super().compile(keras.optimizers.SGD(rate), LOSS)

    model = prune(Compiled([keras.Input((3, 8)), *sequential().layers]), Magnitude(0.5))
    model.compile(rate=0.1)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "compiled.keras")
    with pytest.warns(UserWarning, match="model's `compile.*` method is custom"):
        again = keras.models.load_model(tmp_path / "compiled.keras")
    np.testing.assert_allclose(again(X), model(X), atol=1e-6)
    again.compile(rate=0.1)
    again.fit(X, Y, verbose=0)


@pytest.mark.slow
def test_spectral_normalization_of_a_pruned_layer_is_saved_and_loaded(tmp_path):
    normalized = keras.layers.SpectralNormalization(keras.layers.Dense(6))
    model = keras.Sequential([keras.Input((3, 8)), keras.layers.Flatten(), normalized, keras.layers.Dense(3)])
    trained(model, Magnitude(0.5)).save(tmp_path / "normalized.keras")
    again = keras.models.load_model(tmp_path / "normalized.keras")
    for network in (model, again):
        network.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(again(X), model(X), atol=1e-5)
    assert strip_pruning(again).layers[1].kernel is again.layers[1].layer.kernel


@pytest.mark.slow
def test_load_weights_restores_the_state_of_a_compiled_model(tmp_path):
    model = trained(sequential(), Supermask(0.5, total_steps=16))
    model.save_weights(tmp_path / "half.weights.h5")
    again = prune(sequential(), Supermask(0.5, total_steps=16))
    again.compile(keras.optimizers.AdamW(0.01), LOSS, metrics=["accuracy"])
    again.load_weights(tmp_path / "half.weights.h5")
    assert int(again.pruning.steps_done) == int(again.optimizer.iterations) == 8
    for mine, theirs in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["file", "weights"])
def test_pruning_goes_on_if_the_optimizer_is_compiled_after_loading(order, tmp_path):
    model = prune(sequential(), Supermask(0.8, total_steps=4))
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, verbose=0)
    model.save(tmp_path / "a.keras")
    model.save_weights(tmp_path / "a.weights.h5")
    if order == "file":
        again = keras.models.load_model(tmp_path / "a.keras", compile=False)
    else:
        again = prune(sequential(), Supermask(0.8, total_steps=4))
        again.load_weights(tmp_path / "a.weights.h5")
    assert int(again.pruning.steps_done) == 4
    again.compile("adam", LOSS)
    assert again.fit(X, Y, batch_size=4, verbose=0).history["sparsity"][0] == pytest.approx(0.8, abs=0.02)
    other = prune(sequential(), Magnitude(0.5))
    with pytest.warns(UserWarning, match="the state of Magnitude was not loaded, because the file"):
        other.load_weights(tmp_path / "a.weights.h5")


@pytest.mark.parametrize("make", [functional, sequential])
def test_keras_refuses_the_weights_of_a_pruned_model_for_one_without_gates(make, tmp_path):
    model = prune(make(), Magnitude(0.5))
    model.save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(ValueError, match="could not be loaded"):
        make().load_weights(tmp_path / "a.weights.h5")
    strip_pruning(model).save_weights(tmp_path / "b.weights.h5")
    stock = make()
    stock.load_weights(tmp_path / "b.weights.h5")
    np.testing.assert_array_equal(stock.predict(X, verbose=0), model.predict(X, verbose=0))


def test_a_pruned_model_with_lora_weights_is_saved_and_loaded(tmp_path):
    model = trained(sequential(), Supermask(0.5, total_steps=8))
    model.layers[1].enable_lora(2)
    model.save(tmp_path / "adapted.keras")
    again = keras.saving.load_model(tmp_path / "adapted.keras", compile=False)
    np.testing.assert_allclose(again(X), model(X), atol=1e-6)
    assert float(again.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
