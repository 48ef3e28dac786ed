"""TinyViT-5M, a small vision transformer with convolutions, and its published weights."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.models.image_encoders.published_weights import download_weights, load_weights
from tfsparsecap.captioning.models.image_encoders.window_attention import WindowAttention

#: The published weights on the Hugging Face Hub: repository and file.
REPOSITORY, FILE = "timm/tiny_vit_5m_224.dist_in22k", "model.safetensors"
#: Width, blocks, attention heads and window of each stage; the first stage is convolutional.
_STAGES = ((64, 2, 0, 0), (128, 2, 4, 7), (160, 6, 5, 14), (320, 2, 10, 7))
#: Prefixes of published weights of the classifier, and of constants.
_UNUSED = re.compile(r"^(head|norm_head)\.|attention_bias_idxs$|num_batches_tracked$")
#: ImageNet's mean and standard deviation, for values from 0 to 255.
_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def tiny_vit_5m(
    image_size: int = 224, *, batch_norm: bool = True, dtype: str | keras.DTypePolicy | None = None
) -> keras.Model:
    """TinyViT-5M without its classifier, as a functional model of stock Keras layers and `WindowAttention`.

    Names of layers are those of timm: `stages.1.blocks.0.mlp.fc1`. The last layer of a block has the name of
    the block, `stages.0.blocks.0` to `stages.3.blocks.1`.

    Args:
        image_size: height and width S of the images in pixels; the weights were trained with 224.
        batch_norm: batch normalisation after each convolution; otherwise it is folded into the convolution,
            which then has a bias.
        dtype: Keras dtype policy of all layers; None takes the global one.

    Returns:
        A model from float [B, S, S, 3], RGB with ImageNet's mean 0 and deviation 1, to [B, S / 32, S / 32,
        320], rounded up.

    Reference:
        Wu et al., "TinyViT: Fast Pretraining Distillation for Small Vision Transformers",
        https://arxiv.org/abs/2207.10666, table 11 of the appendix; layers as in the authors' implementation.

    Examples:
        >>> tiny_vit_5m(64).output.shape
        (None, 2, 2, 320)
    """

    def convolve(
        x: tf.Tensor, channels: int, size: int, name: str, strides: int = 1, depthwise: bool = False
    ) -> tf.Tensor:
        padding = "same"
        if strides > 1:  # PyTorch pads on both sides, TensorFlow only on the right and at the bottom
            x, padding = keras.layers.ZeroPadding2D(1, dtype=dtype, name=f"{name}.pad")(x), "valid"
        options = {"padding": padding, "use_bias": not batch_norm, "dtype": dtype, "name": f"{name}.conv"}
        if depthwise:
            x = keras.layers.DepthwiseConv2D(size, strides, **options)(x)
        else:
            x = keras.layers.Conv2D(channels, size, strides, **options)(x)
        if not batch_norm:
            return x
        return keras.layers.BatchNormalization(epsilon=1e-5, dtype=dtype, name=f"{name}.bn")(x)

    def gelu(x: tf.Tensor, name: str) -> tf.Tensor:
        return keras.layers.Activation("gelu", dtype=dtype, name=name)(x)

    def add(x: tf.Tensor, y: tf.Tensor, name: str) -> tf.Tensor:
        return keras.layers.Add(dtype=dtype, name=name)([x, y])

    def inverted_bottleneck(x: tf.Tensor, channels: int, name: str) -> tf.Tensor:
        y = gelu(convolve(x, 4 * channels, 1, f"{name}.conv1"), f"{name}.act1")
        y = gelu(convolve(y, 4 * channels, 3, f"{name}.conv2", depthwise=True), f"{name}.act2")
        y = convolve(y, channels, 1, f"{name}.conv3")
        return gelu(add(x, y, f"{name}.add"), name)

    def downsample(x: tf.Tensor, channels: int, name: str) -> tf.Tensor:
        x = gelu(convolve(x, channels, 1, f"{name}.conv1"), f"{name}.act1")
        x = gelu(convolve(x, channels, 3, f"{name}.conv2", strides=2, depthwise=True), f"{name}.act2")
        return convolve(x, channels, 1, f"{name}.conv3")

    def transformer_block(x: tf.Tensor, channels: int, heads: int, window: int, name: str) -> tf.Tensor:
        attended = WindowAttention(heads, window, dtype=dtype, name=f"{name}.attn")(x)
        x = add(x, attended, f"{name}.add")
        x = convolve(x, channels, 3, f"{name}.local_conv", depthwise=True)
        y = keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype, name=f"{name}.mlp.norm")(x)
        y = gelu(keras.layers.Dense(4 * channels, dtype=dtype, name=f"{name}.mlp.fc1")(y), f"{name}.mlp.act")
        y = keras.layers.Dense(channels, dtype=dtype, name=f"{name}.mlp.fc2")(y)
        return add(x, y, name)

    image = keras.Input((image_size, image_size, 3), name="image")
    width = _STAGES[0][0]
    x = gelu(convolve(image, width // 2, 3, "patch_embed.conv1", strides=2), "patch_embed.act")
    x = convolve(x, width, 3, "patch_embed.conv2", strides=2)
    for stage, (channels, blocks, heads, window) in enumerate(_STAGES):
        if stage:
            x = downsample(x, channels, f"stages.{stage}.downsample")
        for block in range(blocks):
            name = f"stages.{stage}.blocks.{block}"
            if heads:
                x = transformer_block(x, channels, heads, window, name)
            else:
                x = inverted_bottleneck(x, channels, name)
    return keras.Model(image, x, name="tiny_vit_5m")


@keras.saving.register_keras_serializable("tfsparsecap")
class TinyViTEncoder(Encoder):
    """TinyViT-5M, pretrained on ImageNet-22k by distillation, cut at one of its blocks; see `Encoder`.

    Args:
        layer: name of the layer whose output is the feature map, such as `"stages.2.blocks.5"` (1/16 of the
            image's height and width, 160 channels); None for the last one (1/32, 320).
        image_size: height and width S of the images in pixels, at least 32; trained with 224.
        weights: `"imagenet"` (timm's, downloaded from the Hugging Face Hub or read from its cache), the path
            of a file (`.safetensors` or `.pth` with timm's or the authors' names, `.onnx`, or
            `.weights.h5` of `backbone.save_weights`), or None for random weights. A saved encoder contains
            its weights.
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.
        batch_norm: False for a network whose batch normalisation is folded into its convolutions; None
            decides by `weights`: it is folded in `.onnx` files only.

    Raises:
        InputError: an invalid size, an unknown layer, or the weights are not available or of another network.

    Reference:
        Wu et al., "TinyViT: Fast Pretraining Distillation for Small Vision Transformers",
        https://arxiv.org/abs/2207.10666.

    Examples:
        >>> encoder = TinyViTEncoder(image_size=64, weights=None)
        >>> encoder.features_shape, encoder(keras.ops.zeros((1, 64, 64, 3), "uint8")).shape
        ((4, 320), TensorShape([1, 4, 320]))
    """

    network_name, usual_layer, usual_momentum = "TinyViT-5M", "stages.3.blocks.1", 0.9

    def __init__(
        self,
        layer: str | None = None,
        image_size: int = 224,
        weights: str | None = "imagenet",
        batch_norm: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(layer=layer, image_size=image_size, **kwargs)
        if batch_norm is None:
            batch_norm = Path(weights or "").suffix != ".onnx"
        self.batch_norm = batch_norm
        network = tiny_vit_5m(image_size, batch_norm=batch_norm, dtype=self.dtype_policy)
        if weights is not None:
            path = download_weights(REPOSITORY, FILE, self.network_name) if weights == "imagenet" else weights
            load_weights(network, path, self.network_name, _timm_names)
        self.cut(network)

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        return (image - np.array(_MEAN, "float32")) / np.array(_DEVIATION, "float32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "batch_norm": self.batch_norm}


def _timm_names(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights without those of the classifier, under timm's names."""
    named = {}
    for name, values in arrays.items():
        # A wrapper around the network, such as a classifier, puts its own name first.
        name = re.sub(r"^.*\b(?=(patch_embed|stages|layers)[._])", "", name)
        name = re.sub(r"\bstages_(?=\d)", "stages.", name)  # in ONNX files
        # The authors' names.
        name = re.sub(
            r"^layers\.(\d)\.downsample", lambda match: f"stages.{int(match[1]) + 1}.downsample", name
        )
        name = re.sub(r"^layers\.", "stages.", name)
        name = re.sub(r"^patch_embed\.seq\.(\d)", lambda m: f"patch_embed.conv{int(m[1]) // 2 + 1}", name)
        name = re.sub(r"\.c\.(?=weight$)", ".conv.", name)
        if not _UNUSED.search(name):
            named[name] = values
    return named
