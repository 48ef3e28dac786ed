"""The models of `benchmarks.zoo`, with random weights: small ones, `keras.applications`, and KerasHub."""

import functools
import importlib.util
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from benchmarks.zoo_backbones import LENGTH, SIZES, WORDS, backbone

_NORMAL = keras.initializers.RandomNormal(stddev=1.0, seed=0)


def _text(*middle: Callable[[], keras.Layer]) -> keras.Model:
    """A classifier of LENGTH words."""
    # With Keras's small initial values, all outputs would be about 0.
    parts = [keras.Input((LENGTH,), dtype="int32", name="ids"), layers.Embedding(WORDS, 16, _NORMAL)]
    return keras.Sequential([*parts, *(make() for make in middle), layers.Dense(3)])


def _series(*middle: Callable[[], keras.Layer], shape: tuple[int, ...] = (LENGTH, 8)) -> keras.Model:
    """A classifier of series, volumes or films."""
    parts = [make() for make in middle]
    return keras.Sequential([keras.Input(shape, name="x"), *parts, layers.Flatten(), layers.Dense(3)])


def _transformer(dtype: str | None = None) -> keras.Model:
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    x = layers.Embedding(WORDS, 16, dtype=dtype)(ids)
    attended = layers.MultiHeadAttention(2, 8, dtype=dtype)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization(dtype=dtype)(layers.Add(dtype=dtype)([x, attended]))
    hidden = layers.Dense(16, dtype=dtype)(layers.Dense(32, "gelu", dtype=dtype)(x))
    x = layers.LayerNormalization(dtype=dtype)(layers.Add(dtype=dtype)([x, hidden]))
    return keras.Model(ids, layers.Dense(WORDS, dtype=dtype)(x))


def _grouped_attention() -> keras.Model:
    x = keras.Input((LENGTH, 16), name="x")
    attended = layers.GroupQueryAttention(8, 4, 2)(x, x)
    return keras.Model(x, layers.Dense(3)(layers.RMSNormalization()(attended)))


def _autoencoder() -> keras.Model:
    parts = [
        layers.Conv2D(8, 3, strides=2, padding="same", activation="swish"),
        layers.BatchNormalization(),
        layers.SeparableConv2D(8, 3, padding="same", activation="relu"),
        layers.Conv2DTranspose(3, 3, strides=2, padding="same"),
    ]
    return keras.Sequential([keras.Input((8, 8, 3), name="image"), *parts])


def _inputs_and_outputs() -> keras.Model:
    image, ids = keras.Input((8, 8, 3), name="image"), keras.Input((LENGTH,), dtype="int32", name="ids")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, activation="relu")(image))
    read = layers.GlobalAveragePooling1D()(layers.Embedding(WORDS, 8)(ids))
    x = layers.Concatenate()([seen, read])
    outputs = {"label": layers.Dense(3)(x), "score": layers.Dense(1, "sigmoid")(x)}
    return keras.Model({"image": image, "ids": ids}, outputs)


def _shared() -> keras.Model:
    """Two inputs through the same layers."""
    left, right = keras.Input((LENGTH,), name="left"), keras.Input((LENGTH,), name="right")
    tower = keras.Sequential([layers.Dense(16, "relu"), layers.Dense(8)])
    return keras.Model([left, right], layers.Dense(2)(layers.Subtract()([tower(left), tower(right)])))


@keras.saving.register_keras_serializable("zoo")
class Block(keras.layers.Layer):
    """A custom layer that contains stock layers."""

    def __init__(self, size: int = 8, **options: Any) -> None:
        super().__init__(**options)
        self.size = size
        self.inner, self.outer = layers.Dense(2 * size, "silu"), layers.Dense(size)

    def build(self, shape: tuple) -> None:
        self.inner.build(shape)
        self.outer.build((*shape[:-1], 2 * self.size))

    def call(self, x: Any) -> Any:
        return x + self.outer(self.inner(x))

    def get_config(self) -> dict:
        return {**super().get_config(), "size": self.size}


def _nested() -> keras.Model:
    """A model in a model in a model, and a custom layer."""
    inner = keras.Sequential([keras.Input((LENGTH, 8)), layers.Conv1D(8, 3, padding="same"), Block()])
    x = keras.Input((LENGTH, 8))
    middle = keras.Model(x, layers.Add()([x, inner(x)]))
    parts = [middle, layers.GlobalAveragePooling1D(), layers.Dense(3)]
    return keras.Sequential([keras.Input((LENGTH, 8), name="x"), *parts])


@keras.saving.register_keras_serializable("zoo")
class Subclassed(keras.Model):
    """A subclassed model with dictionaries as inputs and outputs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.block, self.cell = Block(), layers.Bidirectional(layers.GRU(4))
        self.head = layers.Dense(2)

    def build(self, shapes: dict) -> None:
        series = shapes["series"]
        self.block.build(series)
        self.cell.build(series)
        self.head.build((series[0], 8 + shapes["extra"][-1]))

    def call(self, x: dict) -> dict:
        features = self.cell(self.block(x["series"]))
        return {"features": features, "label": self.head(layers.concatenate([features, x["extra"]]))}


def _subclassed() -> keras.Model:
    model = Subclassed()
    model({"series": keras.ops.zeros((2, LENGTH, 8)), "extra": keras.ops.zeros((2, 3))})
    return model


_gru, _lstm = functools.partial(layers.GRU, 16), functools.partial(layers.LSTM, 16)
SMALL: dict[str, Callable[[], keras.Model]] = {
    "gru_text": lambda: _text(_gru),
    "lstm_text": lambda: _text(lambda: _lstm(return_sequences=True), _lstm),
    "bidirectional_text": lambda: _text(lambda: layers.Bidirectional(_lstm())),
    "simple_rnn": lambda: _series(lambda: layers.SimpleRNN(16)),
    "transformer": _transformer,
    "grouped_attention": _grouped_attention,
    "conv1d": lambda: _series(
        lambda: layers.Conv1D(16, 3, padding="causal", activation="relu"),
        layers.BatchNormalization,
        lambda: layers.SeparableConv1D(16, 3),
        lambda: layers.DepthwiseConv1D(3),
        lambda: layers.Conv1DTranspose(8, 2),
    ),
    "conv3d": lambda: _series(lambda: layers.Conv3D(8, 2, activation="relu"), shape=(4, 6, 6, 3)),
    "conv_lstm": lambda: _series(lambda: layers.ConvLSTM2D(4, 3), shape=(3, 6, 6, 3)),
    "time_distributed": lambda: _series(
        lambda: layers.TimeDistributed(layers.Conv2D(4, 3)), layers.Flatten, shape=(3, 6, 6, 3)
    ),
    "autoencoder": _autoencoder,
    "inputs_and_outputs": _inputs_and_outputs,
    "shared_layers": _shared,
    "nested_models": _nested,
    "subclassed": _subclassed,
    "mixed_precision": lambda: _transformer("mixed_float16"),
}

#: The smallest network of each family -> its smallest image, and further arguments.
_FAMILIES: dict[str, tuple[int, dict]] = {
    "ConvNeXtTiny": (32, {}),
    "DenseNet121": (32, {}),
    "EfficientNetB0": (32, {}),
    "EfficientNetV2B0": (32, {}),
    "InceptionResNetV2": (75, {}),
    "InceptionV3": (75, {}),
    "MobileNet": (32, {"alpha": 0.25}),
    "MobileNetV2": (32, {"alpha": 0.35}),
    "MobileNetV3Small": (32, {}),
    "NASNetMobile": (32, {}),
    "ResNet50": (32, {}),
    "ResNet50V2": (32, {}),
    "VGG16": (32, {}),
    "Xception": (71, {}),
}


def _application(name: str) -> keras.Model:
    """A network with He's initial values: with Keras's, its features would vanish from layer to layer."""
    size, options = _FAMILIES[name]
    model = getattr(keras.applications, name)(
        input_shape=(size, size, 3), weights=None, include_top=False, pooling="avg", **options
    )
    random = np.random.default_rng(0)
    for weight in model.weights:
        if "kernel" in weight.name and len(weight.shape) > 1:
            is_depthwise = "depthwise" in weight.path or weight.shape[-1] == 1
            inputs = math.prod(weight.shape[:2] if is_depthwise else weight.shape[:-1])
            weight.assign(random.normal(scale=math.sqrt(2 / inputs), size=weight.shape))
    return model


APPLICATIONS = {name: functools.partial(_application, name) for name in _FAMILIES}

KERAS_HUB = {name: functools.partial(backbone, name) for name in SIZES}
if importlib.util.find_spec("keras_hub") is None:
    KERAS_HUB = {}

GROUPS = {"small": SMALL, "applications": APPLICATIONS, "KerasHub": KERAS_HUB}
MODELS = {**SMALL, **APPLICATIONS, **KERAS_HUB}
