"""Each kind of layer and operation that no network of `conftest` contains, and those that are shared."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from keras.src.applications.convnext import LayerScale

from benchmarks.zero_channels import clear_kernels, randomize, zero_channels
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.budget import ChannelCosts
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.plan import slim
from tfsparsecap.slimming.rebuild import rebuild
from tfsparsecap.slimming.rules import register


def network(between, shape=(6, 5), first=None):
    """A normalised layer with 16 channels, what `between` makes of them, and a dense layer."""
    inputs = keras.Input(shape)
    x = layers.BatchNormalization()((first or layers.Dense(16, use_bias=False))(inputs))
    return keras.Model(inputs, layers.Dense(3)(between(x)))


def attention(x):
    scores = ops.einsum("btc,bsc->bts", x, layers.Dense(16)(x))
    return ops.einsum("bts,bsc->btc", scores, layers.Dense(16)(x))


#: Name -> a network whose channels go without any effect if no kernel uses them, except after `NORMALISED`.
CASES = {
    "EinsumDense": lambda: network(layers.EinsumDense("...x,xy->...y", 16, bias_axes="y")),
    "EinsumDense without bias": lambda: network(layers.EinsumDense("abc,cd->abd", (None, 16))),
    "Einsum": lambda: network(attention),
    "Stack": lambda: network(lambda x: ops.max(ops.stack([x, ops.relu(x)], 1), 1)),
    "BroadcastTo": lambda: network(lambda x: ops.broadcast_to(x[:, :1], (4, 6, 16))),
    "Squeeze": lambda: network(lambda x: ops.squeeze(x, 1), (1, 5)),
    "Permute": lambda: network(lambda x: layers.Flatten()(layers.Permute((2, 1))(x))),
    "RepeatVector": lambda: network(layers.RepeatVector(3), (5,)),
    "RMSNormalization": lambda: network(layers.RMSNormalization()),
    "Conv3D": lambda: network(layers.Conv3D(8, 2), (3, 4, 4, 2), layers.Conv3D(16, 1)),
    "SimpleRNN": lambda: network(layers.SimpleRNN(8)),
    "UnitNormalization": lambda: network(layers.UnitNormalization(axis=1)),
    "LayerScale": lambda: network(LayerScale(0.5, 16)),
    "Pad": lambda: network(lambda x: ops.pad(x, ((0, 0), (0, 0), (2, 1)))),
    "Pad of positions": lambda: network(lambda x: ops.pad(x, ((0, 0), (1, 1), (0, 0)))),
}
NORMALISED = {"RMSNormalization"}


def batch(model):
    """Four inputs: the number that `BroadcastTo` asks for."""
    return np.random.default_rng(0).normal(size=(4, *model.inputs[0].shape[1:])).astype("float32")


@pytest.mark.parametrize("name", CASES)
def test_channels_go_and_the_outputs_stay(name):
    model, rng = CASES[name](), np.random.default_rng(0)
    x = batch(model)
    randomize(model, x, rng)
    half = slim(model, 0.5, multiple=1, samples=[x])
    assert half.count_params() < 0.8 * model.count_params()
    assert half(x).shape == model(x).shape
    zero_channels(model, rng)
    smaller = slim(model, None, multiple=1)
    assert (smaller.count_params() == model.count_params()) == (name in NORMALISED)
    np.testing.assert_allclose(smaller(x), model(x), atol=1e-4)


class StochasticDepth(layers.Layer):
    """Like that of keras-cv for a list of a shortcut and a residual, like that of Keras for one tensor."""

    def call(self, x):
        return x[0] + 0.5 * x[1] if isinstance(x, (list, tuple)) else x


@pytest.mark.parametrize("in_list", [True, False])
def test_stochastic_depth_takes_one_tensor_or_a_list(in_list):
    inputs = keras.Input((6,))
    shortcut, residual = layers.Dense(16, name="shortcut"), layers.Dense(16, name="residual")
    parts = [shortcut(inputs), residual(inputs)]
    x = StochasticDepth()(parts) if in_list else parts[0] + StochasticDepth()(parts[1])
    model, rng = keras.Model(inputs, layers.Dense(2)(x)), np.random.default_rng(0)
    (group,) = Analysis(trace(model)).groups
    assert {source.name for source in group.sources} == {"shortcut", "residual"}
    x = rng.normal(size=(3, 6)).astype("float32")
    zero_channels(model, rng)
    smaller = slim(model, None, multiple=1)
    assert smaller.get_layer("shortcut").units == smaller.get_layer("residual").units == 8
    np.testing.assert_allclose(smaller(x), model(x), atol=1e-5)


#: Operations that hold sizes, called on two tensors: the sizes that are left must fit both.
SHARED = {
    "GetItem": lambda x: ops.relu(x[:, 2:8]),
    "Split": lambda x: ops.split(x, 2, -1)[1],
    "Pad": lambda x: ops.pad(x, ((0, 0), (2, 1))),
    "Reshape": lambda x: layers.Flatten()(layers.Permute((2, 1))(layers.Reshape((4, 4))(x))),
    "BroadcastTo": lambda x: ops.broadcast_to(x, (4, 16)),
}


@pytest.mark.parametrize("raw", [None, 1])
@pytest.mark.parametrize("name", SHARED)
def test_an_operation_with_sizes_fits_all_its_calls(name, raw):
    """Of the two tensors, `raw` is an input, whose channels stay."""
    x = keras.Input((16,))
    inner, inputs = keras.Model(x, SHARED[name](x)), keras.Input((16,))
    tensors = [inputs if place == raw else layers.Dense(16)(inputs) for place in range(2)]
    x = layers.Concatenate()([layers.Dense(4)(inner(tensor)) for tensor in tensors])
    model = keras.Model(inputs, layers.Dense(2)(x))
    x = batch(model)
    for number in range(len(Analysis(trace(model)).groups)):
        copy = keras.models.clone_model(model)
        analysis = Analysis(trace(copy))
        alive = analysis.alive(analysis.groups[number].classes[:2])
        clear_kernels(analysis, ~alive)
        np.testing.assert_allclose(rebuild(analysis, alive)[0](x), copy(x), atol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Doubled(layers.Layer):
    def call(self, x):
        return 2 * x


def test_a_layer_registers_its_rule_and_its_multiply_adds():
    model, x = network(Doubled(name="doubled"), shape=(5,)), np.ones((2, 5), "float32")
    with pytest.raises(InputError, match=r"doubled \(Doubled\) has no rule"):
        slim(model, 0.5)

    @register(Doubled)
    def doubled(scope):
        (_, axis) = scope.axes(scope.only)
        scope.count(10, (16,), (axis,))
        scope.emit([None, axis])

    analysis = Analysis(trace(model))
    assert ChannelCosts(analysis)(analysis.alive(np.array([], int))).flops == 5 * 16 + 10 * 16 + 16 * 3
    small = slim(model, 0.5)
    assert small.get_layer("doubled").output.shape == (None, 8) and small(x).shape == (2, 3)
