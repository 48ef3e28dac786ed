"""Slim models compute what the whole model computes without the removed channels."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from benchmarks.zero_channels import clear_kernels
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.plan import slim
from tfsparsecap.slimming.rebuild import rebuild


def half(analysis, multiple=1):
    removed = []
    for group in analysis.groups:
        block = group.block(multiple)
        removed.append(group.classes[: group.size // 2 // block * block])
    return analysis.alive(np.concatenate(removed))


@pytest.mark.slow
def test_a_rebuilt_network_equals_the_whole_with_zeros(network, batch):
    """A convolution's channel contributes nothing if the kernels that take it are zero."""
    analysis = Analysis(trace(network))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    x = batch(network, np.random.default_rng(0))
    expected = network(x)
    np.testing.assert_array_equal(copy(x), expected)
    assert copy.name == network.name and type(copy) is type(network)
    assert getattr(copy, "output_names", None) == getattr(network, "output_names", None)
    paths = [
        [weight.path.removeprefix(f"{model.name}/") for weight in model.weights] for model in (copy, network)
    ]
    assert paths[0] == paths[1]
    alive = half(analysis)
    small = rebuild(analysis, alive)[0]
    assert small(x).shape == expected.shape
    assert small.count_params() < 0.6 * network.count_params()
    clear_kernels(analysis, ~alive)
    if not analysis.mixed.any():
        np.testing.assert_allclose(small(x), network(x), atol=1e-5)


def test_scores_keep_their_scale_when_keys_shrink():
    inputs = keras.Input((5, 8))
    attention = layers.MultiHeadAttention(2, 16, name="attention")
    model = keras.Model(inputs, layers.Dense(3)(attention(inputs, inputs)))
    for dense in (attention.query_dense, attention.key_dense):
        for variable in (dense.kernel, dense.bias):
            value = variable.numpy()
            value[..., 4:] = 0
            variable.assign(value)
    analysis = Analysis(trace(model))
    (keys,) = [group for group in analysis.groups if group.unit == "key size"]
    slim = rebuild(analysis, analysis.alive(keys.classes[4:]))[0]
    assert slim.get_layer("attention").key_dim == 4
    x = np.random.default_rng(0).random((2, 5, 8), "float32")
    np.testing.assert_allclose(slim(x), model(x), atol=1e-5)


def test_heads_of_window_attention_go_with_their_biases(networks, tmp_path):
    model, rng = networks["windows"](), np.random.default_rng(0)
    attention = model.get_layer("attention")
    for variable in attention.weights:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    kernel = attention.proj.kernel.numpy().reshape(4, 6, 24)
    kernel[[0, 2]] = 0
    attention.proj.kernel.assign(kernel.reshape(24, 24))
    analysis = Analysis(trace(model))
    (heads,) = [group for group in analysis.groups if group.unit == "heads"]
    slim = rebuild(analysis, analysis.alive(heads.classes[[0, 2]]))[0]
    small = slim.get_layer("attention")
    assert (small.heads, small.head_size, small.qkv.units) == (2, 6, 36)
    np.testing.assert_array_equal(small.attention_biases, attention.attention_biases.numpy()[[1, 3]])
    x = rng.random((2, 6, 7, 3), "float32")
    np.testing.assert_allclose(slim(x), model(x), atol=1e-5)
    slim.save(tmp_path / "slim.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "slim.keras")(x), slim(x))


@pytest.mark.slow
def test_the_slim_model_is_stock_keras_that_trains_and_saves(networks, batch, tmp_path):
    network = networks["squeeze_excite"]()
    before = [weight.numpy() for weight in network.weights]
    analysis = Analysis(trace(network))
    slim = rebuild(analysis, half(analysis, 4))[0]
    assert type(slim) is type(network)
    slim.compile("adam", "mse", run_eagerly=True)
    x = batch(network, np.random.default_rng(0))
    slim.fit(x, np.zeros(network(x).shape), epochs=1, verbose=0)
    for old, now in zip(before, network.weights, strict=True):
        np.testing.assert_array_equal(old, now)
    slim.save(tmp_path / "slim.keras")
    loaded = keras.saving.load_model(tmp_path / "slim.keras")
    np.testing.assert_allclose(loaded(x), slim(x), atol=1e-6)


def test_names_structures_and_frozen_layers_are_kept():
    base = keras.Sequential([keras.Input((4,)), layers.Dense(8, name="a")], name="base")
    base.trainable = False
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    joined = layers.Concatenate()([base(left), layers.Dense(8, name="a")(right)])
    outputs = {"sum": layers.Dense(2, name="sum")(joined)}
    model = keras.Model({"left": left, "right": right}, outputs)
    analysis = Analysis(trace(model))
    slim = rebuild(analysis, half(analysis))[0]
    x = {name: np.ones((3, 4), "float32") for name in ("left", "right")}
    assert slim(x)["sum"].shape == (3, 2)
    assert {layer.name for layer in slim.layers} >= {"a", "a_2", "left", "right"}
    assert {slim.get_layer(name).trainable for name in ("a", "a_2")} == {False, True}


class Shifted(layers.Layer):
    """A layer without a configuration: its argument has no default, and is not stored."""

    def __init__(self, offset):
        super().__init__(name="shifted")
        self.offset = offset + 0.0

    def call(self, inputs):
        return inputs + self.offset


def test_layers_inside_frozen_layers_stay_frozen():
    inputs = keras.Input((6, 16))
    attention = layers.MultiHeadAttention(2, 8, name="attention")
    outputs = layers.Dense(4)(layers.Dense(32)(attention(inputs, inputs)))
    model = keras.Model(inputs, outputs)
    attention.trainable = False
    slim = rebuild(Analysis(trace(model)), np.ones(10**4, bool))[0]
    slim_paths, paths = ([weight.path for weight in network.trainable_weights] for network in (slim, model))
    assert slim_paths == paths
    assert len(model.trainable_weights) == 4
    attention.trainable = True
    attention.query_dense.trainable = False
    assert len(rebuild(Analysis(trace(model)), np.ones(10**4, bool))[0].trainable_weights) == 10


def test_a_layer_that_cannot_be_copied_is_named():
    inputs = keras.Input((4,))
    x = Shifted(np.ones(8))(layers.Dense(8)(inputs))
    analysis = Analysis(trace(keras.Model(inputs, layers.Dense(2)(x), name="shifting")))
    with pytest.raises(InputError, match=r"shifted of shifting, a Shifted, cannot be copied: use keras.ops"):
        rebuild(analysis, analysis.alive(np.array([], int)))[0]


def test_lambdas_and_layers_that_do_not_store_their_name_are_copied():
    offset = 3.0

    class Halved(layers.Layer):
        def get_config(self):
            return {}

        def call(self, inputs):
            return inputs / 2

    inputs = keras.Input((4,))
    x = layers.Lambda(lambda x: x + offset, name="more")(layers.Dense(8)(inputs))
    model = keras.Model(inputs, layers.Dense(2)(Halved()(x)))
    analysis = Analysis(trace(model))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    np.testing.assert_array_equal(copy(x), model(x))
    assert copy.get_layer("more") is not model.get_layer("more")


def shared(as_dictionary):
    base = keras.Sequential([keras.Input((16,)), layers.Dense(32, "relu"), layers.Dense(4)], name="base")
    left, right = keras.Input((16,)), keras.Input((16,))
    outputs = {"left": base(left), "right": base(right)} if as_dictionary else [base(left), base(right)]
    return keras.Model([left, right], outputs)


def averaged():
    """Two networks whose layers have the same names, as if they had been loaded from two files."""
    members = []
    for name in "ab":
        keras.backend.clear_session()
        hidden = [layers.Dense(32, "relu"), layers.Dense(32, "relu"), layers.Dense(16)]
        members.append(keras.Sequential([keras.Input((16,)), *hidden], name=name))
    inputs = keras.Input((16,))
    return keras.Model(inputs, layers.Average()([member(inputs) for member in members]))


@pytest.mark.parametrize("make", [lambda: shared(True), averaged])
def test_names_that_occur_twice_become_free_names(make):
    model = make()
    analysis = Analysis(trace(model))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    x = [np.random.default_rng(0).normal(size=(3, 16)).astype("float32") for _ in model.inputs]
    x = x if len(x) > 1 else x[0]
    for own, expected in zip(keras.tree.flatten(copy(x)), keras.tree.flatten(model(x)), strict=True):
        np.testing.assert_array_equal(own, expected)
    assert copy.output_names == model.output_names
    half_of_it = rebuild(analysis, half(analysis))[0]
    assert half_of_it.count_params() < model.count_params()


@pytest.mark.parametrize("first", [layers.Embedding(50, 8, mask_zero=True), layers.Masking()])
def test_a_sequential_model_with_masks_stays_one(first):
    shape, dtype = ((6,), "int32") if isinstance(first, layers.Embedding) else ((6, 3), "float32")
    network = keras.Sequential([keras.Input(shape, dtype=dtype), first, layers.LSTM(4), layers.Dense(2)])
    analysis = Analysis(trace(network))
    copy = rebuild(analysis, analysis.alive(np.array([], int)))[0]
    x = np.random.default_rng(0).integers(0, 3, (4, *shape)).astype(dtype)
    x[:, 3:] = 0
    assert type(copy) is keras.Sequential and len(copy.layers) == 3
    np.testing.assert_array_equal(copy(x), network(x))


def adapted(make, values):
    layer = make()
    layer.adapt(values)
    return layer


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: layers.Normalization(), np.random.default_rng(0).normal(5, 3, (100, 1)).astype("float32")),
        (lambda: layers.Discretization(num_bins=4), np.random.default_rng(0).random((100, 1))),
        (lambda: layers.IntegerLookup(output_mode="multi_hot"), np.array([[3], [5], [5]])),
        (lambda: layers.TextVectorization(output_sequence_length=3), np.array([["a b"], ["c a"]])),
    ],
)
def test_adapted_preprocessing_layers_keep_what_they_have_learned(make, values, tmp_path):
    layer = adapted(make, values)
    dtype = {"U": "string", "i": "int64"}.get(values.dtype.kind, "float32")
    inputs = keras.Input((1,), dtype=dtype)
    x = layer(inputs)
    if keras.backend.is_float_dtype(x.dtype):
        x = layers.Dense(32)(x)
    else:
        x = layers.Flatten()(layers.Embedding(9, 32)(x))
    model = keras.Model(inputs, layers.Dense(3)(layers.Dense(32)(x)))
    examples = tf.constant(values)
    copy = slim(model, None, multiple=1)
    np.testing.assert_allclose(copy(examples), model(examples), atol=1e-6)
    small = slim(model, 0.5, multiple=1)
    small.save(tmp_path / "small.keras")
    np.testing.assert_allclose(
        keras.saving.load_model(tmp_path / "small.keras")(examples), small(examples), atol=1e-6
    )
