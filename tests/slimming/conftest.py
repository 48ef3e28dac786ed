"""Small networks whose channels are coupled in each way that slimming must respect."""

import keras
import pytest
from keras import layers, ops

from tfsparsecap.captioning.models.image_encoders.window_attention import WindowAttention


def residual():
    """A residual network: two blocks with the same shortcut."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(16, 3, padding="same", name="stem")(inputs)
    for block in range(2):
        y = layers.BatchNormalization()(x)
        y = layers.Conv2D(32, 1, name=f"wide_{block}", use_bias=False)(y)
        y = layers.BatchNormalization()(y)
        y = layers.ReLU()(y)
        y = layers.Conv2D(16, 3, padding="same", name=f"narrow_{block}", use_bias=False)(y)
        x = layers.Add()([x, layers.BatchNormalization()(y)])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(3, name="classes")(x), name="residual")


def dense_net():
    """Three convolutions, each of which takes what all before it return."""
    x = inputs = keras.Input((8, 8, 3))
    for block in range(3):
        y = layers.Conv2D(16, 3, padding="same", name=f"grow_{block}")(x)
        x = layers.Concatenate()([x, layers.ReLU()(layers.BatchNormalization()(y))])
    x = layers.AveragePooling2D(2)(x)
    x = layers.Conv2D(24, 1, name="transition")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)), name="dense_net")


def u_net():
    inputs = keras.Input((16, 16, 3))

    def block(x, filters):
        x = layers.Conv2D(filters, 3, padding="same")(x)
        return layers.Activation("relu")(layers.BatchNormalization()(x))

    fine = block(inputs, 16)
    coarse = block(layers.MaxPooling2D()(fine), 32)
    up = layers.Conv2DTranspose(16, 2, 2, name="up")(coarse)
    x = block(layers.Concatenate()([fine, up]), 16)
    return keras.Model(inputs, layers.Conv2D(2, 1, name="mask")(x), name="u_net")


def vision_transformer():
    inputs = keras.Input((16, 16, 3))
    x = layers.Reshape((16, 32))(layers.Conv2D(32, 4, 4, name="patches")(inputs))
    ones = ops.reshape(ops.ones_like(inputs[:, ::4, ::4, 0]), (-1, 16))
    positions = ops.cast(ops.cumsum(ones, axis=1) - 1, "int32")
    x = x + layers.Embedding(16, 32, name="positions")(positions)
    for block in range(2):
        y = layers.LayerNormalization()(x)
        y = layers.MultiHeadAttention(4, 16, name=f"attention_{block}")(y, y)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(64, "gelu", name=f"wide_{block}")(y)
        x = layers.Add()([x, layers.Dense(32)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(5, "softmax", name="classes")(x), name="vit")


def sequence():
    """Convolutions in one dimension, flattened before a dense layer."""
    return keras.Sequential(
        [
            keras.Input((32, 4)),
            layers.Conv1D(16, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv1D(32, 3, padding="causal", activation="relu"),
            layers.MaxPooling1D(),
            layers.Flatten(),
            layers.Dense(64, "relu"),
            layers.Dense(5),
        ],
        name="sequence",
    )


def decoder():
    inputs = keras.Input((8,))
    x = layers.Reshape((4, 4, 32))(layers.Dense(512, "relu", name="grid")(inputs))
    x = layers.Conv2DTranspose(16, 3, 2, "same", activation="relu", name="up")(x)
    return keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x), name="decoder")


def squeeze_excite():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(32, 3, padding="same", use_bias=False, name="features")(inputs)
    x = layers.Activation("swish")(layers.BatchNormalization()(x))
    gate = layers.Reshape((1, 1, 32))(layers.GlobalAveragePooling2D()(x))
    gate = layers.Conv2D(8, 1, activation="relu", name="reduce")(gate)
    x = layers.Multiply()([x, layers.Conv2D(32, 1, activation="sigmoid", name="expand")(gate)])
    x = layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")(x)
    x = layers.SeparableConv2D(16, 3, name="separable")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalMaxPooling2D()(x)), name="squeeze_excite")


def grouped():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(32, 3, name="first"),
            layers.GroupNormalization(4),
            layers.Conv2D(64, 3, groups=4, padding="same", name="grouped"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(16, 1, name="last"),
            layers.PReLU(shared_axes=[1, 2]),
            layers.GlobalMaxPooling2D(),
            layers.Dense(2),
        ],
        name="grouped_network",
    )


def recurrent():
    inputs = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 32, mask_zero=True, name="words")(inputs)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True), name="both")(x)
    x = layers.TimeDistributed(layers.Dense(16, "relu"), name="each")(x)
    x = layers.GRU(24, name="gru")(x)
    return keras.Model(inputs, layers.Dense(3)(x), name="recurrent")


def by_hand():
    """Attention of stock operations."""
    inputs = keras.Input((10, 24))

    def heads(name):
        x = ops.reshape(layers.Dense(32, name=name)(inputs), (-1, 10, 4, 8))
        return ops.transpose(x, (0, 2, 1, 3))

    scores = ops.matmul(heads("query"), ops.transpose(heads("key"), (0, 1, 3, 2)))
    x = ops.matmul(ops.softmax(scores / 8**0.5), heads("value"))
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, 10, 32))
    return keras.Model(inputs, layers.Dense(24)(x), name="by_hand")


def splits():
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(32, 3, name="features")(inputs)
    first, second = ops.split(x, 2, -1)
    x = ops.concatenate([first * 2, ops.relu(second)], -1)[..., :24]
    return keras.Model(inputs, layers.Dense(3)(ops.mean(x, axis=(1, 2))), name="splits")


def windows():
    """A block of TinyViT, with a width that is no multiple of the window."""
    inputs = keras.Input((6, 7, 3))
    x = layers.Conv2D(24, 1, name="patches")(inputs)
    x = layers.Add()([x, WindowAttention(4, 3, name="attention")(x)])
    x = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x))
    y = layers.Dense(48, "gelu", name="wide")(layers.LayerNormalization()(x))
    x = layers.GlobalAveragePooling2D()(layers.Add()([x, layers.Dense(24)(y)]))
    return keras.Model(inputs, layers.Dense(3)(x), name="windows")


NETWORKS = {
    make.__name__: make
    for make in (
        residual, dense_net, u_net, vision_transformer, sequence, decoder, squeeze_excite, grouped, recurrent,
        by_hand, splits, windows,
    )
}  # fmt: skip


@pytest.fixture
def networks():
    """Name -> function that creates a network."""
    return NETWORKS


@pytest.fixture(params=NETWORKS)
def network(request):
    """Each network in turn."""
    return NETWORKS[request.param]()


@pytest.fixture
def batch():
    """A function that draws a batch of inputs of a network."""

    def draw(model, rng, size=6):
        (symbolic,) = model.inputs
        shape = (size, *symbolic.shape[1:])
        return rng.integers(1, 9, shape) if symbolic.dtype == "int32" else rng.random(shape, "float32")

    return draw
