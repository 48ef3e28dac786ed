"""Inception-V1 with batch normalisation as published by TF-Slim, and its checkpoints."""

import re
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.models.image_encoders.published_weights import assign_checked
from tfsparsecap.errors import InputError, first_line

#: Channels of each mixed block (GoogLeNet paper, table 1): 1x1; 1x1 and the following 3x3; 1x1 and the
#: following 3x3 (5x5 in the paper); 1x1 after the pool.
_BLOCKS = {
    "Mixed_3b": (64, 96, 128, 16, 32, 32),
    "Mixed_3c": (128, 128, 192, 32, 96, 64),
    "Mixed_4b": (192, 96, 208, 16, 48, 64),
    "Mixed_4c": (160, 112, 224, 24, 64, 64),
    "Mixed_4d": (128, 128, 256, 24, 64, 64),
    "Mixed_4e": (112, 144, 288, 32, 64, 64),
    "Mixed_4f": (256, 160, 320, 32, 128, 128),
    "Mixed_5b": (256, 160, 320, 32, 128, 128),
    "Mixed_5c": (384, 192, 384, 48, 128, 128),
}
#: Pools before a block: name and size; the stride is 2.
_POOLS = {"Mixed_4b": ("MaxPool_4a_3x3", 3), "Mixed_5b": ("MaxPool_5a_2x2", 2)}
_NORM = "_BatchNorm"


def inception_v1(image_size: int = 224, *, dtype: str | keras.DTypePolicy | None = None) -> keras.Model:
    """Inception-V1 without its classifier, as a functional model of stock Keras layers.

    Each of its 57 convolutions has no bias and is followed by batch normalisation without scale and by ReLU.
    Names are the published ones with `_` instead of `/`, which Keras does not allow (`published_name`
    restores it): `Conv2d_1a_7x7`, `Mixed_3b_Branch_0_Conv2d_0a_1x1`. A convolution NAME is followed by
    `NAME_BatchNorm` and `NAME_Relu`; the last layer of a block has the name of the block, `Mixed_3b` to
    `Mixed_5c`.

    Args:
        image_size: height and width S of the images in pixels.
        dtype: Keras dtype policy of all layers; None takes the global one.

    Returns:
        A model from float [B, S, S, 3], RGB from -1 to 1, to [B, S / 32, S / 32, 1024], rounded up.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", https://arxiv.org/abs/1409.4842; batch
        normalisation: Ioffe and Szegedy, https://arxiv.org/abs/1502.03167.

    Examples:
        >>> network = inception_v1(64)
        >>> network.get_layer("Mixed_4f").output.shape, network.output.shape
        ((None, 4, 4, 832), (None, 2, 2, 1024))
    """

    def convolution(x: tf.Tensor, channels: int, size: int, name: str, strides: int = 1) -> tf.Tensor:
        x = keras.layers.Conv2D(
            channels,
            size,
            strides,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            dtype=dtype,
            name=name,
        )(x)
        x = keras.layers.BatchNormalization(epsilon=1e-3, scale=False, dtype=dtype, name=name + _NORM)(x)
        return keras.layers.ReLU(dtype=dtype, name=f"{name}_Relu")(x)

    def pool(x: tf.Tensor, size: int, strides: int, name: str) -> tf.Tensor:
        return keras.layers.MaxPooling2D(size, strides, padding="same", dtype=dtype, name=name)(x)

    def block(x: tf.Tensor, name: str) -> tf.Tensor:
        filters_0, reduced_1, filters_1, reduced_2, filters_2, filters_3 = _BLOCKS[name]
        branch = [f"{name}_Branch_{number}_" for number in range(4)]
        # TF-Slim misnamed this convolution, and all checkpoints use that name.
        last = "Conv2d_0a_3x3" if name == "Mixed_5b" else "Conv2d_0b_3x3"
        first = convolution(x, filters_0, 1, branch[0] + "Conv2d_0a_1x1")
        second = convolution(x, reduced_1, 1, branch[1] + "Conv2d_0a_1x1")
        second = convolution(second, filters_1, 3, branch[1] + "Conv2d_0b_3x3")
        third = convolution(x, reduced_2, 1, branch[2] + "Conv2d_0a_1x1")
        third = convolution(third, filters_2, 3, branch[2] + last)
        fourth = pool(x, 3, 1, branch[3] + "MaxPool_0a_3x3")
        fourth = convolution(fourth, filters_3, 1, branch[3] + "Conv2d_0b_1x1")
        return keras.layers.Concatenate(dtype=dtype, name=name)([first, second, third, fourth])

    image = keras.Input((image_size, image_size, 3), name="image")
    x = convolution(image, 64, 7, "Conv2d_1a_7x7", strides=2)
    x = pool(x, 3, 2, "MaxPool_2a_3x3")
    x = convolution(x, 64, 1, "Conv2d_2b_1x1")
    x = convolution(x, 192, 3, "Conv2d_2c_3x3")
    x = pool(x, 3, 2, "MaxPool_3a_3x3")
    for name in _BLOCKS:
        if name in _POOLS:
            pool_name, size = _POOLS[name]
            x = pool(x, size, 2, pool_name)
        x = block(x, name)
    return keras.Model(image, x, name="inception_v1")


@keras.saving.register_keras_serializable("tfsparsecap")
class InceptionV1Encoder(Encoder):
    """Inception-V1 with batch normalisation, cut at one of its layers; see `Encoder`.

    Args:
        layer: name of the layer whose output is the feature map: `"Mixed_4f"` (1/16 of the image's height and
            width, 832 channels), as in the SMP paper, `"Mixed_5c"` (1/32, 1024), `"Mixed_3c"` (1/8, 480) or
            another layer of `inception_v1`.
        image_size: height and width S of the images in pixels, at least 32.
        weights: path of a TF-Slim checkpoint such as the published `inception_v1.ckpt`, or None for random
            weights. A saved encoder contains its weights.
        kwargs: `trainable`, `batch_norm_momentum` and `frozen_until`, see `Encoder`.

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
    usual_momentum = 0.9997  # TF-Slim's, for long training

    def __init__(
        self,
        layer: str = "Mixed_4f",
        image_size: int = 224,
        weights: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(layer=layer, image_size=image_size, **kwargs)
        if weights == "imagenet":
            raise InputError(
                'weights is "imagenet", which Keras does not have for Inception-V1: give the path of'
                " TF-Slim's inception_v1.ckpt, or null for random weights"
            )
        network = inception_v1(image_size, dtype=self.dtype_policy)
        if weights is not None:
            load_slim_checkpoint(network, weights)
        self.cut(network)


def published_name(name: str) -> str:
    """Returns the name of a convolution in TF-Slim, from that of its Keras layer.

    Examples:
        >>> published_name("Mixed_3b_Branch_0_Conv2d_0a_1x1"), published_name("Conv2d_1a_7x7")
        ('Mixed_3b/Branch_0/Conv2d_0a_1x1', 'Conv2d_1a_7x7')
    """
    return re.sub(r"^(Mixed_\d[a-z])_(Branch_\d)_", r"\1/\2/", name)


def load_slim_checkpoint(network: keras.Model, path: str | Path) -> None:
    """Loads the weights of a TF-Slim checkpoint into Inception-V1 or a part of it.

    The published one is `inception_v1.ckpt` in `inception_v1_2016_08_28.tar.gz` of
    https://github.com/tensorflow/models (`research/slim`). The tests use checkpoints with the same names and
    shapes, not this file. Tensors of the classifier and of optimizers are not read.

    Args:
        network: made by `inception_v1`, or cut from it.
        path: the checkpoint file; for a checkpoint in several files, their common prefix or the `.index`
            file.

    Raises:
        InputError: the checkpoint is missing, damaged, or from another network; the network is then
            unchanged.
    """
    prefix, variables = _prefix(Path(path).expanduser()), _tensors(network)
    try:
        reader = tf.train.load_checkpoint(prefix)
        arrays = {name: reader.get_tensor(name) for name in variables if reader.has_tensor(name)}
    # The reader raises a different exception for each kind of damage.
    except (tf.errors.OpError, ValueError, RuntimeError, LookupError, TypeError, MemoryError) as error:
        raise InputError(
            f"the checkpoint {path} cannot be read ({first_line(error)}): download and unpack it again"
        ) from error
    assign_checked(variables, arrays, path, "TF-Slim's Inception-V1")


def _prefix(path: Path) -> str:
    """Returns the prefix of a checkpoint. Raises InputError if it does not exist."""
    prefix = re.sub(r"\.(index|data-\d{5}-of-\d{5})$", "", str(path))
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the path of inception_v1.ckpt in it")
    if not (Path(prefix).is_file() or Path(f"{prefix}.index").is_file()):
        raise InputError(
            f"there is no checkpoint {path}: give the path of inception_v1.ckpt, or null for random weights"
        )
    return prefix


def _tensors(network: keras.Model) -> dict[str, keras.Variable]:
    """Maps names in a TF-Slim checkpoint to variables."""
    variables = {}
    for layer in network.layers:
        scope = f"InceptionV1/{published_name(layer.name.removesuffix(_NORM))}"
        if isinstance(layer, keras.layers.Conv2D):
            variables[f"{scope}/weights"] = layer.kernel
        elif isinstance(layer, keras.layers.BatchNormalization):
            for name in ("beta", "moving_mean", "moving_variance"):
                variables[f"{scope}/BatchNorm/{name}"] = getattr(layer, name)
    return variables
