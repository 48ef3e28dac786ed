"""Parts of a transformer captioner: attention with shared projections, layers, normalisation."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.errors import InputError

#: Projections that an attention can share: none, key and value, or query and key.
SHARED = (None, "kv", "qk")


@keras.saving.register_keras_serializable("tfsparsecap")
class DeviationNorm(keras.layers.Layer):
    """Layer normalisation: `scale * (x - mean) / (deviation + 1e-6) + offset`, with the unbiased deviation.

    As in the original implementation of the Object Relation Transformer. Keras's `LayerNormalization` divides
    by the square root of the biased variance plus epsilon.

    Examples:
        >>> DeviationNorm()(ops.array([[1.0, 2.0, 3.0]])).numpy().round(3).tolist()
        [[-1.0, 0.0, 1.0]]
    """

    epsilon = 1e-6

    def build(self, input_shape: Any) -> None:
        size = input_shape[-1]
        self.scale = self.add_weight(name="scale", shape=(size,), initializer="ones")
        self.offset = self.add_weight(name="offset", shape=(size,), initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        count, wide = x.shape[-1], ops.cast(x, "float32")  # the sum of squares may overflow in float16
        centred = wide - ops.mean(wide, axis=-1, keepdims=True)
        deviation = ops.sqrt(ops.sum(ops.square(centred), axis=-1, keepdims=True) / (count - 1))
        return self.scale * ops.cast(centred / (deviation + self.epsilon), x.dtype) + self.offset


@keras.saving.register_keras_serializable("tfsparsecap")
class SharedAttention(keras.layers.Layer):
    """Multi-head attention whose projections can be shared: Share-KV and Share-QK of ACORT.

    A shared projection is computed once. Projection and attention are separate methods, so that decoders can
    cache keys and values.

    Args:
        size: units of inputs and outputs.
        heads: number of heads.
        share: None, `"kv"` (one projection gives key and value) or `"qk"` (query and key).
        dropout: rate on the attention weights in training.
        head_size: units of a head; None for `size / heads`. Attention without some of its heads keeps it.

    Raises:
        InputError: `heads` does not divide `size`, or `share` is unknown.

    Reference:
        Tan et al., "ACORT: A Compact Object Relation Transformer for Parameter Efficient Image Captioning",
        Neurocomputing 2022, https://arxiv.org/abs/2202.05451, section 4.3.

    Examples:
        >>> attention, x = SharedAttention(64, heads=8, share="kv"), keras.random.normal((2, 5, 64))
        >>> attention(x).shape, len(attention.trainable_weights)
        (TensorShape([2, 5, 64]), 6)
    """

    def __init__(
        self,
        size: int,
        heads: int,
        share: str | None = None,
        dropout: float = 0.0,
        head_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if share not in SHARED:
            raise InputError(f'attention can share "kv", "qk" or nothing (none), not "{share}"')
        if heads < 1 or (head_size is None and size % heads):
            raise InputError(f"the size {size} is not a multiple of {heads} heads: change one of them")
        self.size, self.heads, self.share, self.dropout_rate = size, heads, share, dropout
        self.head_size = head_size or size // heads

        def dense(name: str, units: int) -> keras.layers.Layer:
            return keras.layers.Dense(units, dtype=self.dtype_policy, name=name)

        inner = self.heads * self.head_size
        self.query = dense("query_key" if share == "qk" else "query", inner)
        self.key = self.query if share == "qk" else dense("key_value" if share == "kv" else "key", inner)
        self.value = self.key if share == "kv" else dense("value", inner)
        self.merge = dense("output", size)
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    @property
    def projections(self) -> list[keras.layers.Dense]:
        """The distinct layers in the order of query, key, value, output."""
        return list(dict.fromkeys((self.query, self.key, self.value, self.merge)))

    def build(self, input_shape: Any = None) -> None:
        for layer in self.projections:
            if not layer.built:
                units = self.heads * self.head_size if layer is self.merge else self.size
                layer.build((None, None, units))
        self.built = True

    def keys_and_values(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Projects [B, N, size] to `(keys, values)`, [B, N, heads * head_size] each."""
        keys = self.key(x)
        return keys, (keys if self.share == "kv" else self.value(x))

    def attend(
        self,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Attention of projected inputs.

        Args:
            queries: [B, Q, heads * head_size].
            keys, values: [B, N, heads * head_size].
            bias: added to the scores, of a shape that broadcasts to [B, heads, Q, N].
            training: whether dropout is active.

        Returns:
            [B, Q, size].
        """
        scores = ops.matmul(self._split(queries), ops.transpose(self._split(keys), (0, 1, 3, 2)))
        # Scaling the queries instead would let an exporter fold the factor into their kernel.
        scores = scores * self.head_size**-0.5
        weights = ops.softmax(scores if bias is None else scores + bias, axis=-1)
        mixed = ops.matmul(self.dropout(weights, training=training), self._split(values))
        mixed = ops.transpose(mixed, (0, 2, 1, 3))
        length = mixed.shape[1] or ops.shape(mixed)[1]
        return self.merge(ops.reshape(mixed, (-1, length, self.heads * self.head_size)))

    def call(self, x: tf.Tensor, bias: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """Self-attention of [B, N, size]."""
        keys, values = self.keys_and_values(x)
        queries = keys if self.share == "qk" else self.query(x)
        return self.attend(queries, keys, values, bias, training)

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        """[B, N, heads * head_size] to [B, heads, N, head_size]."""
        length = x.shape[1] or ops.shape(x)[1]
        return ops.transpose(ops.reshape(x, (-1, length, self.heads, self.head_size)), (0, 2, 1, 3))


def box_relations(boxes: tf.Tensor, size: int = 64, wave_length: float = 1000.0) -> tf.Tensor:
    """Encodes the relative position and size of boxes as sines and cosines of several wavelengths.

    For boxes m and n: `log(|x_m - x_n| / w_m)`, the same for y and h, `log(w_m / w_n)` and `log(h_m / h_n)`;
    the arguments of the first two are at least 0.001.

    Args:
        boxes: float [B, N, 4], x_min, y_min, x_max, y_max, relative to the image.
        size: length of an encoding, a multiple of 8.
        wave_length: the longest wavelength, in hundredths.

    Returns:
        float32 [B, N, N, size].

    Reference:
        Herdade et al., "Image Captioning: Transforming Objects into Words",
        https://arxiv.org/abs/1906.05963, equations 5 and 6; like its code, it adds 1 to widths and heights.

    Examples:
        >>> box_relations(ops.array([[[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]]])).shape
        TensorShape([1, 2, 2, 64])
    """
    boxes = ops.cast(boxes, "float32")
    x_min, y_min, x_max, y_max = ops.split(boxes, 4, axis=-1)
    wide, high = x_max - x_min + 1.0, y_max - y_min + 1.0
    x, y = (x_min + x_max) * 0.5, (y_min + y_max) * 0.5

    def turned(column: tf.Tensor) -> tf.Tensor:
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


def map_positions(cells: int, size: int) -> np.ndarray:
    """Positional encodings of the cells of a feature map, row by row, float32 [cells, size].

    Half of the units encode the row, the others the column. Cells that form no square are one row.
    """
    side = math.isqrt(cells)
    rows, columns = (side, side) if side * side == cells else (1, cells)
    of_rows = np.repeat(sinusoids(rows, size // 2), columns, axis=0)
    return np.concatenate([of_rows, np.tile(sinusoids(columns, size - size // 2), (rows, 1))], axis=1)


def sinusoids(length: int, size: int) -> np.ndarray:
    """Positional encodings of "Attention Is All You Need", float32 [length, size]."""
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
        dropout: rate in training.
    """

    def __init__(self, size: int, hidden: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size, self.hidden, self.dropout_rate = size, hidden, dropout
        self.inner = keras.layers.Dense(hidden, "relu", dtype=self.dtype_policy, name="inner")
        self.outer = keras.layers.Dense(size, dtype=self.dtype_policy, name="outer")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape: Any = None) -> None:
        self.inner.build((None, None, self.size))
        self.outer.build((None, None, self.hidden))
        self.built = True

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.outer(self.dropout(self.inner(x), training=training))


class _Block(keras.layers.Layer):
    """Base class of encoder and decoder layers: residual sublayers on normalised inputs.

    Args:
        size, hidden: units of inputs and outputs, and of the feed-forward layer.
        heads: number of heads of each attention.
        share, head_size: see `SharedAttention`.
        dropout: rate in training.
    """

    def __init__(
        self,
        size: int,
        hidden: int,
        heads: int,
        share: str | None = None,
        dropout: float = 0.0,
        head_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.size, self.hidden, self.heads, self.head_size = size, hidden, heads, head_size
        self.share, self.dropout_rate = share, dropout
        self.attention = self._attention("attention")
        self.feed_forward = FeedForward(size, hidden, dropout, dtype=self.dtype_policy, name="feed_forward")
        self.attention_norm = DeviationNorm(dtype=self.dtype_policy, name="attention_norm")
        self.feed_forward_norm = DeviationNorm(dtype=self.dtype_policy, name="feed_forward_norm")
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def _attention(self, name: str) -> SharedAttention:
        return SharedAttention(
            self.size,
            self.heads,
            self.share,
            self.dropout_rate,
            self.head_size,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape: Any = None) -> None:
        for layer in (self.attention, self.feed_forward, self.attention_norm, self.feed_forward_norm):
            layer.build((None, None, self.size))
        self.built = True

    def _encoded(self, x: tf.Tensor, bias: tf.Tensor | None, training: bool) -> tf.Tensor:
        attended = self.attention(self.attention_norm(x), bias, training=training)
        return self._fed_forward(x + self.dropout(attended, training=training), training)

    def _fed_forward(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        return x + self.dropout(
            self.feed_forward(self.feed_forward_norm(x), training=training), training=training
        )


@keras.saving.register_keras_serializable("tfsparsecap")
class EncoderLayer(_Block):
    """A transformer's encoder layer; arguments as of its base class, [B, N, size] to the same."""

    def call(self, x: tf.Tensor, bias: tf.Tensor | None = None, training: bool = False) -> tf.Tensor:
        """Applies the layer; `bias` is added to the scores, see `SharedAttention.attend`."""
        return self._encoded(x, bias, training)


@keras.saving.register_keras_serializable("tfsparsecap")
class RelationEncoderLayer(_Block):
    """A transformer's encoder layer whose attention also depends on the geometry of boxes.

    Softmax is applied to `scores + log(max(relu(relation(r_mn)), 1e-6))`, with a `relation` per head (Herdade
    et al., equation 7).

    Args:
        relation_size: length of the encodings of `box_relations`; the others as of its base class.
    """

    def __init__(self, *sizes: Any, relation_size: int = 64, **kwargs: Any) -> None:
        super().__init__(*sizes, **kwargs)
        self.relation_size = relation_size
        self.relation = keras.layers.Dense(self.heads, "relu", dtype=self.dtype_policy, name="relation")

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.relation.build((None, None, None, self.relation_size))

    def call(
        self, x: tf.Tensor, relations: tf.Tensor, mask_bias: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        """Applies the layer.

        Args:
            x: features [B, N, size].
            relations: [B, N, N, relation_size].
            mask_bias: `regions.attention_bias` of padding, [B, 1, 1, N], or None.
            training: whether dropout is active.
        """
        bias = ops.transpose(self.relation(relations), (0, 3, 1, 2))
        bias = ops.log(ops.maximum(bias, 1e-6))
        return self._encoded(x, bias if mask_bias is None else bias + mask_bias, training)


@keras.saving.register_keras_serializable("tfsparsecap")
class DecoderLayer(_Block):
    """A transformer's decoder layer: attention to the previous tokens, then to the image.

    Arguments as of its base class; heads, sharing and sizes are the same for both attentions.
    """

    def __init__(self, *sizes: Any, **kwargs: Any) -> None:
        super().__init__(*sizes, **kwargs)
        self.source_attention = self._attention("source_attention")
        self.source_norm = DeviationNorm(dtype=self.dtype_policy, name="source_norm")

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.source_attention.build()
        self.source_norm.build((None, None, self.size))

    def project(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Normalises tokens [B, T, size] and projects them to queries, keys and values."""
        x = self.attention_norm(x)
        keys, values = self.attention.keys_and_values(x)
        return (keys if self.share == "qk" else self.attention.query(x)), keys, values

    def advance(
        self,
        x: tf.Tensor,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor | None,
        source: tuple[tf.Tensor, tf.Tensor],
        source_bias: tf.Tensor | None,
        training: bool = False,
    ) -> tf.Tensor:
        """Applies the layer to projected tokens.

        Args:
            x: tokens [B, Q, size].
            queries: [B, Q, size], see `project`.
            keys, values: [B, T, size], see `project`.
            bias: added to the scores of the tokens, to mask later ones.
            source: keys and values of the image, [B, N, size] each.
            source_bias: added to the scores of the image's regions, or None.
            training: whether dropout is active.
        """
        attended = self.attention.attend(queries, keys, values, bias, training)
        x = x + self.dropout(attended, training=training)
        queries = self.source_attention.query(self.source_norm(x))
        seen = self.source_attention.attend(queries, *source, source_bias, training)
        return self._fed_forward(x + self.dropout(seen, training=training), training)
