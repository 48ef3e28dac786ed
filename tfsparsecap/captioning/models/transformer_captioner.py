"""Base class of transformer captioners: encoder and decoder layers, teacher forcing, and cached stepping."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory, State
from tfsparsecap.captioning.models.regions import RegionCaptioner, attention_bias
from tfsparsecap.captioning.models.transformer_layers import (
    DecoderLayer,
    DeviationNorm,
    EncoderLayer,
    sinusoids,
)
from tfsparsecap.errors import InputError, check_whole


class TransformerCaptioner(RegionCaptioner):
    """Base class of captioners with a transformer encoder and decoder.

    Keys and values of earlier tokens are cached in the state, so that every step costs the same. Layers can
    be shared across depths and projections within attentions, as in ACORT. A subclass sets `encoder_layer`
    and implements `encode`.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        size: units of features and tokens inside the model (d_model).
        hidden_size: units of the feed-forward layers.
        layers: depth of encoder and decoder each.
        heads: number of heads in every attention; a head has `size / heads` units.
        encoder_layers, decoder_layers: depth of the encoder and of the decoder; None takes `layers`.
        encoder_heads: number of heads in the layers of the encoder, one value or a value for each layer; None
            takes `heads`. A head still has `size / heads` units.
        encoder_hidden_size: the same for `hidden_size`.
        max_length: largest number of tokens in a caption.
        share_encoder_layers: index of the layer used at each depth, such as `[0, 0, 0, 1, 1, 1]`; None gives
            each depth its own layer.
        share_decoder_layers: the same for the decoder.
        share_encoder_attention: None, `"kv"` or `"qk"`, see `SharedAttention`.
        share_decoder_attention: the same for the decoder.
        shared_caches: whether a layer used at several depths attends, when stepping, to the cached tokens of
            all these depths. The original implementation does so when decoding (not in teacher forcing), and
            published captions of models with shared layers depend on it.
        dropout: rate in layers and on tokens, in training.
        feature_dropout: rate on embedded features, in training.
        kwargs: `feature_size`, `encoder` and others, see `RegionCaptioner`.

    Raises:
        InputError: the length of the features is not known, or an argument is out of range.
    """

    max_length: int
    #: The class of the encoder's layers.
    encoder_layer: type[keras.layers.Layer] = EncoderLayer

    def __init__(
        self,
        vocabulary_size: int,
        *,
        size: int = 512,
        hidden_size: int = 2048,
        layers: int = 6,
        heads: int = 8,
        encoder_layers: int | None = None,
        decoder_layers: int | None = None,
        encoder_heads: int | Sequence[int] | None = None,
        encoder_hidden_size: int | Sequence[int] | None = None,
        max_length: int = 20,
        share_encoder_layers: Sequence[int] | None = None,
        share_decoder_layers: Sequence[int] | None = None,
        share_encoder_attention: str | None = None,
        share_decoder_attention: str | None = None,
        shared_caches: bool = False,
        dropout: float = 0.1,
        feature_dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, **kwargs)
        depths = encoder_layers or layers, decoder_layers or layers
        for name, value in (("layers", min(depths)), ("max_length", max_length)):
            check_whole(name, value, at_least=1)
        if heads < 1 or size % heads:
            raise InputError(f"the size {size} is not a multiple of {heads} heads: change one of them")
        self.size, self.hidden_size, self.heads, self.max_length = size, hidden_size, heads, max_length
        self.layer_count, self.depth = layers, depths[1]
        self.dropout_rate, self.feature_dropout_rate = dropout, feature_dropout
        self.encoder_order = _order(share_encoder_layers, depths[0], "share_encoder_layers")
        self.decoder_order = _order(share_decoder_layers, depths[1], "share_decoder_layers")
        count = max(self.encoder_order) + 1
        self.encoder_heads = _per_layer(encoder_heads, heads, count, "encoder_heads")
        self.encoder_hidden = _per_layer(encoder_hidden_size, hidden_size, count, "encoder_hidden_size")
        self.share_encoder_attention = share_encoder_attention
        self.share_decoder_attention = share_decoder_attention
        self.shared_caches = shared_caches
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the layers and their weights; needs no input shape."""
        if self.built:
            return
        policy, size = self.dtype_policy, self.size
        self.feature_embedding = self.dense("feature_embedding", size, self.feature_size, "relu")
        self.embedding = keras.layers.Embedding(self.vocabulary_size, size, dtype=policy, name="embedding")
        self.embedding.build((None,))

        def layer(kind: type, name: str, hidden: int, heads: int, share: str | None) -> Any:
            sizes = (size, hidden, heads, share, self.dropout_rate, size // self.heads)
            made = kind(*sizes, dtype=policy, name=name)
            made.build((None, None, size))
            return made

        self.encoder_layers = [
            layer(self.encoder_layer, f"encoder_{i}", hidden, heads, self.share_encoder_attention)
            for i, (hidden, heads) in enumerate(zip(self.encoder_hidden, self.encoder_heads, strict=True))
        ]
        self.decoder_layers = [
            layer(DecoderLayer, f"decoder_{i}", self.hidden_size, self.heads, self.share_decoder_attention)
            for i in range(max(self.decoder_order) + 1)
        ]
        self.encoder_norm = DeviationNorm(dtype=policy, name="encoder_norm")
        self.decoder_norm = DeviationNorm(dtype=policy, name="decoder_norm")
        for norm in (self.encoder_norm, self.decoder_norm):
            norm.build((None, None, size))
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.feature_dropout = keras.layers.Dropout(
            self.feature_dropout_rate, dtype=policy, name="feature_dropout"
        )
        # `output` is a property of every Keras layer. Logits keep full precision under mixed precision.
        self.output_layer = self.dense("output", self.vocabulary_size, size, dtype=policy.variable_dtype)
        self.built = True

    def embedded_features(
        self, features: tf.Tensor, mask: tf.Tensor | None, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns features [B, N, size], and what hides padding from attention, [B, 1, 1, N], or None.

        Args:
            features, mask: as from `regions`.
            training: whether dropout is active.
        """
        x = self.feature_embedding(ops.cast(features, self.compute_dtype))
        x = self.feature_dropout(x, training=training)
        return x, None if mask is None else attention_bias(mask, x.dtype)[:, None, None, :]

    def image_memory(self, x: tf.Tensor, unseen: tf.Tensor | None) -> Memory:
        """Returns the memory for the output of the last encoder layer, [B, N, size]."""
        x = self.encoder_norm(x)
        memory = {"features": x}
        # Once per image and layer, even if the layer is used at several depths.
        for index, layer in enumerate(self.decoder_layers):
            keys, values = layer.source_attention.keys_and_values(x)
            memory[f"keys_{index}"] = keys
            if self.share_decoder_attention != "kv":
                memory[f"values_{index}"] = values
        if unseen is not None:
            memory["unseen"] = unseen
        return memory

    def initial_state(self, memory: Memory) -> State:
        like = ops.zeros_like(memory["features"][:, :1, :])
        empty = ops.tile(like, (1, self.max_length, 1))
        # One tensor per depth: slicing a stacked tensor would take longer than filling it.
        caches = {f"{name}_{depth}": empty for depth in range(self.depth) for name in self._cached()}
        return {**caches, "position": ops.cast(ops.zeros_like(like[:, 0, 0]), "int32")}

    def _cached(self) -> tuple[str, ...]:
        return ("keys",) if self.share_decoder_attention == "kv" else ("keys", "values")

    def step(
        self, token_ids: tf.Tensor, state: State, memory: Memory, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        steps, now = ops.arange(self.max_length)[None, :], state["position"][:, None]
        here, before = ops.equal(steps, now), steps < now
        position = ops.take(self._positions(), state["position"], axis=0)
        x = self._embedded(token_ids[:, None], position[:, None])
        x = self.dropout(x, training=training)
        caches = dict(state)
        for depth, index in enumerate(self.decoder_order):
            layer = self.decoder_layers[index]
            queries, *projected = layer.project(x)
            for name, latest in zip(self._cached(), projected, strict=False):
                earlier = caches[f"{name}_{depth}"]
                caches[f"{name}_{depth}"] = ops.where(here[:, :, None], latest, earlier)
            # The depths whose cached tokens are attended to; the current token is cached up to this depth.
            depths = [other for other in range(self.depth) if self.decoder_order[other] == index]
            depths = depths if self.shared_caches else [depth]
            seen = ops.concatenate([here | before if d <= depth else before for d in depths], axis=1)
            bias = attention_bias(seen, x.dtype)[:, None, None, :]
            attended = [
                ops.concatenate([caches[f"{name}_{d}"] for d in depths], axis=1) for name in self._cached()
            ]
            x = layer.advance(
                x,
                queries,
                attended[0],
                attended[-1],
                bias,
                self._source(memory, index),
                memory.get("unseen"),
                training,
            )
        return self.logits_of(ops.squeeze(x, axis=1)), {**caches, "position": state["position"] + 1}

    def teacher_forcing(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        return self.logits_of(self.decoder_states(inputs, training)[-1])

    def decoder_states(self, inputs: Inputs, training: bool = False) -> list[tf.Tensor]:
        """Returns the output of the decoder at each depth, [B, T, size], for the inputs of `call`."""
        memory = self.encode_for_tokens(inputs, training)
        tokens, states = inputs["tokens"], []
        length = tokens.shape[1] or ops.shape(tokens)[1]
        x = self._embedded(tokens, self._positions(tokens.shape[1])[None, :length])
        x = self.dropout(x, training=training)
        bias = attention_bias(ops.arange(length)[None, :] <= ops.arange(length)[:, None], x.dtype)
        for index in self.decoder_order:
            layer = self.decoder_layers[index]
            x = layer.advance(
                x, *layer.project(x), bias, self._source(memory, index), memory.get("unseen"), training
            )
            states.append(x)
        return states

    def _source(self, memory: Memory, index: int) -> tuple[tf.Tensor, tf.Tensor]:
        keys = memory[f"keys_{index}"]
        return keys, memory.get(f"values_{index}", keys)

    def _embedded(self, token_ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        return self.embedding(token_ids) * math.sqrt(self.size) + ops.cast(position, self.compute_dtype)

    def _positions(self, length: int | None = None) -> tf.Tensor:
        return tf.constant(sinusoids(max(length or 0, self.max_length or 0), self.size))

    def constant_tables(self) -> dict[str, np.ndarray]:
        return {"positions": sinusoids(self.max_length, self.size)}

    def logits_of(self, x: tf.Tensor) -> tf.Tensor:
        """Returns float32 logits [..., V] for outputs of the last decoder layer, [..., size]."""
        return ops.cast(self.output_layer(self.decoder_norm(x)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "size": self.size,
            "hidden_size": self.hidden_size,
            "layers": self.layer_count,
            "heads": self.heads,
            "encoder_layers": len(self.encoder_order),
            "decoder_layers": self.depth,
            "encoder_heads": self.encoder_heads,
            "encoder_hidden_size": self.encoder_hidden,
            "max_length": self.max_length,
            "share_encoder_layers": self.encoder_order,
            "share_decoder_layers": self.decoder_order,
            "share_encoder_attention": self.share_encoder_attention,
            "share_decoder_attention": self.share_decoder_attention,
            "shared_caches": self.shared_caches,
            "dropout": self.dropout_rate,
            "feature_dropout": self.feature_dropout_rate,
        }


def selected_layers(layers: int, selected: int) -> list[int]:
    """Indices from 0 of the decoder layers that a shallower decoder keeps, or learns from.

    The paper counts from 1: `floor((L - 1) / (d - 1) * l + 1)` for l = 0 to d - 1, if d of L layers are
    selected. This is not defined for one layer; that is the last.

    Raises:
        InputError: more layers than there are.

    Reference:
        RTIC, equation 5; Ko et al., "NASH", https://arxiv.org/abs/2310.10054.

    Examples:
        >>> selected_layers(6, 3)
        [0, 2, 5]
    """
    if not 1 <= selected <= layers:
        raise InputError(f"{selected} layers cannot be selected from {layers}: choose 1 to {layers}")
    if selected == 1:
        return [layers - 1]
    return [(layers - 1) * index // (selected - 1) for index in range(selected)]


def _order(shared: Sequence[int] | None, layers: int, name: str) -> list[int]:
    """Returns the index of the layer at each depth."""
    order = list(range(layers)) if shared is None else [int(index) for index in shared]
    if len(order) != layers or sorted(set(order)) != list(range(max(order, default=0) + 1)):
        raise InputError(
            f"{name} is {order}: give a layer index for each of the {layers} depths, counting from 0 without"
            " gaps"
        )
    return order


def _per_layer(value: int | Sequence[int] | None, default: int, layers: int, name: str) -> list[int]:
    """Returns a size of each of the encoder's distinct layers."""
    if value is None:
        sizes = [default]
    elif isinstance(value, int):
        sizes = [value]
    else:
        sizes = list(value)
    if len(sizes) == 1:
        sizes = sizes * layers
    if len(sizes) != layers or min(sizes) < 1:
        raise InputError(
            f"{name} is {value}: give one value, or a value for each of the {layers} encoder layers, all of"
            " them at least 1"
        )
    return sizes
