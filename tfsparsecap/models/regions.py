"""What captioners look at: the features of an image's regions, given or made from a photograph."""

import keras
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Inputs


def feature_size(encoder: keras.layers.Layer | None, captioner: str) -> int:
    """Length D of the features that an encoder gives.

    Args:
        encoder: a layer that says it itself (`features_shape`), or a model whose output shape is known.
        captioner: name of the class that asks, for the message.

    Raises:
        InputError: there is no encoder, or it does not say.
    """
    if encoder is None:
        raise InputError(f"{captioner} needs feature_size, the length of a feature, when it has no encoder")
    shape = getattr(encoder, "features_shape", None)
    if shape is None and isinstance(encoder, keras.Model) and hasattr(encoder, "output_shape"):
        shape = encoder.output_shape
    if shape is None:
        raise InputError(f"{captioner} cannot tell how long {encoder.name}'s features are: give feature_size")
    return shape[-1]


def regions(inputs: Inputs, encoder: keras.layers.Layer | None, size: int, training: bool = False):
    """The features of the regions, and which rows are regions.

    Images have different numbers of regions, so batches are filled up. Which rows count says `inputs["mask"]`
    where it is given. Else, without an encoder, rows of zeros are filling: no region has such features, and a
    file of a fixed number of rows takes any image with fewer. The map of an encoder has no filling.

    Args:
        inputs: `"features"` float [B, N, D], or `"image"` for the encoder, [B, S, S, 3]; optionally `"mask"`
            bool or 0 and 1 [B, N], true for regions.
        encoder: from images to features, or None.
        size: D.
        training: passed on to the encoder.

    Returns:
        `(features, mask)`: [B, N, D] with zeros where the filling is, and bool [B, N] or, where all rows are
        regions, None.

    Raises:
        InputError: neither features nor an image that could be encoded; no region; features of another
            length.

    Example:
        >>> features, mask = regions({"features": ops.array([[[1.0, 2.0], [0.0, 0.0]]])}, None, 2)
        >>> ops.convert_to_numpy(mask).tolist()
        [[True, False]]
    """
    if "features" in inputs:
        features = ops.convert_to_tensor(inputs["features"])
    elif encoder is None:
        raise InputError(
            f'a captioner without an encoder takes "features", not {sorted(inputs)}: give "features"'
            " or build it with an encoder"
        )
    elif "image" in inputs:
        features = encoder(inputs["image"], training=training)
    else:
        raise InputError(f'a captioner takes "image" or "features", not {sorted(inputs)}: give one of them')
    if len(features.shape) != 3 or features.shape[2] not in (size, None) or features.shape[1] == 0:
        raise InputError(
            f"the captioner takes features of shape [images, regions, {size}] with at least one region, not"
            f" {tuple(features.shape)}: give those that it was made for, or set its feature_size"
        )
    if "mask" in inputs:
        mask = ops.cast(inputs["mask"], "bool")
        return ops.where(mask[:, :, None], features, ops.zeros_like(features)), mask
    if encoder is None:
        return features, ops.any(features != 0, axis=2)
    return features, None


def mean_region(features, mask):
    """The mean of the regions, [B, N, D] to [B, D]; of no regions at all, zeros.

    Args:
        features, mask: as `regions` returns them.
    """
    if mask is None:
        return ops.mean(features, axis=1)
    count = ops.cast(ops.sum(ops.cast(mask, "float32"), axis=1, keepdims=True), features.dtype)
    return ops.sum(features, axis=1) / ops.maximum(count, 1)


def attention_bias(mask, dtype: str):
    """What is added to the scores of the rows before their softmax: 0 for regions, or as good as -infinity.

    Args:
        mask: bool [B, N].
        dtype: of the result; the number fits float16, and where no row is a region all have equal weights.
    """
    return ops.where(mask, ops.zeros((), dtype), ops.full((), -3e4, dtype))
