"""prune and strip_pruning on every kind of Keras model."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import Supermask, SupermaskLoss, layers, prune, strip_pruning
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate, gated_layers, gates
from tfsparsecap.pruning import SNIP, Gradual, LotteryTicket, Magnitude, PruningMethod

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 3, 8)).astype("float32")
Y = RANDOM.integers(0, 3, 16)
LOSS = "sparse_categorical_crossentropy"


def sequential():
    return keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dense(3, "softmax"),
        ]
    )


def functional():
    inputs = keras.Input((3, 8))
    x = keras.layers.Conv1D(8, 2, activation="relu")(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Add()([x, keras.layers.Dense(8)(x)])
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.GlobalAveragePooling1D()(x)))


def nested():
    inner = keras.Sequential(
        [keras.Input((3, 8)), keras.layers.Dense(8, "relu"), keras.layers.Dense(8)], name="inner"
    )
    inputs = keras.Input((3, 8))
    x = keras.layers.Flatten()(inner(inner(inputs)))  # shared, too
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(x))


def attention():
    inputs = keras.Input((3, 8))
    x = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs)
    x = keras.layers.LayerNormalization()(x)
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.Flatten()(x)))


def recurrent():
    return keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.LSTM(6, return_sequences=True, dropout=0.2),
            keras.layers.Bidirectional(keras.layers.GRU(4)),
            keras.layers.Dense(3, "softmax"),
        ]
    )


class Composite(keras.layers.Layer):
    """As KerasHub makes its transformers: EinsumDense and normalisation inside a layer of its own."""

    def build(self, shape):
        self.norm = keras.layers.LayerNormalization()
        self.norm.build(shape)
        self.up = keras.layers.EinsumDense("btd,df->btf", (None, 12), bias_axes="f", activation="gelu")
        self.up.build(shape)
        self.down = keras.layers.EinsumDense("btf,fd->btd", (None, shape[-1]))
        self.down.build((*shape[:-1], 12))

    def call(self, x):
        return x + self.down(self.up(self.norm(x)))


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.block, self.head = Composite(), keras.layers.Dense(3, "softmax", name="head")

    def call(self, x, training=None):
        return self.head(keras.ops.mean(self.block(x), axis=1))


def subclassed():
    model = Subclassed()
    model(X)
    return model


MODELS = [sequential, functional, nested, attention, recurrent, subclassed]


@pytest.mark.parametrize("make", MODELS)
def test_a_model_is_pruned_trained_and_stripped(make):
    keras.utils.set_random_seed(2)
    model = make()
    before = np.asarray(model(X))
    classes = [type(layer) for layer in model._flatten_layers()]
    assert prune(model, Supermask(0.75, total_steps=12)) is model
    np.testing.assert_allclose(model(X), before, atol=1e-6)  # fresh gates are open
    model.compile(keras.optimizers.Adam(1e-3), LOSS, metrics=["accuracy"])
    history = model.fit(X, Y, batch_size=4, epochs=3, verbose=0).history
    assert set(history) == {"loss", "accuracy", "sparsity"}
    assert history["sparsity"][-1] == pytest.approx(0.75, abs=0.02)
    pruned = [(layer, name) for layer in gated_layers(model) for name in layer.gate_of]
    assert len(pruned) > 1
    after = np.asarray(model(X))
    assert strip_pruning(model) is model
    assert [type(layer) for layer in model._flatten_layers()] == classes
    assert not hasattr(model, "pruning")
    np.testing.assert_allclose(model(X), after, atol=1e-6)
    kernels = [np.asarray(getattr(layer, name)) for layer, name in pruned]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    assert zeros == pytest.approx(history["sparsity"][-1], abs=1e-6)
    assert "tfsparsecap" not in str(model.get_config())


def test_a_stripped_model_is_compiled_and_trained_again():
    model = prune(sequential(), Supermask(0.75, total_steps=4))
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, verbose=0)
    strip_pruning(model)
    assert not model.get_compile_config()
    model.compile("sgd", LOSS)
    assert set(model.fit(X, Y, verbose=0).history) == {"loss"}
    assert type(model.optimizer) is keras.optimizers.SGD


def test_mobilenet_is_pruned_whole():
    model = keras.applications.MobileNet((32, 32, 3), alpha=0.25, weights=None, classes=3)
    prune(model, Supermask(0.5, total_steps=10))
    kernels = sum(
        isinstance(layer, (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)) for layer in model.layers
    )
    assert len(gates(model)) == kernels == 28
    assert set(model.pruning.left_alone.values()) == {"BatchNormalization has no gated form"}
    strip_pruning(model)
    assert "tfsparsecap" not in model.to_json()


def test_a_method_goes_by_its_name_too():
    model = prune(sequential(), "supermask", sparsity=0.5, total_steps=10)
    assert isinstance(model.pruning, Supermask)
    assert model.pruning.sparsity == 0.5


def test_blocks_are_closed_whole():
    model = functional()
    with pytest.warns(UserWarning, match="is reached only"):
        prune(model, Supermask(0.5, total_steps=8, block_shape=(4, 1)))
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    strip_pruning(model)
    kernel = np.asarray(model.layers[1].kernel)
    blocks = (kernel.reshape(-1, 4, 8) != 0).sum(1)
    assert set(np.unique(blocks)) == {0, 4}


def test_weights_are_kept_raw_until_stripped():
    model = sequential()
    kernel = np.asarray(model.layers[1].kernel)
    prune(model, Supermask(0.5, total_steps=8))
    gate = model.layers[1].kernel_gate
    closed = RANDOM.random(kernel.shape) < 0.5
    gate.logits.assign(np.where(closed, -5.0, 5.0))
    np.testing.assert_array_equal(model.layers[1].stored_weight("kernel"), kernel)
    np.testing.assert_array_equal(model.layers[1].kernel, kernel * ~closed)
    strip_pruning(model)
    np.testing.assert_array_equal(model.layers[1].kernel, kernel * ~closed)


def test_what_was_left_alone_is_told_and_why(caplog):
    inputs = keras.Input((3, 8))
    x = keras.layers.SimpleRNN(4, name="plain")(keras.layers.Dense(8, name="frozen", trainable=False)(inputs))
    x = keras.layers.Dense(8, name="half")(keras.layers.LayerNormalization(name="norm")(x))
    quantized = keras.layers.Dense(8, name="quantized")
    adapted = keras.layers.Dense(8, name="adapted")
    x = adapted(quantized(x))
    model = keras.Model(inputs, keras.layers.Dense(3, name="kept")(x), name="mine")
    quantized.quantize("int8")
    adapted.enable_lora(2)
    with caplog.at_level(logging.INFO, "tfsparsecap"):
        prune(model, Supermask(0.5, total_steps=10), skip="half")
    reasons = {path.rpartition("/")[2]: why for path, why in model.pruning.left_alone.items()}
    assert reasons == {
        "frozen": "it is not trainable",
        "simple_rnn_cell": "SimpleRNNCell has no gated form",
        "norm": "LayerNormalization has no gated form",
        "half": "asked for",
        "quantized": "it is quantized",
        "adapted": "it has LoRA weights",
    }
    assert [layer.name for layer in gated_layers(model)] == ["kept"]
    assert "mine: 24 weights in 1 layers have gates" in caplog.text
    assert "norm: LayerNormalization has no gated form" in caplog.text


def test_weights_of_the_model_itself_are_told():
    class Own(Subclassed):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(8,), name="scale")

    model = Own()
    model(X)
    prune(model, Supermask(0.5, total_steps=10))
    assert "Own has no gated form" in model.pruning.left_alone.values()


def test_skipping_a_layer_skips_what_is_in_it():
    model = attention()
    prune(model, Supermask(0.5, total_steps=10), skip=["multi_head_attention" + _number(model)])
    assert [type(layer).__name__ for layer in gated_layers(model)] == ["GatedDense"]
    model = nested()
    prune(model, Supermask(0.5, total_steps=10), skip="inner")
    assert len(gated_layers(model)) == 1
    model = subclassed()
    prune(model, Supermask(0.5, total_steps=10), skip=["head"])
    assert len(gated_layers(model)) == 2


def _number(model):
    name = next(layer.name for layer in model.layers if layer.name.startswith("multi_head_attention"))
    return name.removeprefix("multi_head_attention")


def test_layers_that_were_gated_by_hand_are_the_methods_too():
    model = keras.Sequential(
        [keras.Input((8,)), layers.GatedDense(8, block_shape=(4, 1)), keras.layers.Dense(3, "softmax")]
    )
    prune(model, SupermaskLoss(0.5, total_steps=10))
    assert [gate.block for gate in model.pruning.gates] == [(4, 1), (1, 1)]
    assert model.pruning.left_alone == {}


def test_stripping_works_without_prune():
    model = keras.Sequential(
        [keras.Input((3, 8)), keras.layers.RNN(layers.GatedLSTMCell(4)), layers.GatedDense(4)]
    )
    for gate in gates(model):
        gate.logits.assign(RANDOM.normal(size=gate.logits.shape))
    before = np.asarray(model(X))
    strip_pruning(model)
    assert type(model.layers[0].cell) is keras.layers.LSTMCell
    assert not any(isinstance(layer, Gate) for layer in model._flatten_layers())
    assert "tfsparsecap" not in model.to_json()
    np.testing.assert_allclose(model(X), before, atol=1e-6)


def test_a_model_compiled_before_keeps_its_settings_and_gets_a_fresh_optimizer():
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
    closed = model.predict(X, verbose=0)  # biases only: the function that was traced before is forgotten
    np.testing.assert_allclose(closed, np.repeat(closed[:1], 16, axis=0), atol=1e-6)
    for gate in gates(model):
        gate.logits.assign(-gate.logits)
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert set(history) == {"loss", "accuracy", "sparsity"}
    assert history["sparsity"][-1] == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("method", [Supermask, SupermaskLoss])
def test_mixed_precision_with_loss_scaling(method, compiled_before):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = sequential()
        if compiled_before:
            model.compile("adam", LOSS)
        prune(model, method(0.75, total_steps=8))
        if not compiled_before:
            model.compile("adam", LOSS)
        before = [np.asarray(gate.logits) for gate in gates(model)]
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
        assert all(np.any(old != new.logits) for old, new in zip(before, gates(model), strict=True))
        assert all(np.all(np.isfinite(weight)) for weight in model.weights)
        strip_pruning(model)
        assert model.predict(X, verbose=0).dtype == "float16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_loss_scaling_does_not_reach_the_gates():
    class Seen(PruningMethod):
        def step(self, gate_gradients):
            seen.append([np.asarray(gradient) for gradient in gate_gradients])

    gradients = {}
    for scaling in ("none", "factor", "dynamic"):
        seen = []
        keras.utils.set_random_seed(3)
        model = prune(sequential(), Seen(0.5))
        for gate in gates(model):
            gate.samples = False
        optimizer = keras.optimizers.SGD(0.1, loss_scale_factor=64.0 if scaling == "factor" else None)
        if scaling == "dynamic":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1024.0)
        model.compile(optimizer, LOSS, run_eagerly=True)
        model.train_on_batch(X, Y)
        gradients[scaling] = seen[0], model.get_weights()
    for scaling in ("factor", "dynamic"):
        for mine, plain in zip(gradients[scaling][0], gradients["none"][0], strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-8)
        for mine, plain in zip(gradients[scaling][1], gradients["none"][1], strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)


def test_training_by_hand_and_by_a_train_step_of_ones_own():
    class Own(Subclassed):
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


def test_train_on_batch_returns_what_keras_returns():
    model = prune(sequential(), Supermask(0.75, total_steps=8))
    model.compile("adam", LOSS)
    assert np.ndim(model.train_on_batch(X, Y)) == 0
    assert set(model.train_on_batch(X, Y, return_dict=True)) == {"loss", "sparsity"}
    model.compile("adam", LOSS, metrics=["accuracy"])
    assert len(model.train_on_batch(X, Y)) == 2


def test_a_compile_of_ones_own_is_called_as_it_is():
    class Own(Subclassed):
        def compile(self, first, *, second, **kwargs):
            super().compile(first, LOSS, **kwargs)
            self.second = second

    model = Own()
    model(X)
    prune(model, Supermask(0.75, total_steps=8))
    model.compile(keras.optimizers.SGD(0.1), second=2)
    assert model.second == 2
    assert model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history["sparsity"][-1] > 0.7


def test_one_draw_a_pass_whatever_the_model_does():
    class Loops(keras.Model):
        """Calls a shared layer in a loop, after a part that runs in inference."""

        def __init__(self):
            super().__init__()
            self.base, self.step = keras.layers.Dense(8), keras.layers.Dense(8, use_bias=False)

        def call(self, x, training=None):
            x = self.base(x, training=False)
            return tf.map_fn(self.step, tf.repeat(x[:1], 3, axis=0)) + self.step(x[:1])

    model = Loops()
    model(X)
    prune(model, SupermaskLoss(0.5, total_steps=10))
    model.step.kernel_gate.logits.assign(tf.zeros((8, 8)))
    run = tf.function(lambda: model(X, training=True))
    first, second = np.asarray(run()), np.asarray(run())
    np.testing.assert_allclose(first, np.repeat(first[:1], 3, axis=0))
    assert np.any(first != second)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(3)]), "is not built"),
        (lambda: prune(sequential(), Supermask(0.5, 10)), "is pruned already"),
        (
            lambda: keras.Sequential([keras.Input((8,)), keras.layers.LayerNormalization()]),
            "LayerNormalization has no",
        ),
        (lambda: keras.Sequential([keras.Input((8,)), keras.layers.ReLU()]), "no weights"),
        (lambda: "model.keras", "takes a Keras 3 model"),
    ],
)
def test_models_that_cannot_be_pruned_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        prune(make(), Supermask(0.5, total_steps=10))


def test_a_nested_pruned_model_is_refused():
    inner = prune(
        keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)], name="inside"), Supermask(0.5, 10)
    )
    outer = keras.Sequential([keras.Input((8,)), inner, keras.layers.Dense(3)])
    with pytest.raises(InputError, match="inside is pruned already"):
        prune(outer, Supermask(0.5, 10))
    strip_pruning(outer)
    assert not gates(outer)
    assert type(inner) is keras.Sequential


def test_other_mistakes_are_sentences():
    with pytest.raises(InputError, match="did you mean 'supermask'"):
        prune(sequential(), "supermusk", sparsity=0.5, total_steps=10)
    with pytest.raises(InputError, match="give them to Supermask itself"):
        prune(sequential(), Supermask(0.5, 10), sparsity=0.7)
    with pytest.raises(InputError, match=r"\['no_such'\]"):
        prune(sequential(), Supermask(0.5, 10), skip="no_such")
    method = Supermask(0.5, 10)
    prune(sequential(), method)
    with pytest.raises(InputError, match="a method of its own"):
        prune(sequential(), method)
    with pytest.raises(InputError, match="below 1"):
        Supermask(1.0, 10)


def test_a_model_that_a_method_refuses_stays_as_it_was():
    class Refuses(PruningMethod):
        def attach(self, model):
            super().attach(model)
            for gate in self.gates:
                gate.logits.assign(-gate.logits)
            raise InputError("out of reach")

    model = sequential()
    weights = model.get_weights()
    with pytest.raises(InputError, match="out of reach"):
        prune(model, Refuses(0.5))
    assert type(model) is keras.Sequential
    for mine, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(mine, before)


def test_lora_must_be_merged_before_stripping():
    model = prune(sequential(), Supermask(0.5, 10))
    model.layers[1].enable_lora(2)
    with pytest.raises(InputError, match="LoRA"):
        strip_pruning(model)


def test_a_subclass_of_a_gated_layer_has_no_stock_form():
    class Mine(layers.GatedDense):
        pass

    model = keras.Sequential([keras.Input((8,)), Mine(4, name="special")])
    with pytest.raises(InputError, match="special is a Mine"):
        strip_pruning(model)


def test_a_regularizer_goes_on_acting_on_the_raw_weight():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3, kernel_regularizer="l2")])
    before = float(sum(model.losses))
    prune(model, Supermask(0.5, 10))
    for gate in gates(model):
        gate.logits.assign(-gate.logits)
    assert float(sum(model.losses)) == pytest.approx(before)
    strip_pruning(model)
    assert float(sum(model.losses)) == 0.0


def test_xla_is_left_to_methods_that_it_can_compile():
    model = sequential()
    assert all(layer.supports_jit for layer in model._flatten_layers())
    prune(model, Supermask(0.5, 10))
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        model.compile("adam", LOSS, jit_compile=True)
    assert not model.jit_compile
    strip_pruning(model)
    assert all(layer.supports_jit for layer in model._flatten_layers())


def test_a_training_that_stopped_before_the_sparsity_was_reached_is_said():
    inputs, targets = np.ones((64, 16), "float32"), np.ones((64, 8), "float32")
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])
    prune(model, Supermask(sparsity=0.5, total_steps=1000))
    model.compile("sgd", "mse")
    model.fit(inputs, targets, batch_size=8, verbose=0)
    with pytest.warns(
        UserWarning, match=r"after 8 of the 1000 steps .* 0.0% instead of 50.0%.*total_steps=8"
    ):
        strip_pruning(model)


def frozen_below():
    """Three convolutions and batch normalisation that are frozen, under an output layer that is not."""
    below = keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.Conv1D(8, 2, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.Conv1D(16, 1, activation="relu"),
            keras.layers.Dense(8, name="dense_below"),
        ],
        name="below",
    )
    below(X, training=True)  # moves the averages off their start
    below.trainable = False
    return keras.Sequential(
        [keras.Input((3, 8)), below, keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
    )


def without_gates(model):
    return {weight.path: np.asarray(weight) for weight in model.weights if "gate" not in weight.path}


@pytest.mark.parametrize(
    "method",
    [
        lambda: Supermask(0.6, total_steps=12),
        lambda: SupermaskLoss(0.6, total_steps=12, land_at=0.5),
        lambda: Gradual(0.6, total_steps=12),
        lambda: Magnitude(0.6),
        lambda: Magnitude(0.6, total_steps=12, at=0.5),
        lambda: SNIP(0.6),
        lambda: LotteryTicket(0.6, total_steps=12),
    ],
)
def test_gates_of_frozen_layers_close_and_nothing_else_of_them_moves(method):
    keras.utils.set_random_seed(6)
    model = frozen_below()
    below, head = model.layers[0], model.layers[-1]
    frozen, kernel = without_gates(below), np.asarray(head.kernel)
    prune(model, method(), prune_frozen=True)
    assert len(gates(below)) == 3 and len(gates(model)) == 4
    model.compile(keras.optimizers.Adam(0.01, weight_decay=0.1), LOSS)
    model.fit(X, Y, batch_size=4, epochs=3, verbose=0)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.6, abs=0.01)
    opened = [float(gate.open_count()) / gate.size for gate in gates(below)]
    assert min(opened) < 1
    for path, values in without_gates(below).items():
        np.testing.assert_array_equal(values, frozen[path], err_msg=path)
    masks = {
        layer.name: np.asarray(layer.kernel_gate.expand(layer.kernel_gate.mask()))
        for layer in gated_layers(model)
    }
    predicted = np.asarray(model(X))
    strip_pruning(model)
    np.testing.assert_allclose(model(X), predicted, atol=1e-6)
    for layer in below.layers:
        if layer.name in masks:
            np.testing.assert_array_equal(layer.kernel, frozen[layer.kernel.path] * masks[layer.name])
    assert np.any(np.asarray(head.kernel) != kernel) and not below.trainable_variables


def test_frozen_layers_are_left_alone_unless_asked_for():
    model = frozen_below()
    prune(model, Supermask(0.5, total_steps=10))
    assert len(gates(model)) == 1
    assert list(model.pruning.left_alone.values()).count("it is not trainable") == 3
    strip_pruning(model)
    prune(model, Supermask(0.5, total_steps=10), prune_frozen=True, skip="dense_below")
    assert len(gates(model)) == 3
    assert sorted(model.pruning.left_alone.values()) == ["BatchNormalization has no gated form", "asked for"]


def test_gates_of_frozen_layers_stay_trainable_whatever_is_frozen_or_thawed():
    model = frozen_below()
    prune(model, SupermaskLoss(0.5, total_steps=10), prune_frozen=True)
    below, head = model.layers[0], model.layers[-1]
    logits = {id(gate.logits) for gate in gates(below)}
    weights = {
        id(variable) for variable in below._flatten_layers() for variable in variable._trainable_variables
    }
    for trainable in (True, False, False, True):
        below.trainable = trainable
        now = {id(variable) for variable in model.trainable_variables}
        assert logits <= now
        assert (weights - logits <= now) == trainable
    # A gate of a layer that was not frozen then goes with its layer, as ever.
    head.trainable = False
    assert not head.kernel_gate.trainable and id(head.kernel_gate.logits) not in {
        id(variable) for variable in model.trainable_variables
    }


@pytest.mark.parametrize("method", [Supermask, SupermaskLoss])
def test_a_model_that_is_frozen_as_a_whole_learns_its_gates(method):
    keras.utils.set_random_seed(1)
    model = functional()
    model.trainable = False
    weights = without_gates(model)
    options = {"land_at": 0.5} if method is SupermaskLoss else {}
    prune(model, method(0.6, total_steps=12, **options), prune_frozen=True)
    logits = [id(gate.logits) for gate in gates(model)]
    assert [id(variable) for variable in model.trainable_variables] == logits
    assert [id(variable) for variable in model.trainable_weights] == logits
    assert len(model.weights) == len(model.trainable_weights) + len(model.non_trainable_weights)
    assert len(model.variables) == len(model.trainable_variables) + len(model.non_trainable_variables)
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, epochs=3, verbose=0)
    assert float(model.pruning.current_sparsity()) == pytest.approx(0.6, abs=0.01)
    for path, values in without_gates(model).items():
        np.testing.assert_array_equal(values, weights[path], err_msg=path)


def test_gates_of_frozen_layers_are_drawn_and_learn_after_saving_too(tmp_path):
    keras.utils.set_random_seed(1)
    model = frozen_below()
    prune(model, SupermaskLoss(0.5, total_steps=8, land_at=0.5), prune_frozen=True)
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0)
    model.save(tmp_path / "pruned.keras")
    again = keras.saving.load_model(tmp_path / "pruned.keras")
    assert [gate.independent for gate in gates(again)] == [True, True, True, False]
    assert len(again.trainable_variables) == len(model.trainable_variables) == 4 + 2
    for one in (model, again):
        one.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        assert float(one.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
    for mine, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6, err_msg=mine.path)
    for gate in gates(again):
        gate.logits.assign(tf.zeros_like(gate.logits))
    first, second = (np.asarray(again(X, training=True)) for _ in range(2))
    assert np.any(first != second)


def test_gates_that_were_put_on_frozen_layers_by_hand_learn_when_asked_for():
    model = keras.Sequential(
        [keras.Input((8,)), layers.GatedDense(8, name="mine"), keras.layers.Dense(3, "softmax")]
    )
    mine = model.get_layer("mine")
    mine.trainable = False
    prune(model, Supermask(0.5, total_steps=10), prune_frozen=True)
    assert mine.kernel_gate.trainable and not mine._trainable_variables[0].trainable
