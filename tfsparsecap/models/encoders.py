"""Encoders: from photographs to maps of features that a captioner can attend to."""

import difflib
import re

import keras
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.models import inception_v1

_IMAGENET_WIDTHS = (0.25, 0.5, 0.75, 1.0)


class Encoder(keras.layers.Layer):
    """Base class: a convolutional network, cut at one of its layers, with its preprocessing inside.

    While frozen (`trainable=False`, which may be changed at any time) its batch normalisation stays in
    inference mode whatever it is called with. A subclass makes its network and calls `cut`.

    Args:
        layer: name of the layer whose output is the feature map.
        image_size: height and width S of the images in pixels, at least 32.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the image's top left; N and D are `features_shape`.

    Raises:
        InputError: for a size or layer that does not exist.
    """

    #: What messages call the network, and a layer that they suggest.
    network_name, usual_layer = "the network", ""

    def __init__(self, *, layer: str, image_size: int, trainable: bool, batch_norm_momentum: float, **kwargs):
        super().__init__(trainable=trainable, **kwargs)
        if image_size < 32:
            raise InputError(
                f"image_size is {image_size}: {self.network_name} needs images of at least 32 pixels a side"
            )
        self.layer, self.image_size = layer, image_size
        self.batch_norm_momentum = batch_norm_momentum

    def cut(self, network: keras.Model) -> None:
        """Takes the part of a network up to `layer`.

        Args:
            network: float [B, S, S, 3], values -1 to 1, -> anything.
        """
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
        """(N, D): how many features an image has and how long each is."""
        _, height, width, channels = self.backbone.output_shape
        return height * width, channels

    def call(self, image, training: bool = False):
        if image.shape[1:] != (self.image_size, self.image_size, 3):
            raise InputError(
                f"the encoder takes images of shape {(self.image_size, self.image_size, 3)}, not"
                f" {tuple(image.shape[1:])}: resize them or make the encoder with another image_size"
            )
        scaled = ops.cast(ops.cast(image, "float32") / 127.5 - 1.0, self.compute_dtype)
        features = self.backbone(scaled, training=training if self.trainable else False)
        return ops.reshape(features, (-1, *self.features_shape))

    def compute_output_shape(self, image_shape) -> tuple:
        return (image_shape[0], *self.features_shape)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "layer": self.layer,
            "image_size": self.image_size,
            # What is rebuilt from a configuration gets its weights from the file it was saved in.
            "weights": None,
            "batch_norm_momentum": self.batch_norm_momentum,
        }


@keras.saving.register_keras_serializable("tfsparsecap")
class MobileNetV1Encoder(Encoder):
    """MobileNet-V1 of `keras.applications`, cut at one of its layers, with its preprocessing inside.

    While frozen (`trainable=False`, which may be changed at any time) its batch normalisation stays in
    inference mode whatever it is called with.

    Args:
        width: the width multiplier, called alpha by Keras, above 0; ImageNet weights exist for 0.25, 0.5,
            0.75 and 1.
        layer: name of the layer whose output is the feature map, for example `"conv_pw_13_relu"` (1/32 of the
            image's height and width, 1024 * width channels), `"conv_pw_11_relu"` (1/16, 512 * width),
            `"conv_pw_5_relu"` (1/8, 256 * width), `"conv_pw_3_relu"` (1/4, 128 * width).
        image_size: height and width S of the images in pixels, at least 32.
        weights: `"imagenet"`, looked for in Keras's cache (`$KERAS_HOME/models`) before the network is tried,
            or None for random ones. A saved encoder brings its weights along and looks for none.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation. Keras's 0.99 suits fine-tuning; a
            run of a few hundred steps from scratch needs less, such as 0.9.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the image's top left; N and D are `features_shape`.

    Raises:
        InputError: for a size, width or layer that does not exist, and when the weights cannot be had.

    Reference:
        Howard et al., "MobileNets", https://arxiv.org/abs/1704.04861.

    Example:
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
        **kwargs,
    ):
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
    """Inception-V1 with batch normalisation, cut at one of its layers, with its preprocessing inside.

    While frozen (`trainable=False`, which may be changed at any time) its batch normalisation stays in
    inference mode whatever it is called with.

    Args:
        layer: name of the layer whose output is the feature map: `"Mixed_4f"` (1/16 of the image's height and
            width, 832 channels), which the SMP paper attends to, `"Mixed_5c"` (1/32, 1024), `"Mixed_3c"`
            (1/8, 480) or another one of `tfsparsecap.models.inception_v1.inception_v1`.
        image_size: height and width S of the images in pixels, at least 32.
        weights: path of a TF-Slim checkpoint, the published `inception_v1.ckpt` or one like it, or None for
            random ones. A saved encoder brings its weights along and looks for none.
        trainable: whether training changes the weights.
        batch_norm_momentum: of the moving averages of batch normalisation. TF-Slim's 0.9997 is for long
            trainings; a run of a few hundred steps from scratch needs less, such as 0.9.

    Call arguments:
        image: uint8 or float [B, S, S, 3], RGB, values 0 to 255.

    Returns:
        Features [B, N, D], row by row from the image's top left; N and D are `features_shape`.

    Raises:
        InputError: for a size or layer that does not exist, and when the weights cannot be read.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", https://arxiv.org/abs/1409.4842.

    Example:
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
        **kwargs,
    ):
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
                " inception_v1.ckpt, TF-Slim's, or none for random ones"
            )
        self.cut(inception_v1.inception_v1(image_size, weights, dtype=self.dtype_policy))


def published_layer_name(layer: keras.layers.Layer | str) -> str:
    """The name by which the papers' figures and TF-Slim's checkpoints know a convolution of an encoder.

    Args:
        layer: of MobileNet-V1 or Inception-V1, or its name.

    Raises:
        InputError: it is no convolution of either.

    Example:
        >>> [published_layer_name(name) for name in ("conv1", "conv_dw_1", "Mixed_3b_Branch_3_Conv2d_0b_1x1")]
        ['Conv2d_0', 'Conv2d_1_depthwise', 'Mixed_3b/Branch_3/Conv2d_0b_1x1']
    """
    name = layer if isinstance(layer, str) else layer.name
    if name == "conv1":
        return "Conv2d_0"
    separable = re.fullmatch(r"conv_(dw|pw)_(\d+)", name)
    if separable:
        kind, number = separable.groups()
        return f"Conv2d_{number}_{'depthwise' if kind == 'dw' else 'pointwise'}"
    if re.fullmatch(r"(Mixed_\d[a-z]_Branch_\d_)?Conv2d_\d[a-z]_\dx\d", name):
        return inception_v1.published_name(name)
    raise InputError(
        f"{name} is no convolution of MobileNet-V1 or Inception-V1: ask for the published names of those only"
    )


def _mobilenet(width: float, image_size: int, weights: str | None, policy: keras.DTypePolicy) -> keras.Model:
    """The whole network without its classifier."""
    if weights == "imagenet" and width not in _IMAGENET_WIDTHS:
        raise InputError(
            f"there are no ImageNet weights for width {width}: give one of {_IMAGENET_WIDTHS} or weights none"
        )
    # keras.applications gives its layers the global policy and takes no other.
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return keras.applications.MobileNet(
            input_shape=(image_size, image_size, 3), alpha=width, weights=weights, include_top=False
        )
    except Exception as error:
        # A failed download is a bare Exception in Keras; without weights there is nothing to download.
        if weights is None:
            raise
        raise InputError(
            f"the ImageNet weights of MobileNet-V1 {width} for {image_size} pixels are not in Keras's cache"
            f" and could not be downloaded ({_first_line(error)}): set KERAS_HOME to a folder that has them"
            " before Python starts, or choose weights none"
        ) from error
    finally:
        keras.config.set_dtype_policy(before)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
