"""Additive attention over the regions of a picture, as Soft-Attention and Up-Down have it."""

import keras
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Memory
from tfsparsecap.models.regions import attention_bias


def checked_sharing(share: str | None) -> str | None:
    """What an additive attention shares: None, or `"kv"`, one projection for keys and values.

    Raises:
        InputError: anything else.
    """
    if share not in (None, "kv"):
        raise InputError(f'share_attention is "{share}": an additive attention shares "kv" or nothing (none)')
    return share


def attention_memory(keys, features, mask, share: str | None) -> Memory:
    """What attention needs to know of a picture, the same for each word.

    Args:
        keys: [B, N, A], what regions are scored by.
        features: [B, N, D], what is looked at; not kept with Share-KV, where it is the keys.
        mask: bool [B, N], true for regions; None where all rows are.
        share: as `checked_sharing` returns it.
    """
    memory = {"keys": keys}
    if share != "kv":
        memory["features"] = features
    if mask is not None:
        memory["attention_bias"] = attention_bias(mask, keys.dtype)
    return memory


def attention_weights(query, memory: Memory, score: keras.layers.Layer):
    """How much of each region is looked at: `softmax(score(tanh(keys + query)))`, [B, N].

    Args:
        query: [B, A].
        memory: of `attention_memory`.
        score: a layer from A units to 1.

    Example:
        >>> memory = attention_memory(ops.zeros((1, 4, 3)), ops.ones((1, 4, 8)), None, None)
        >>> ops.convert_to_numpy(attention_weights(ops.ones((1, 3)), memory, keras.layers.Dense(1))).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    energy = ops.tanh(memory["keys"] + ops.expand_dims(query, 1))
    scores = ops.squeeze(score(energy), axis=-1)
    if "attention_bias" in memory:
        scores = scores + memory["attention_bias"]
    return ops.softmax(scores, axis=-1)


def looked_at(weights, memory: Memory):
    """The mean of the features with these weights: [B, N] to [B, D]."""
    features = memory["features"] if "features" in memory else memory["keys"]
    return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), features), axis=1)
