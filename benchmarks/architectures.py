"""Architectures that `benchmarks.slim` slims: name -> function that creates a network with random weights."""

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops


def _application(name: str, **options: Any) -> Callable[[], keras.Model]:
    return lambda: getattr(keras.applications, name)(weights=None, **options)


def _keras_cv(blocks: tuple[int, ...], kind: str = "block") -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        import keras_cv

        return keras_cv.models.ResNetBackbone(
            stackwise_filters=[64, 128, 256, 512],
            stackwise_blocks=list(blocks),
            stackwise_strides=[1, 2, 2, 2],
            include_rescaling=False,
            input_shape=(224, 224, 3),
            block_type=kind,
        )

    return make


def _encoder(kind: str, **options: Any) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        from tfsparsecap.captioning import models

        return getattr(models, kind)(weights=None, **options).backbone

    return make


def u_net() -> keras.Model:
    """Four resolutions of 32 to 256 channels, for images of 128 pixels."""
    x = inputs = keras.Input((128, 128, 3))

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    fine = []
    for filters in (32, 64, 128):
        x = block(x, filters)
        fine.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 256)
    for filters, beside in zip((128, 64, 32), reversed(fine), strict=True):
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        x = block(layers.Concatenate()([x, beside]), filters)
    return keras.Model(inputs, layers.Conv2D(2, 1)(x), name="u_net")


def vision_transformer() -> keras.Model:
    """ViT-Tiny: twelve blocks of size 192 with patches of 16 pixels; four heads instead of three."""
    inputs = keras.Input((224, 224, 3))
    x = layers.Reshape((196, 192))(layers.Conv2D(192, 16, 16)(inputs))
    ones = ops.reshape(ops.ones_like(inputs[:, ::16, ::16, 0]), (-1, 196))
    x = x + layers.Embedding(196, 192)(ops.cast(ops.cumsum(ones, axis=1) - 1, "int32"))
    for _ in range(12):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 48)(y, y)])
        y = layers.Dense(768, "gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([x, layers.Dense(192)(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras.Model(inputs, layers.Dense(1000)(x), name="vit_tiny")


def conv1d() -> keras.Model:
    """M5 for one second of sound: https://arxiv.org/abs/1610.00087, table 1."""
    stack: list[Any] = [keras.Input((16000, 1)), layers.Conv1D(128, 80, 4, use_bias=False)]
    for filters in (128, 256, 512):
        stack += [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling1D(4)]
        stack.append(layers.Conv1D(filters, 3, padding="same", use_bias=False))
    stack += [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling1D(4)]
    stack += [layers.GlobalAveragePooling1D(), layers.Dense(35)]
    return keras.Sequential(stack, name="conv1d")


def decoder() -> keras.Model:
    """A vector to an image of 64 pixels, with transposed convolutions."""
    stack: list[Any] = [keras.Input((128,)), layers.Dense(4 * 4 * 256, use_bias=False)]
    stack += [layers.Reshape((4, 4, 256)), layers.BatchNormalization(), layers.ReLU()]
    for filters in (128, 64, 32):
        stack.append(layers.Conv2DTranspose(filters, 4, 2, "same", use_bias=False))
        stack += [layers.BatchNormalization(), layers.ReLU()]
    stack.append(layers.Conv2DTranspose(3, 4, 2, "same", activation="tanh"))
    return keras.Sequential(stack, name="decoder")


ARCHITECTURES: dict[str, Callable[[], keras.Model]] = {
    "MobileNet": _application("MobileNet"),
    "MobileNetV2": _application("MobileNetV2"),
    "MobileNetV3Small": _application("MobileNetV3Small", input_shape=(224, 224, 3)),
    "MobileNetV3Large": _application("MobileNetV3Large", input_shape=(224, 224, 3)),
    "ResNet50": _application("ResNet50"),
    "ResNet101": _application("ResNet101"),
    "ResNet50V2": _application("ResNet50V2"),
    "ResNet101V2": _application("ResNet101V2"),
    "EfficientNetB0": _application("EfficientNetB0"),
    "EfficientNetV2B0": _application("EfficientNetV2B0"),
    "DenseNet121": _application("DenseNet121"),
    "InceptionV3": _application("InceptionV3"),
    "InceptionResNetV2": _application("InceptionResNetV2"),
    "Xception": _application("Xception"),
    "VGG16": _application("VGG16"),
    "NASNetMobile": _application("NASNetMobile"),
    "ConvNeXtTiny": _application("ConvNeXtTiny"),
    "keras_cv.ResNet18Backbone": _keras_cv((2, 2, 2, 2), "basic_block"),
    "keras_cv.ResNet50Backbone": _keras_cv((3, 4, 6, 3)),
    "keras_cv.ResNet101Backbone": _keras_cv((3, 4, 23, 3)),
    "EfficientNetLite0": _encoder("EfficientNetLiteEncoder"),
    "InceptionV1": _encoder("InceptionV1Encoder"),
    "TinyViT": _encoder("TinyViTEncoder"),
    "u_net": u_net,
    "vision_transformer": vision_transformer,
    "conv1d": conv1d,
    "decoder": decoder,
}
