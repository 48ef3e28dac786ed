"""Networks of `keras.applications` as encoders."""

import inspect
import sys
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.models.image_encoders.published_weights import load_weights
from tfsparsecap.errors import InputError, first_line, unknown_name

_IMAGENET_WIDTHS = (0.25, 0.5, 0.75, 1.0)


@keras.saving.register_keras_serializable("tfsparsecap")
class ApplicationsEncoder(Encoder):
    """Any network of `keras.applications`, cut at one of its layers, with its preprocessing; see `Encoder`.

    Args:
        network: name of a function in `keras.applications`, such as `"EfficientNetB0"`.
        layer: name of the layer whose output is the feature map; None for the last one.
        image_size: height and width S of the images in pixels, at least 32; some networks need more, and
            the published weights of NASNet need 224 (`NASNetMobile`) or 331 (`NASNetLarge`).
        weights: `"imagenet"`, loaded from Keras's cache (`$KERAS_HOME/models`) or downloaded, the path of
            `.weights.h5` or `.keras` with the weights of the network without its classifier, or None for
            random weights. A saved encoder contains its weights.
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.

    Raises:
        InputError: an unknown network or layer, an invalid size, or the weights are not available.

    Reference:
        https://keras.io/api/applications.

    Examples:
        >>> encoder = ApplicationsEncoder("MobileNetV2", image_size=64, weights=None)
        >>> encoder.features_shape, encoder(keras.ops.zeros((1, 64, 64, 3), "uint8")).shape
        ((4, 1280), TensorShape([1, 4, 1280]))
    """

    def __init__(
        self,
        network: str,
        layer: str | None = None,
        image_size: int = 224,
        weights: str | None = "imagenet",
        **kwargs: Any,
    ) -> None:
        functions = dict(inspect.getmembers(keras.applications, inspect.isfunction))
        if network not in functions:
            raise unknown_name("network in keras.applications", network, functions)
        self.network_name = network
        super().__init__(layer=layer, image_size=image_size, **kwargs)
        self.network = network
        published = "imagenet" if weights == "imagenet" else None
        model = _create(network, image_size, published, self.dtype_policy)
        # In the module of the network.
        self._preprocess_input = sys.modules[functions[network].__module__].preprocess_input
        self.usual_layer = model.layers[-1].name
        if weights is not None and published is None:
            load_weights(model, weights, network)
        self.cut(model)

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        return self._preprocess_input(image)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "network": self.network}


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
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.

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
        layer: str | None = "conv_pw_13_relu",
        image_size: int = 224,
        weights: str | None = "imagenet",
        **kwargs: Any,
    ) -> None:
        super().__init__(layer=layer, image_size=image_size, **kwargs)
        if not width > 0:
            raise InputError(f"width is {width}: the width of a MobileNet must be above 0")
        if weights not in ("imagenet", None):
            raise InputError(f'weights is "{weights}": give "imagenet", or null for random ones')
        if weights == "imagenet" and width not in _IMAGENET_WIDTHS:
            raise InputError(
                f"there are no ImageNet weights for width {width}: give one of {_IMAGENET_WIDTHS}, or use"
                " random weights (null)"
            )
        self.width = width
        self.cut(_create("MobileNet", image_size, weights, self.dtype_policy, alpha=width))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width}


def _create(
    network: str, image_size: int, weights: str | None, policy: keras.DTypePolicy, **options: Any
) -> keras.Model:
    """Creates a network without its classifier."""
    title = " ".join([network, *map(str, options.values())])
    # keras.applications has no dtype argument: its layers take the global policy.
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        function = getattr(keras.applications, network)
        return function(
            input_shape=(image_size, image_size, 3), weights=weights, include_top=False, **options
        )
    except ValueError as error:  # Keras's check of its arguments
        raise InputError(f"{title} cannot be created: {first_line(error)}") from error
    except Exception as error:
        # Keras raises a bare Exception if a download fails; without weights nothing is downloaded.
        if weights is None:
            raise
        raise InputError(
            f"the ImageNet weights of {title} for {image_size} pixels are not in Keras's cache and could not"
            f" be downloaded ({first_line(error)}): set KERAS_HOME to a folder that has them before Python"
            " starts, or use random weights (null)"
        ) from error
    finally:
        keras.config.set_dtype_policy(before)
