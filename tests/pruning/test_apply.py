"""prune and strip_pruning on all kinds of Keras models."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import Schedule, Supermask, SupermaskLoss, layers, prune, strip_pruning
from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate, gated_layers, gates
from tfsparsecap.pruning import LotteryTicket, Magnitude

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 3, 8)).astype("float32")
Y = RANDOM.integers(0, 3, 16)
LOSS = "sparse_categorical_crossentropy"


def sequential():
    layers = [keras.layers.Flatten(), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")]
    return keras.Sequential([keras.Input((3, 8)), *layers])


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
    x = keras.layers.Flatten()(inner(inner(inputs)))  # a shared layer too
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
    """Built like KerasHub's transformers: EinsumDense and normalisation inside a custom layer."""

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


@pytest.mark.slow
@pytest.mark.parametrize("make", MODELS)
def test_any_kind_of_model_can_be_pruned_trained_and_stripped(make):
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


def test_stored_weights_do_not_change_until_stripping():
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


def test_layers_without_gates_are_listed_with_the_reason():
    inputs = keras.Input((3, 8))
    x = keras.layers.Dense(8, name="frozen", trainable=False)(inputs)
    x = keras.layers.Flatten()(keras.layers.PReLU(name="slopes")(x))
    x = keras.layers.Dense(8, name="half")(keras.layers.LayerNormalization(name="norm")(x))
    quantized = keras.layers.Dense(8, name="quantized")
    adapted = keras.layers.Dense(8, name="adapted")
    x = adapted(quantized(x))
    model = keras.Model(inputs, keras.layers.Dense(3, name="kept")(x), name="mine")
    quantized.quantize("int8")
    adapted.enable_lora(2)
    prune(model, Supermask(0.5, total_steps=10), skip="half")
    reasons = {path.rpartition("/")[2]: why for path, why in model.pruning.ungated_layers.items()}
    assert reasons == {
        "frozen": "it is not trainable",
        "slopes": "PReLU has no gated form",
        "norm": "LayerNormalization has no gated form",
        "half": "skipped",
        "quantized": "it is quantized",
        "adapted": "it has LoRA weights",
    }
    assert [layer.name for layer in gated_layers(model)] == ["kept"]
    assert "24 weights have gates, in 1 tensor" in model.pruning.describe()
    assert "norm (LayerNormalization has no gated form)" in model.pruning.describe()


def test_large_weights_that_stay_dense_are_named_before_training():
    class Product(keras.layers.Layer):
        def build(self, shape):
            self.matrix = self.add_weight((shape[-1], 150), name="matrix")
            self.table = self.add_weight((400, 8), name="table", trainable=False)
            self.small = self.add_weight((8, 8), name="small")

        def call(self, x):
            return keras.ops.matmul(x, self.matrix)

    def make(name):
        adapted = keras.layers.Dense(150, name="adapted")
        parts = [Product(name="own"), adapted, keras.layers.Dense(150, name="frozen", trainable=False)]
        model = keras.Sequential([keras.Input((8,)), *parts, keras.layers.Dense(3)], name=name)
        adapted.enable_lora(2)
        return model

    with pytest.warns(UserWarning, match="mine has large weights that stay dense") as caught:
        prune(make("mine"), Supermask(0.5, total_steps=10))
    message = str(caught[0].message)
    assert caught[0].filename == __file__
    assert "own/matrix (1200 weights; Product has no gated form)" in message
    assert "adapted/kernel (22500 weights; it has LoRA weights)" in message
    assert not [name for name in ("table", "small", "frozen", "dense_") if name in message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(make("other"), Supermask(0.5, total_steps=10), skip=["own", "adapted"])


def test_skipping_a_layer_skips_its_sublayers():
    model = attention()
    prune(model, Supermask(0.5, total_steps=10), skip=[model.layers[1].name])
    assert [type(layer).__name__ for layer in gated_layers(model)] == ["GatedDense"]
    model = nested()
    prune(model, Supermask(0.5, total_steps=10), skip="inner")
    assert len(gated_layers(model)) == 1
    model = subclassed()
    prune(model, Supermask(0.5, total_steps=10), skip=["head"])
    assert len(gated_layers(model)) == 2


def test_skip_takes_layers_and_patterns_too():
    for skip in (lambda layer: layer, lambda layer: [layer], lambda layer: f"{layer.name[:-1]}*"):
        model = sequential()
        model.layers[-1].name = "output"
        prune(model, Supermask(0.5, total_steps=10), skip=skip(model.layers[-1]))
        assert [type(layer).__name__ for layer in model.layers] == ["Flatten", "GatedDense", "Dense"]


class Tied(keras.layers.Layer):
    def __init__(self, table, **options):
        super().__init__(**options)
        self.table = table

    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.table))


@pytest.mark.parametrize("user", ["layer", "operation"])
def test_a_weight_that_something_else_reads_without_its_gates_gets_none(user):
    tokens = keras.Input((4,), dtype="int32")
    embedding = keras.layers.Embedding(40, 32, name="words")
    x = keras.layers.Dense(32, name="hidden")(embedding(tokens))
    if user == "layer":
        outputs = Tied(embedding.embeddings, name="scores")(x)
    else:
        outputs = keras.ops.einsum("btd,vd->btv", x, embedding.embeddings)
    model = keras.Model(tokens, outputs)
    with pytest.warns(UserWarning, match=r"words/embeddings \(1280 weights; .* uses its embeddings, too\)"):
        prune(model, Supermask(0.5, total_steps=10))
    assert [layer.name for layer in gated_layers(model)] == ["hidden"]


def test_gates_that_exist_keep_their_blocks_with_a_warning():
    model = keras.models.clone_model(prune(sequential(), Supermask(0.5, total_steps=10)))
    with pytest.warns(UserWarning, match=r"dense\w* has blocks of \(1, 1\), .* strip_pruning"):
        prune(model, Supermask(0.5, total_steps=10, block_shape=(4, 1)))


def frozen_below():
    """A model whose layers are all frozen except the output layer."""
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
    below(X, training=True)  # changes the moving averages
    below.trainable = False
    return keras.Sequential(
        [keras.Input((3, 8)), below, keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
    )


def without_gates(model):
    return {weight.path: np.asarray(weight) for weight in model.weights if "gate" not in weight.path}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        lambda: SupermaskLoss(0.6, total_steps=12, schedule=Schedule(end=0.5)),
        lambda: LotteryTicket(0.6, total_steps=12),
    ],
)
def test_prune_frozen_prunes_frozen_layers_without_changing_their_weights(method):
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


def test_frozen_layers_get_no_gates_by_default():
    model = frozen_below()
    prune(model, Supermask(0.5, total_steps=10))
    assert len(gates(model)) == 1
    assert list(model.pruning.ungated_layers.values()).count("it is not trainable") == 3
    strip_pruning(model)
    prune(model, Supermask(0.5, total_steps=10), prune_frozen=True, skip="dense_below")
    assert len(gates(model)) == 3
    assert sorted(model.pruning.ungated_layers.values()) == [
        "BatchNormalization has no gated form",
        "skipped",
    ]


@pytest.mark.slow
def test_gates_of_a_completely_frozen_model_learn():
    keras.utils.set_random_seed(1)
    model = functional()
    model.trainable = False
    weights = without_gates(model)
    prune(model, Supermask(0.6, total_steps=12), prune_frozen=True)
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


def test_a_layer_that_loses_nearly_all_weights_is_named():
    def model():
        ids = keras.Input((6,), dtype="int32")
        table = keras.layers.Embedding(300, 32, name="table")(ids)  # initialised in ±0.05
        return keras.Model(ids, keras.layers.Dense(40)(keras.layers.Flatten()(table)))

    with pytest.warns(
        UserWarning,
        match=r"table/embeddings keeps 0 of 9,600; name these layers in skip, .*table', or set alloc",
    ):
        prune(model(), Magnitude(0.7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(model(), Magnitude(0.7, allocation="uniform"))


def test_of_many_emptied_layers_three_are_named():
    ids, small = keras.Input((6,), dtype="int32"), keras.initializers.RandomUniform(-1e-6, 1e-6)
    tables = [keras.layers.Embedding(300, 8, small, name=f"table_{number}")(ids) for number in range(5)]
    words = keras.layers.Flatten()(keras.layers.Concatenate()(tables))
    model = keras.Model(ids, keras.layers.Dense(40)(words))
    with pytest.warns(UserWarning, match="table_2/embeddings keeps 0 of 2,400 and 2 more; name") as caught:
        prune(model, Magnitude(0.56))
    assert "table_3" not in str(caught[0].message)


def test_existing_gated_layers_are_pruned_and_stripped_with_and_without_prune():
    parts = [keras.layers.RNN(layers.GatedLSTMCell(4)), layers.GatedDense(4, block_shape=(4, 1))]
    model = keras.Sequential([keras.Input((3, 8)), *parts])
    assert [gate.block for gate in prune(model, SupermaskLoss(0.5, 10)).pruning.gates][-1] == (4, 1)
    assert model.pruning.ungated_layers == {}
    model.pruning.detach()
    for gate in gates(model):
        gate.logits.assign(RANDOM.normal(size=gate.logits.shape))
    before = np.asarray(model(X))
    strip_pruning(model)
    assert type(model.layers[0].cell) is keras.layers.LSTMCell
    assert not any(isinstance(layer, Gate) for layer in model._flatten_layers())
    assert "tfsparsecap" not in model.to_json()
    np.testing.assert_allclose(model(X), before, atol=1e-6)


def of_own_class():
    cls = type("Mine", (layers.GatedDense,), {})
    return keras.Sequential([keras.Input((8,)), cls(4, name="special")])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda method: prune(keras.Sequential([keras.layers.Dense(3)]), method), "is not built"),
        (lambda method: prune(prune(sequential(), Supermask(0.5, 10)), method), "is already pruned"),
        (
            lambda method: prune(
                keras.Sequential([keras.Input((3, 8)), prune(sequential(), Supermask(0.5, 10))]), method
            ),
            "is already",
        ),
        (
            lambda method: prune(keras.Sequential([keras.Input((8,)), keras.layers.ReLU()]), method),
            "no weights",
        ),
        (lambda method: prune("model.keras", method), "takes a Keras 3 model"),
        (lambda method: prune(sequential(), method, sparsity=0.7), "pass them to Supermask"),
        (lambda method: prune(sequential(), method, skip="no_such"), "'no_such', but"),
        (lambda method: prune(sequential(), method, skip=3), "skip contains 3: give layers"),
        (lambda method: prune(of_own_class(), method, skip="special"), "special, which has gates"),
        (lambda method: strip_pruning(prune(nested(), method).get_layer("inner")), "inner is a part of"),
        (lambda method: strip_pruning(of_own_class()), "special is a Mine"),
    ],
)
def test_models_and_arguments_that_cannot_be_used_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(Supermask(0.5, total_steps=10))


def test_stripping_merges_lora_weights():
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Conv1D(8, 3)(keras.layers.Embedding(10, 8)(inputs))
    x = keras.layers.EinsumDense("abc,cd->abd", (None, 5))(x)
    model = prune(keras.Model(inputs, keras.layers.Dense(3)(x)), Magnitude(0.5, allocation="uniform"))
    for layer in gated_layers(model):
        layer.enable_lora(2)
        for weight in layer.weights:
            if "lora" in weight.path:
                weight.assign(RANDOM.normal(size=weight.shape))
    ids = RANDOM.integers(0, 10, (2, 6))
    before = np.asarray(model(ids))
    strip_pruning(model)
    np.testing.assert_allclose(model(ids), before, atol=1e-6)
    assert not any("lora" in weight.path for weight in model.weights)
    assert len(model.trainable_variables) == len(model.weights) == 6
    for layer in model.layers[1:]:
        assert not layer.lora_enabled and not layer.get_config().get("lora_rank")
        assert np.mean(np.asarray(layer.weights[0]) == 0) == pytest.approx(0.5, abs=0.04)
        layer.enable_lora(2)  # again


def test_a_model_is_stripped_after_a_layer_was_removed():
    model = prune(keras.Sequential([keras.Input((8,)), *map(keras.layers.Dense, (4, 3))]), Magnitude(0.5))
    removed = model.layers[-1]
    model.pop()
    model.add(keras.layers.Dense(2))
    strip_pruning(model)
    assert [type(layer) for layer in model.layers] == [keras.layers.Dense] * 2
    assert type(strip_pruning(removed)) is keras.layers.Dense
    prune(model, Magnitude(0.5))


@pytest.mark.slow
def test_gates_of_frozen_layers_learn_after_the_model_is_loaded(tmp_path):
    keras.utils.set_random_seed(1)
    model = frozen_below()
    prune(model, SupermaskLoss(0.5, total_steps=8, schedule=Schedule(end=0.5)), prune_frozen=True)
    model.compile("adam", LOSS)
    model.fit(X, Y, batch_size=4, epochs=1, verbose=0)
    model.save(tmp_path / "pruned.keras")
    again = keras.saving.load_model(tmp_path / "pruned.keras")
    assert [gate.independent for gate in gates(again)] == [True, True, True, False]
    assert len(again.trainable_variables) == len(model.trainable_variables) == 4 + 2
    for network in (model, again):
        network.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        assert float(network.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.01)
    for mine, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6, err_msg=mine.path)
    for gate in gates(again):
        gate.logits.assign(tf.zeros_like(gate.logits))
    first, second = (np.asarray(again(X, training=True)) for _ in range(2))
    assert np.any(first != second)
