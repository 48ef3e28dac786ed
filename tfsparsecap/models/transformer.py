"""The parts of a transformer captioner: attention that can share projections, layers, normalisation."""

import math

import keras
import numpy as np
from keras import ops

from tfsparsecap.errors import InputError

#: Which projections an attention shares: none, key and value, or query and key.
SHARED = (None, "kv", "qk")


@keras.saving.register_keras_serializable("tfsparsecap")
class DeviationNorm(keras.layers.Layer):
    """Layer normalisation by the unbiased deviation: `scale * (x - mean) / (deviation + 1e-6) + offset`.

    What the original implementation of the Object Relation Transformer computes. Keras's
    `LayerNormalization` divides by the square root of the biased variance plus epsilon.

    Example:
        >>> DeviationNorm()(ops.array([[1.0, 2.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 0.0, 1.0]]
    """

    epsilon = 1e-6

    def build(self, input_shape) -> None:
        size = input_shape[-1]
        self.scale = self.add_weight(name="scale", shape=(size,), initializer="ones")
        self.offset = self.add_weight(name="offset", shape=(size,), initializer="zeros")

    def call(self, x):
        count = x.shape[-1]
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        deviation = ops.sqrt(ops.sum(ops.square(centred), axis=-1, keepdims=True) / (count - 1))
        return self.scale * centred / (deviation + self.epsilon) + self.offset


@keras.saving.register_keras_serializable("tfsparsecap")
class SharedAttention(keras.layers.Layer):
    """Multi-head attention whose projections may be shared: Share-KV and Share-QK of ACORT.

    A shared projection is computed once. The parts are called by themselves, so that a decoder keeps keys and
    values from word to word.

    Args:
        size: of inputs and outputs, a multiple of `heads`.
        heads: number of heads.
        share: None, `"kv"` (one projection gives key and value) or `"qk"` (query and key).
        dropout: share of the attention weights dropped in training.

    Raises:
        InputError: `heads` does not divide `size`, or there is no such sharing.

    Reference:
        Tan et al., "ACORT: A Compact Object Relation Transformer for Parameter Efficient Image Captioning",
        Neurocomputing 2022, https://arxiv.org/abs/2202.05451, section 3.3.

    Example:
        >>> attention, x = SharedAttention(64, heads=8, share="kv"), keras.random.normal((2, 5, 64))
        >>> attention(x).shape, len(attention.trainable_weights)
        (TensorShape([2, 5, 64]), 6)
    """

    def __init__(self, size: int, heads: int, share: str | None = None, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        if share not in SHARED:
            raise InputError(f'an attention shares "kv", "qk" or nothing (none), not "{share}"')
        if heads < 1 or size % heads:
            raise InputError(f"the size {size} is no multiple of {heads} heads: change one of them")
        self.size, self.heads, self.share, self.dropout_rate = size, heads, share, dropout

        def dense(name):
            return keras.layers.Dense(size, dtype=self.dtype_policy, name=name)

        self.query = dense("query_key" if share == "qk" else "query")
        self.key = self.query if share == "qk" else dense("key_value" if share == "kv" else "key")
        self.value = self.key if share == "kv" else dense("value")
        self.merge = dense("output")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    @property
    def projections(self) -> list[keras.layers.Dense]:
        """The layers there are, in the order of query, key, value, output; a shared one is there once."""
        return list(dict.fromkeys((self.query, self.key, self.value, self.merge)))

    def build(self, input_shape=None) -> None:
        for layer in self.projections:
            if not layer.built:
                layer.build((None, None, self.size))
        self.built = True

    def keys_and_values(self, x):
        """What is attended to, [B, N, size], as `(keys, values)`, of the same shape each."""
        keys = self.key(x)
        return keys, (keys if self.share == "kv" else self.value(x))

    def attend(self, queries, keys, values, bias=None, training: bool = False):
        """Attention of projected inputs.

        Args:
            queries, keys, values: [B, Q, size] and twice [B, N, size].
            bias: what is added to the scores, of a shape that goes with [B, heads, Q, N].
            training: whether attention weights are dropped.

        Returns:
            [B, Q, size].
        """
        scores = ops.matmul(self._split(queries), ops.transpose(self._split(keys), (0, 1, 3, 2)))
        # Not the queries: an exporter would make the factor part of their kernel.
        scores = scores * (self.size // self.heads) ** -0.5
        weights = ops.softmax(scores if bias is None else scores + bias, axis=-1)
        mixed = ops.matmul(self.dropout(weights, training=training), self._split(values))
        mixed = ops.transpose(mixed, (0, 2, 1, 3))
        return self.merge(ops.reshape(mixed, (-1, mixed.shape[1] or ops.shape(mixed)[1], self.size)))

    def call(self, x, bias=None, training: bool = False):
        """Self-attention of [B, N, size]."""
        keys, values = self.keys_and_values(x)
        queries = keys if self.share == "qk" else self.query(x)
        return self.attend(queries, keys, values, bias, training)

    def _split(self, x):
        """[B, N, size] to [B, heads, N, size / heads]."""
        length = x.shape[1] or ops.shape(x)[1]
        return ops.transpose(ops.reshape(x, (-1, length, self.heads, self.size // self.heads)), (0, 2, 1, 3))

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "size": self.size,
            "heads": self.heads,
            "share": self.share,
            "dropout": self.dropout_rate,
        }


def box_relations(boxes, size: int = 64, wave_length: float = 1000.0):
    """How boxes lie to each other, as sines and cosines of many wave lengths.

    Of boxes m and n: `log(|x_m - x_n| / w_m)`, the same of y and h, `log(w_m / w_n)` and `log(h_m / h_n)`;
    the first two are of at least 0.001 before the logarithm.

    Args:
        boxes: float [B, N, 4], x_min, y_min, x_max, y_max, relative to the image.
        size: length of the result, a multiple of 8.
        wave_length: of the longest wave, in hundredths.

    Returns:
        float32 [B, N, N, size].

    Reference:
        Herdade et al., "Image Captioning: Transforming Objects into Words",
        https://arxiv.org/abs/1906.05963, equations 5 and 6; 1 is added to widths and heights as in its code.

    Example:
        >>> box_relations(ops.array([[[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]]])).shape
        TensorShape([1, 2, 2, 64])
    """
    boxes = ops.cast(boxes, "float32")
    x_min, y_min, x_max, y_max = ops.split(boxes, 4, axis=-1)
    wide, high = x_max - x_min + 1.0, y_max - y_min + 1.0
    x, y = (x_min + x_max) * 0.5, (y_min + y_max) * 0.5

    def turned(column):
        return ops.transpose(column, (0, 2, 1))

    relations = [
        ops.log(ops.maximum(ops.abs((x - turned(x)) / wide), 1e-3)),
        ops.log(ops.maximum(ops.abs((y - turned(y)) / high), 1e-3)),
        ops.log(wide / turned(wide)),
        ops.log(high / turned(high)),
    ]
    steps = size // 8
    frequencies = (100.0 / wave_length ** (np.arange(steps) / steps)).astype(np.float32)
    phases = ops.concatenate([ops.expand_dims(relation, -1) * frequencies for relation in relations], axis=-1)
    return ops.concatenate([ops.sin(phases), ops.cos(phases)], axis=-1)


def positions(length: int, size: int) -> np.ndarray:
    """The sines and cosines that are added to words, float32 [length, size]; "Attention Is All You Need"."""
    rates = np.exp(np.arange(0, size, 2) * -(math.log(10000.0) / size))
    phases = np.arange(length)[:, None] * rates
    return (
        np.stack([np.sin(phases), np.cos(phases)], axis=-1).reshape(length, -1)[:, :size].astype(np.float32)
    )


@keras.saving.register_keras_serializable("tfsparsecap")
class FeedForward(keras.layers.Layer):
    """Two dense layers with a ReLU and dropout between them, [B, N, size] to the same.

    Args:
        size, hidden: of inputs and outputs, and between the layers.
        dropout: share dropped in training.
    """

    def __init__(self, size: int, hidden: int, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.size, self.hidden, self.dropout_rate = size, hidden, dropout
        self.inner = keras.layers.Dense(hidden, "relu", dtype=self.dtype_policy, name="inner")
        self.outer = keras.layers.Dense(size, dtype=self.dtype_policy, name="outer")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape=None) -> None:
        self.inner.build((None, None, self.size))
        self.outer.build((None, None, self.hidden))
        self.built = True

    def call(self, x, training: bool = False):
        return self.outer(self.dropout(self.inner(x), training=training))

    def get_config(self) -> dict:
        sizes = {"size": self.size, "hidden": self.hidden, "dropout": self.dropout_rate}
        return {**super().get_config(), **sizes}


class _Block(keras.layers.Layer):
    """What encoder and decoder layers have in common: sublayers on normalised inputs, added to these."""

    def __init__(self, size: int, hidden: int, heads: int, share: str | None, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.size, self.hidden, self.heads, self.share, self.dropout_rate = (
            size,
            hidden,
            heads,
            share,
            dropout,
        )
        self.attention = self._attention("attention")
        self.feed_forward = FeedForward(size, hidden, dropout, dtype=self.dtype_policy, name="feed_forward")
        self.attention_norm = DeviationNorm(dtype=self.dtype_policy, name="attention_norm")
        self.feed_forward_norm = DeviationNorm(dtype=self.dtype_policy, name="feed_forward_norm")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def _attention(self, name: str) -> SharedAttention:
        return SharedAttention(
            self.size, self.heads, self.share, self.dropout_rate, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape=None) -> None:
        for layer in (self.attention, self.feed_forward, self.attention_norm, self.feed_forward_norm):
            layer.build((None, None, self.size))
        self.built = True

    def _fed_forward(self, x, training: bool):
        return x + self.dropout(
            self.feed_forward(self.feed_forward_norm(x), training=training), training=training
        )

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "size": self.size,
            "hidden": self.hidden,
            "heads": self.heads,
            "share": self.share,
            "dropout": self.dropout_rate,
        }


@keras.saving.register_keras_serializable("tfsparsecap")
class RelationEncoderLayer(_Block):
    """A transformer's encoder layer whose attention also weighs how boxes lie to each other.

    The softmax is of `scores + log(max(relu(relation(r_mn)), 1e-6))`, a `relation` for each head; Herdade et
    al., equation 7.

    Args:
        size, hidden: of the features, and of the feed-forward layer.
        heads: of the attention.
        share: see `SharedAttention`.
        dropout: in training.
        relation_size: length of `box_relations`.
    """

    def __init__(
        self,
        size: int,
        hidden: int,
        heads: int,
        share: str | None = None,
        dropout: float = 0.0,
        relation_size: int = 64,
        **kwargs,
    ):
        super().__init__(size, hidden, heads, share, dropout, **kwargs)
        self.relation_size = relation_size
        self.relation = keras.layers.Dense(heads, "relu", dtype=self.dtype_policy, name="relation")

    def build(self, input_shape=None) -> None:
        super().build(input_shape)
        self.relation.build((None, None, None, self.relation_size))

    def call(self, x, relations, mask_bias=None, training: bool = False):
        """One layer further.

        Args:
            x: features [B, N, size].
            relations: [B, N, N, relation_size].
            mask_bias: `regions.attention_bias`, [B, 1, 1, N], or None where all are seen.
            training: whether there is dropout.
        """
        bias = ops.transpose(self.relation(relations), (0, 3, 1, 2))
        bias = ops.log(ops.maximum(bias, 1e-6))
        bias = bias if mask_bias is None else bias + mask_bias
        attended = self.attention(self.attention_norm(x), bias, training=training)
        return self._fed_forward(x + self.dropout(attended, training=training), training)

    def get_config(self) -> dict:
        return {**super().get_config(), "relation_size": self.relation_size}


@keras.saving.register_keras_serializable("tfsparsecap")
class DecoderLayer(_Block):
    """A transformer's decoder layer: attention to the words before, then to the image.

    Args:
        size, hidden: of the words, and of the feed-forward layer.
        heads: of the attentions.
        share: see `SharedAttention`; the same for both.
        dropout: in training.
    """

    def __init__(
        self, size: int, hidden: int, heads: int, share: str | None = None, dropout: float = 0.0, **kwargs
    ):
        super().__init__(size, hidden, heads, share, dropout, **kwargs)
        self.source_attention = self._attention("source_attention")
        self.source_norm = DeviationNorm(dtype=self.dtype_policy, name="source_norm")

    def build(self, input_shape=None) -> None:
        super().build(input_shape)
        self.source_attention.build()
        self.source_norm.build((None, None, self.size))

    def project(self, x):
        """Queries, keys and values of words [B, T, size], normalised before."""
        x = self.attention_norm(x)
        keys, values = self.attention.keys_and_values(x)
        return (keys if self.share == "qk" else self.attention.query(x)), keys, values

    def advance(self, x, queries, keys, values, bias, source, source_bias, training: bool = False):
        """One layer further, from projections of the words.

        Args:
            x: words [B, Q, size].
            queries, keys, values: [B, Q, size] and twice [B, T, size], see `project`.
            bias: added to the scores of the words, for those that come later.
            source: keys and values of the image, [B, N, size] each.
            source_bias: added to the scores of the image's regions, or None.
            training: whether there is dropout.
        """
        attended = self.attention.attend(queries, keys, values, bias, training)
        x = x + self.dropout(attended, training=training)
        queries = self.source_attention.query(self.source_norm(x))
        seen = self.source_attention.attend(queries, *source, source_bias, training)
        return self._fed_forward(x + self.dropout(seen, training=training), training)
