"""Encoders: convolutional networks that turn images into feature maps for a captioner."""

import difflib
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.models import inception_v1

_IMAGENET_WIDTHS = (0.25, 0.5, 0.75, 1.0)


class Encoder(keras.layers.Layer):
    """Base class: a convolutional network, cut at one of its layers, with its preprocessing inside.

    While it is frozen (`trainable=False`, which can be changed at any time), batch normalisation stays in
    inference mode. A subclass creates its network and calls `cut`.

    Args:
        layer: name of the layer whose output is the feature map.
        image_size: height and width S of the images in pixels, at least 32.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the top left of the image; N and D are `features_shape`.

    Raises:
        InputError: a size that is too small, or a layer that does not exist.
    """

    #: Name of the network, and the layer to suggest, in messages.
    network_name, usual_layer = "the network", ""

    def __init__(
        self, *, layer: str, image_size: int, trainable: bool, batch_norm_momentum: float, **kwargs: Any
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        if image_size < 32:
            raise InputError(
                f"image_size is {image_size}: {self.network_name} needs images of at least 32 pixels a side"
            )
        self.layer, self.image_size = layer, image_size
        self.batch_norm_momentum = batch_norm_momentum

    def cut(self, network: keras.Model) -> None:
        """Keeps the part of a network up to `layer`; its input is float [B, S, S, 3], values -1 to 1."""
        names = [part.name for part in network.layers[1:]]
        if self.layer not in names:
            guesses = difflib.get_close_matches(self.layer, names, n=3) or [self.usual_layer]
            raise InputError(
                f'{self.network_name} has no layer "{self.layer}": did you mean {" or ".join(guesses)}?'
            )
        self.backbone = keras.Model(network.input, network.get_layer(self.layer).output, name="backbone")
        for part in self.backbone.layers:
            if isinstance(part, keras.layers.BatchNormalization):
                part.momentum = self.batch_norm_momentum
        self.backbone.trainable = self.trainable
        self.built = True

    @property
    def features_shape(self) -> tuple[int, int]:
        """(N, D): number of features of an image, and length of each."""
        _, height, width, channels = self.backbone.output_shape
        return height * width, channels

    def call(self, image: tf.Tensor, training: bool = False) -> tf.Tensor:
        if image.shape[1:] != (self.image_size, self.image_size, 3):
            raise InputError(
                f"the encoder takes images of shape {(self.image_size, self.image_size, 3)}, not"
                f" {tuple(image.shape[1:])}: resize them, or set image_size"
            )
        scaled = ops.cast(ops.cast(image, "float32") / 127.5 - 1.0, self.compute_dtype)
        features = self.backbone(scaled, training=training if self.trainable else False)
        return ops.reshape(features, (-1, *self.features_shape))

    def compute_output_shape(self, image_shape: tuple[int | None, ...]) -> tuple:
        return (image_shape[0], *self.features_shape)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "layer": self.layer,
            "image_size": self.image_size,
            # The weights of a saved encoder are in the same file.
            "weights": None,
            "batch_norm_momentum": self.batch_norm_momentum,
        }


@keras.saving.register_keras_serializable("tfsparsecap")
class MobileNetV1Encoder(Encoder):
    """MobileNet-V1 of `keras.applications`, cut at one of its layers; see `Encoder`.

    Args:
        width: width multiplier (alpha in Keras), above 0; ImageNet weights exist for 0.25, 0.5, 0.75 and 1.
        layer: name of the layer whose output is the feature map, for example `"conv_pw_13_relu"` (1/32 of the
            image's height and width, 1024 * width channels), `"conv_pw_11_relu"` (1/16, 512 * width),
            `"conv_pw_5_relu"` (1/8, 256 * width), `"conv_pw_3_relu"` (1/4, 128 * width).
        image_size: height and width S of the images in pixels, at least 32.
        weights: `"imagenet"`, loaded from Keras's cache (`$KERAS_HOME/models`) or downloaded, or None for
            random weights. A saved encoder contains its weights.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation. Keras's 0.99 suits fine-tuning; a
            run of a few hundred steps from scratch needs less, such as 0.9.

    Raises:
        InputError: an invalid size or width, an unknown layer, or the weights are not available.

    Reference:
        Howard et al., "MobileNets", https://arxiv.org/abs/1704.04861.

    Examples:
        >>> encoder = MobileNetV1Encoder(0.25, "conv_pw_5_relu", image_size=64, weights=None, trainable=True)
        >>> encoder.features_shape, encoder(keras.ops.zeros((1, 64, 64, 3), "uint8")).shape
        ((64, 64), TensorShape([1, 64, 64]))
    """

    network_name, usual_layer = "MobileNet-V1", "conv_pw_13_relu"

    def __init__(
        self,
        width: float = 0.75,
        layer: str = "conv_pw_13_relu",
        image_size: int = 224,
        weights: str | None = "imagenet",
        trainable: bool = False,
        batch_norm_momentum: float = 0.99,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            layer=layer,
            image_size=image_size,
            trainable=trainable,
            batch_norm_momentum=batch_norm_momentum,
            **kwargs,
        )
        if not width > 0:
            raise InputError(f"width is {width}: the width of a MobileNet must be above 0")
        if weights not in ("imagenet", None):
            raise InputError(f'weights is "{weights}": give "imagenet" or none for random ones')
        self.width = width
        self.cut(_mobilenet(width, image_size, weights, self.dtype_policy))

    def get_config(self) -> dict:
        return {**super().get_config(), "width": self.width}


@keras.saving.register_keras_serializable("tfsparsecap")
class InceptionV1Encoder(Encoder):
    """Inception-V1 with batch normalisation, cut at one of its layers; see `Encoder`.

    Args:
        layer: name of the layer whose output is the feature map: `"Mixed_4f"` (1/16 of the image's height and
            width, 832 channels), as in the SMP paper, `"Mixed_5c"` (1/32, 1024), `"Mixed_3c"` (1/8, 480) or
            another layer of `tfsparsecap.models.inception_v1.inception_v1`.
        image_size: height and width S of the images in pixels, at least 32.
        weights: path of a TF-Slim checkpoint such as the published `inception_v1.ckpt`, or None for random
            weights. A saved encoder contains its weights.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation. TF-Slim's 0.9997 suits long
            training; a run of a few hundred steps from scratch needs less, such as 0.9.

    Raises:
        InputError: an invalid size, an unknown layer, or the weights cannot be read.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", https://arxiv.org/abs/1409.4842.

    Examples:
        >>> encoder = InceptionV1Encoder("Mixed_4f", image_size=64)
        >>> encoder.features_shape, encoder(keras.ops.zeros((1, 64, 64, 3), "uint8")).shape
        ((16, 832), TensorShape([1, 16, 832]))
    """

    network_name, usual_layer = "Inception-V1", "Mixed_4f"

    def __init__(
        self,
        layer: str = "Mixed_4f",
        image_size: int = 224,
        weights: str | None = None,
        trainable: bool = False,
        batch_norm_momentum: float = 0.9997,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            layer=layer,
            image_size=image_size,
            trainable=trainable,
            batch_norm_momentum=batch_norm_momentum,
            **kwargs,
        )
        if weights == "imagenet":
            raise InputError(
                'weights is "imagenet", which Keras does not have for Inception-V1: give the path of'
                " TF-Slim's inception_v1.ckpt, or none for random weights"
            )
        self.cut(inception_v1.inception_v1(image_size, weights, dtype=self.dtype_policy))


def _mobilenet(width: float, image_size: int, weights: str | None, policy: keras.DTypePolicy) -> keras.Model:
    """Creates the network without its classifier."""
    if weights == "imagenet" and width not in _IMAGENET_WIDTHS:
        raise InputError(
            f"there are no ImageNet weights for width {width}: give one of {_IMAGENET_WIDTHS}, or choose"
            " weights none"
        )
    # keras.applications has no dtype argument: its layers take the global policy.
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return keras.applications.MobileNet(
            input_shape=(image_size, image_size, 3), alpha=width, weights=weights, include_top=False
        )
    except Exception as error:
        # Keras raises a bare Exception if a download fails; without weights nothing is downloaded.
        if weights is None:
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"the ImageNet weights of MobileNet-V1 {width} for {image_size} pixels are not in Keras's cache"
            f" and could not be downloaded ({reason}):"
            " set KERAS_HOME to a folder that has them before Python starts, or choose weights none"
        ) from error
    finally:
        keras.config.set_dtype_policy(before)
