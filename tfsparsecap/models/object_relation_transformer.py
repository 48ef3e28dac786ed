"""Object Relation Transformer: attention that uses the geometry of regions. ACORT is its compact form."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Inputs, Memory, State
from tfsparsecap.models.regions import RegionCaptioner, attention_bias
from tfsparsecap.models.transformer import (
    DecoderLayer,
    DeviationNorm,
    RelationEncoderLayer,
    box_relations,
    positions,
)


@keras.saving.register_keras_serializable("tfsparsecap")
class ObjectRelationTransformer(RegionCaptioner):
    """A transformer captioner whose encoder weights regions by the relative position and size of their boxes.

    Keys and values of earlier tokens are cached in the state, so that every step costs the same. Layers can
    be shared across depths and projections within attentions, as in ACORT.

    Inputs are `"features"` and `"boxes"` float [B, N, 4] (x_min, y_min, x_max, y_max, relative to the image).
    With an encoder, the boxes are the cells of its square feature map.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        size: units of features and tokens inside the model (d_model).
        hidden_size: units of the feed-forward layers.
        layers: depth of encoder and decoder each.
        heads: number of heads in every attention.
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

    Reference:
        Herdade et al., "Image Captioning: Transforming Objects into Words",
        https://arxiv.org/abs/1906.05963; Tan et al., "ACORT", https://arxiv.org/abs/2202.05451.

    Examples:
        >>> captioner = ObjectRelationTransformer(1000, size=64, hidden_size=128, layers=2, feature_size=2048)
        >>> inputs = {"features": keras.random.normal((2, 36, 2048)), "boxes": ops.ones((2, 36, 4))}
        >>> captioner({**inputs, "tokens": ops.ones((2, 5), "int32")}).shape
        TensorShape([2, 5, 1000])
    """

    input_names: tuple[str, ...] = ("image", "features", "frozen_features", "boxes", "mask")
    max_length: int

    def __init__(
        self,
        vocabulary_size: int,
        *,
        size: int = 512,
        hidden_size: int = 2048,
        layers: int = 6,
        heads: int = 8,
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
        if layers < 1 or max_length < 1:
            raise InputError(f"layers is {layers} and max_length {max_length}: both must be at least 1")
        self.size, self.hidden_size, self.heads, self.max_length = size, hidden_size, heads, max_length
        self.depth, self.dropout_rate, self.feature_dropout_rate = layers, dropout, feature_dropout
        self.encoder_order = _order(share_encoder_layers, layers, "share_encoder_layers")
        self.decoder_order = _order(share_decoder_layers, layers, "share_decoder_layers")
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

        def layers(kind: type, name: str, count: int, share: str | None) -> list:
            sizes = (size, self.hidden_size, self.heads, share, self.dropout_rate)
            made = [kind(*sizes, dtype=policy, name=f"{name}_{i}") for i in range(count)]
            for layer in made:
                layer.build((None, None, size))
            return made

        self.encoder_layers = layers(
            RelationEncoderLayer, "encoder", max(self.encoder_order) + 1, self.share_encoder_attention
        )
        self.decoder_layers = layers(
            DecoderLayer, "decoder", max(self.decoder_order) + 1, self.share_decoder_attention
        )
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

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        given, mask = self.regions(inputs, training)
        relations = ops.cast(box_relations(self._boxes(inputs, given)), self.compute_dtype)
        x = self.feature_embedding(ops.cast(given, self.compute_dtype))
        x = self.feature_dropout(x, training=training)
        unseen = None
        if mask is not None:
            unseen = attention_bias(mask, x.dtype)[:, None, None, :]
        for index in self.encoder_order:
            x = self.encoder_layers[index](x, relations, unseen, training=training)
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

    def _boxes(self, inputs: Inputs, features: tf.Tensor) -> tf.Tensor:
        if "boxes" in inputs:
            boxes = ops.convert_to_tensor(inputs["boxes"])
            if len(boxes.shape) != 3 or boxes.shape[2] != 4:
                raise InputError(
                    f'"boxes" have shape [images, regions, 4], not {tuple(boxes.shape)}: give x_min, y_min,'
                    " x_max, y_max of each region, relative to the image"
                )
            return boxes
        side = math.isqrt(features.shape[1] or 0)
        if self.encoder is None or side * side != features.shape[1]:
            raise InputError(
                'a captioner of regions takes "boxes" beside "features": give x_min, y_min, x_max, y_max of'
                " each region, relative to the image"
            )
        edges = np.arange(side, dtype=np.float32) / side
        y, x = np.meshgrid(edges, edges, indexing="ij")
        cells = np.stack([x, y, x + 1 / side, y + 1 / side], axis=-1).reshape(1, side * side, 4)
        return ops.convert_to_tensor(cells)

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
        return self._logits(ops.squeeze(x, axis=1)), {**caches, "position": state["position"] + 1}

    def teacher_forcing(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        memory = self.encode_for_tokens(inputs, training)
        tokens = inputs["tokens"]
        length = tokens.shape[1] or ops.shape(tokens)[1]
        x = self._embedded(tokens, self._positions(tokens.shape[1])[None, :length])
        x = self.dropout(x, training=training)
        bias = attention_bias(ops.arange(length)[None, :] <= ops.arange(length)[:, None], x.dtype)
        for index in self.decoder_order:
            layer = self.decoder_layers[index]
            x = layer.advance(
                x, *layer.project(x), bias, self._source(memory, index), memory.get("unseen"), training
            )
        return self._logits(x)

    def _source(self, memory: Memory, index: int) -> tuple[tf.Tensor, tf.Tensor]:
        keys = memory[f"keys_{index}"]
        return keys, memory.get(f"values_{index}", keys)

    def _embedded(self, token_ids: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        return self.embedding(token_ids) * math.sqrt(self.size) + ops.cast(position, self.compute_dtype)

    def _positions(self, length: int | None = None) -> tf.Tensor:
        return tf.constant(positions(max(length or 0, self.max_length or 0), self.size))

    def constant_tables(self) -> dict[str, np.ndarray]:
        return {"positions": positions(self.max_length, self.size)}

    def _logits(self, x: tf.Tensor) -> tf.Tensor:
        return ops.cast(self.output_layer(self.decoder_norm(x)), "float32")

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "size": self.size,
            "hidden_size": self.hidden_size,
            "layers": self.depth,
            "heads": self.heads,
            "max_length": self.max_length,
            "share_encoder_layers": self.encoder_order,
            "share_decoder_layers": self.decoder_order,
            "share_encoder_attention": self.share_encoder_attention,
            "share_decoder_attention": self.share_decoder_attention,
            "shared_caches": self.shared_caches,
            "dropout": self.dropout_rate,
            "feature_dropout": self.feature_dropout_rate,
        }


def _order(shared: Sequence[int] | None, layers: int, name: str) -> list[int]:
    """Returns the index of the layer at each depth."""
    order = list(range(layers)) if shared is None else [int(index) for index in shared]
    if len(order) != layers or sorted(set(order)) != list(range(max(order, default=0) + 1)):
        raise InputError(
            f"{name} is {order}: give a layer index for each of the {layers} depths, counting from 0 without"
            " gaps"
        )
    return order
