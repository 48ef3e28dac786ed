"""Attention maps: the image regions that a captioner attends to for each token."""

import numpy as np
from keras import ops

from tfsparsecap.models.additive_attention import AdditiveAttentionCaptioner
from tfsparsecap.models.captioner import Captioner, Inputs

_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")
# A map whose largest weight is less than this many times the mean has no clear focus.
_MIN_PEAK = 1.5


def has_attention(captioner: Captioner) -> bool:
    """Whether `attention_weights` supports the captioner, and its regions form a grid over the image."""
    return isinstance(captioner, AdditiveAttentionCaptioner) and captioner.encoder is not None


def attention_weights(captioner: Captioner, inputs: Inputs, token_ids: np.ndarray) -> np.ndarray:
    """The attention weights with which each token was predicted.

    Args:
        captioner: a `SoftAttention` or an `UpDown`, without gates.
        inputs: of `Captioner.encode`, for B images.
        token_ids: int32 [B, T], without the start token.

    Returns:
        float32 [B, T, N]; each [b, t] sums to 1 over the N regions.

    Examples:
        >>> from tfsparsecap.models import SoftAttention
        >>> captioner = SoftAttention(1000, feature_size=768)
        >>> features = np.random.rand(2, 49, 768).astype("float32")
        >>> attention_weights(captioner, {"features": features}, np.ones((2, 5), "int32")).shape
        (2, 5, 49)
    """
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    previous = np.full(len(token_ids), captioner.start_id, "int32")
    found = []
    for token in np.asarray(token_ids, "int32").T:
        _, after = captioner.step(ops.convert_to_tensor(previous), state, memory)
        weights = captioner.attention_weights(captioner.attention_state(state, after), memory)
        found.append(ops.convert_to_numpy(ops.cast(weights, "float32")))
        state, previous = after, token
    return np.stack(found, axis=1)


def as_map(weights: np.ndarray) -> np.ndarray | None:
    """Reshapes [N] weights to a square map [H, H]; None if N is not a square number."""
    side = round(weights.size**0.5)
    return weights.reshape(side, side) if side * side == weights.size else None


def focus(weights: np.ndarray) -> str:
    """The place in an image where an attention map is highest, in words.

    Args:
        weights: [H, W], sums to 1.

    Examples:
        >>> focus(np.eye(4)[:1].repeat(4, 0) * 0.25), focus(np.full((4, 4), 1 / 16))
        ('middle left', 'the whole image')
    """
    height, width = weights.shape
    if weights.max() < _MIN_PEAK / weights.size:
        return "the whole image"
    # The centre of all high weights, since several cells may have the same weight.
    high = np.where(weights >= weights.max() / 2, weights, 0)
    rows, columns = np.mgrid[0:height, 0:width]
    row = float((high * (rows + 0.5)).sum() / high.sum() / height)
    column = float((high * (columns + 0.5)).sum() / high.sum() / width)
    place = f"{_ROWS[min(2, int(3 * row))]} {_COLUMNS[min(2, int(3 * column))]}"
    return "centre" if place == "middle centre" else place
