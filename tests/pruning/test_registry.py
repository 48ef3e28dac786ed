"""All methods by name, on a model with all kinds of layers that have weights."""

import keras
import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.layers.gated import GatedLayer
from tfsparsecap.pruning import registry
from tfsparsecap.pruning.apply import prune, strip_pruning

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(16, 8, 8, 4)).astype("float32")
WORDS = RANDOM.integers(0, 30, (16, 3))
LABELS = RANDOM.integers(0, 3, 16)

#: Options that methods need besides sparsity and steps.
OPTIONS = {
    "relevance": {"lower_bound": 0.0, "metric": "val_accuracy", "pruning_percentage": 0.4},
    "l1": {"lower_bound": 0.0, "metric": "val_accuracy", "pruning_percentage": 0.4},
    "l2": {"lower_bound": 0.0, "metric": "val_accuracy", "pruning_percentage": 0.4},
    "supermask_loss": {"end": 0.7},
}
EPOCHS = 4


def everything():
    keras.utils.set_random_seed(2)
    image, words = keras.Input((8, 8, 4)), keras.Input((3,), dtype="int32")
    x = keras.layers.Conv2D(8, 3, use_bias=False)(image)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.DepthwiseConv2D(3)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    y = keras.layers.Embedding(30, 16)(words)
    y = keras.layers.Conv1D(16, 2, padding="same")(y)
    y = keras.layers.MultiHeadAttention(2, 8)(y, y)
    y = keras.layers.RNN([keras.layers.LSTMCell(8), keras.layers.GRUCell(8)])(y)
    joined = keras.layers.LayerNormalization()(keras.layers.Concatenate()([x, y]))
    return keras.Model([image, words], keras.layers.Dense(3, activation="softmax")(joined))


def kernels(model):
    return [
        np.asarray(weight)
        for weight in model.trainable_weights
        if len(weight.shape) >= 2 and not weight.path.endswith("bias") and "normalization" not in weight.path
    ]


def others(model):
    """Path -> weights that must never be pruned: biases, even two-dimensional ones, and normalisation."""
    ending = ("/bias", "/gamma", "/beta")
    return {weight.path: weight for weight in model.trainable_weights if weight.path.endswith(ending)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["supermask_loss", "relevance"])  # the others need less of a layer
def test_every_method_prunes_every_kind_of_layer_in_fit(name):
    model = everything()
    types = [type(layer) for layer in model.layers]
    assert len(others(model)) == 13
    assert sum(len(variable.shape) == 2 for variable in others(model).values()) == 4
    for weight in others(model).values():
        weight.assign(np.ones(weight.shape))
    model = prune(model, name, sparsity=0.5, total_steps=EPOCHS, block_shape=(4, 1), **OPTIONS.get(name, {}))
    gated = {type(layer).__name__ for layer in model._flatten_layers() if isinstance(layer, GatedLayer)}
    assert gated == {
        "GatedConv2D",
        "GatedDepthwiseConv2D",
        "GatedEmbedding",
        "GatedConv1D",
        "GatedEinsumDense",
        "GatedLSTMCell",
        "GatedGRUCell",
        "GatedDense",
    }
    assert len(model.pruning.classes()) == len(model.pruning.gates) == 13
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=True
    )
    inputs = [IMAGES, WORDS]
    model.fit(inputs, LABELS, batch_size=16, epochs=EPOCHS, validation_data=(inputs, LABELS), verbose=0)
    reached = float(model.pruning.current_sparsity())
    assert model.get_state_tree()["optimizer_variables"]  # all variables have different names
    trained = {path: np.array(weight) for path, weight in others(model).items()}
    model = strip_pruning(model)
    assert [type(layer) for layer in model.layers] == types
    weights = kernels(model)
    zeros = 1 - sum(map(np.count_nonzero, weights)) / sum(weight.size for weight in weights)
    assert zeros == pytest.approx(reached, abs=1e-3)
    assert zeros == pytest.approx(0.5, abs=0.02)
    assert len(trained) == 13
    for path, weight in others(model).items():
        np.testing.assert_array_equal(weight, trained[path])
        assert (np.asarray(weight) > 0.5).all(), path
    blocks = (np.asarray(model.layers[-1].kernel) != 0).reshape(-1, 4, 3)
    assert (blocks.all(1) | ~blocks.any(1)).all()


# The training on two replicas, in test_optimizer.py, compiles the others.
@pytest.mark.parametrize("name", ["gradual", "magnitude", "supermask_loss", "l1"])
def test_compiled_training_equals_eager_training(name, compiled):
    options = {**OPTIONS.get(name, {}), "sparsity": 0.5, "total_steps": 4}
    weights = []
    for eager in (False, True):
        keras.utils.set_random_seed(2)
        model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(3)])
        prune(model, name, **options)
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=eager)
        for _ in range(4):
            model.train_on_batch(WORDS[:, [0, 1] * 6] / 30, IMAGES[:, 0, 0, :3])
            if hasattr(model.pruning, "on_validation_end"):
                model.pruning.on_validation_end({"val_accuracy": 1.0})
        weights.append(model.get_weights())
        assert float(model.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.02)
    for compiled_weight, eager_weight in zip(*weights, strict=True):
        np.testing.assert_allclose(compiled_weight, eager_weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(registry.METHODS))
def test_every_method_is_exported_and_is_rebuilt_from_its_config(name):
    cls = registry.METHODS[name]
    assert getattr(sc, cls.__name__) is cls
    options = {"sparsity": 0.5, "total_steps": 40, **OPTIONS.get(name, {})}
    method = registry.get(name, **options)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(method))
    assert type(again) is cls and again.get_config() == method.get_config()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gradul", {}, "no pruning method 'gradul': did you mean gradual"),
        ("xyz", {}, "choose one of"),
        ("gradual", {"sparsity": 0.9}, "'gradual': missing a required argument: 'total_steps'"),
        ("relevance", {"metric": "loss"}, "'relevance': missing a required argument: 'lower_bound'"),
        ("magnitude", {"sparsity": 0.9, "end": 0.5}, "'end'; its options are sparsity, .*, begin$"),
        ("snip", {"sparsity": 0.9, "zzz": 1}, "'zzz'; its options are sparsity, total_steps, block_shape"),
    ],
)
def test_unknown_names_and_wrong_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        registry.get(name, **options)
