"""Where a captioner with soft attention looked while it said each word."""

from dataclasses import dataclass

import numpy as np
from keras import ops

from tfsparsecap.models.additive_attention import AdditiveAttentionCaptioner
from tfsparsecap.models.captioner import Captioner, Inputs

_ROWS, _COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")
# A map whose largest weight is not this many times the mean looks at nothing in particular.
_EVEN = 1.5


@dataclass(frozen=True)
class WordMap:
    """A word, and float32 [H, W] that adds up to 1: where the captioner looked when it said it."""

    word: str
    weights: np.ndarray


def has_attention(captioner: Captioner) -> bool:
    """Whether `attention_weights` knows the captioner, and its regions are a map over the picture."""
    return isinstance(captioner, AdditiveAttentionCaptioner) and captioner.encoder is not None


def attention_weights(captioner: Captioner, inputs: Inputs, token_ids: np.ndarray) -> np.ndarray:
    """Weights of the attention from which each token was said.

    The captioner is stepped through the tokens and asked before (or, where it looks in the middle of a
    step, after) each of them; the step itself stays its own.

    Args:
        captioner: a `SoftAttention` or an `UpDown`, without gates.
        inputs: as `Captioner.encode` takes them, of B pictures.
        token_ids: int32 [B, T], without the start token.

    Returns:
        float32 [B, T, N]; each [b, t] adds up to 1 over the N regions.

    Example:
        >>> from tfsparsecap.models import SoftAttention
        >>> captioner = SoftAttention(1000, feature_size=768)
        >>> features = np.random.rand(2, 49, 768).astype("float32")
        >>> attention_weights(captioner, {"features": features}, np.ones((2, 5), "int32")).shape
        (2, 5, 49)
    """
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    said = np.full(len(token_ids), captioner.start_id, "int32")
    found = []
    for token in np.asarray(token_ids, "int32").T:
        _, after = captioner.step(ops.convert_to_tensor(said), state, memory)
        weights = captioner.attention_weights(captioner.attention_state(state, after), memory)
        found.append(ops.convert_to_numpy(ops.cast(weights, "float32")))
        state, said = after, token
    return np.stack(found, axis=1)


def as_map(weights: np.ndarray) -> np.ndarray | None:
    """[N] weights of regions as the square map [H, H] that they are of; None where N is no square."""
    side = round(weights.size**0.5)
    return weights.reshape(side, side) if side * side == weights.size else None


def where(weights: np.ndarray) -> str:
    """In words, for those who do not see it, where a map is highest.

    Args:
        weights: [H, W], adding up to 1.

    Example:
        >>> where(np.eye(4)[:1].repeat(4, 0) * 0.25), where(np.full((4, 4), 1 / 16))
        ('middle left', 'the whole picture')
    """
    height, width = weights.shape
    if weights.max() < _EVEN / weights.size:
        return "the whole picture"
    # The centre of what is clearly looked at, not one of several cells that are equally high.
    strong = np.where(weights >= weights.max() / 2, weights, 0)
    rows, columns = np.mgrid[0:height, 0:width]
    row = float((strong * (rows + 0.5)).sum() / strong.sum() / height)
    column = float((strong * (columns + 0.5)).sum() / strong.sum() / width)
    down, across = _ROWS[min(2, int(3 * row))], _COLUMNS[min(2, int(3 * column))]
    return "centre" if (down, across) == ("middle", "centre") else f"{down} {across}"
