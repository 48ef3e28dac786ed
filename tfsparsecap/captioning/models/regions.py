"""Captioners that attend to image regions, whose features are inputs or are computed by an encoder."""

import threading
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import (
    Captioner,
    Inputs,
    Memory,
    State,
    loop_over_tokens,
    sum_of_all_replicas,
)
from tfsparsecap.errors import InputError

# Bias of the scores of objects before training: with dozens of regions, each object has a probability of a
# few per cent.
_RARE = -7.0
#: Target of an object of which nobody knows whether it is in the image.
UNKNOWN_OBJECT = -1.0


class RegionCaptioner(Captioner):
    """Base class of captioners that attend to the features of image regions.

    Images have different numbers of regions, so batches are padded. `inputs["mask"]` marks the rows
    that are regions. Without it and without an encoder, rows of zeros are padding, so that an exported file
    with a fixed number of rows also works for images with fewer regions. An encoder's output has no padding.

    With `objects`, the captioner also predicts which of them are in the image. For each object, region i has
    the score `s_i`, a linear function of its feature, and the object's probability is
    `sigmoid(log(sum_i exp(s_i)))`: one region that shows it is enough. `compute_loss` then adds the
    cross-entropy of these probabilities, if `inputs["objects"]` has targets.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        feature_size: length D of a region's feature. Not needed if the encoder has an attribute
            `features_shape`, or is a model with an `output_shape`.
        encoder: a Keras layer or model from images [B, S, S, 3] with values 0 to 255 to features [B, N, D];
            without one the captioner takes `"features"` only.
        objects: names of the K objects that it predicts.
        kwargs: of `Captioner`.

    Raises:
        InputError: the length of the features is not known.
    """

    input_names: tuple[str, ...] = ("image", "features", "frozen_features", "mask")
    #: Weight of the cross-entropy of the objects in the loss.
    object_weight: float = 1.0

    def __init__(
        self,
        vocabulary_size: int,
        *,
        feature_size: int | None = None,
        encoder: keras.layers.Layer | None = None,
        objects: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, **kwargs)
        if not isinstance(encoder, keras.layers.Layer | None):
            raise InputError(f"encoder is {encoder!r:.50}: give a Keras layer, or None for features")
        self.feature_size = feature_size or _feature_size(encoder, type(self).__name__)
        self.encoder = encoder
        self.objects = tuple(objects)
        # What `other_losses` needs from the last call. Replicas call one captioner from a thread each.
        self._last_call = threading.local()
        if self.objects:
            bias = keras.initializers.Constant(_RARE)
            self.object_scores = self.dense(
                "object_scores", len(self.objects), self.feature_size, bias_initializer=bias
            )

    def object_memory(
        self, features: tf.Tensor, mask: tf.Tensor | None, inputs: Inputs, training: bool = False
    ) -> Memory:
        """The part of the memory that is about objects.

        Args:
            features, mask: as from `regions`.
            inputs: `"objects"` float [B, K] are targets in training: 1 in the image, 0 not in it,
                `UNKNOWN_OBJECT` not known.
            training: whether the targets are for `other_losses`.

        Returns:
            `"objects"`, the probabilities float32 [B, K], without a gradient; empty without objects.
        """
        if not self.objects:
            return {}
        scores = ops.cast(self.object_scores(ops.cast(features, self.compute_dtype)), "float32")
        if mask is not None:
            scores = scores + ops.expand_dims(attention_bias(mask, "float32"), 2)
        logits = ops.logsumexp(scores, axis=1)
        learns = training and "objects" in inputs
        self._last_call.objects = (logits, inputs["objects"]) if learns else None
        return {"objects": ops.stop_gradient(ops.sigmoid(logits))}

    def other_losses(self) -> tf.Tensor | float:
        """Regularization, and the loss of the objects if the last call was in training and had targets.

        The loss of the objects is computed once for a call: another call of this method leaves it out.
        """
        logits_and_targets, self._last_call.objects = getattr(self._last_call, "objects", None), None
        losses = super().other_losses()
        if logits_and_targets is not None:
            losses += self.object_weight * _object_loss(*logits_and_targets)
        return losses

    def regions(self, inputs: Inputs, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the features of the regions, and which rows are regions.

        Args:
            inputs: `"features"` float [B, N, D], or `"image"` for the encoder, [B, S, S, 3], or
                `"frozen_features"`, the output of its frozen part, float [B, n, d]; optionally `"mask"` bool
                or 0 and 1 [B, N], true for regions.
            training: passed to the encoder.

        Returns:
            `(features, mask)`: [B, N, D] with zeros in masked rows, and bool [B, N], or None if all rows are
            regions.

        Raises:
            InputError: there are neither features nor an image to encode, no regions, or features of another
                length.
        """
        if "features" in inputs:
            features = ops.convert_to_tensor(inputs["features"])
        elif self.encoder is None:
            raise InputError(
                f'a captioner without an encoder takes "features", not {sorted(inputs)}: give "features" or'
                " build it with an encoder"
            )
        elif "frozen_features" in inputs:
            features = self.encoder.finish(inputs["frozen_features"], training=training)
        elif "image" in inputs:
            features = self.encoder(inputs["image"], training=training)
        else:
            raise InputError(
                f'a captioner takes "image" or "features", not {sorted(inputs)}: give one of them'
            )
        size = self.feature_size
        if len(features.shape) != 3 or features.shape[2] not in (size, None) or features.shape[1] == 0:
            raise InputError(
                f"the captioner takes features of shape [images, regions, {size}] with at least one region,"
                f" not {tuple(features.shape)}: give such features, or set feature_size"
            )
        if "mask" in inputs:
            mask = ops.cast(inputs["mask"], "bool")
            return ops.where(mask[:, :, None], features, ops.zeros_like(features)), mask
        if self.encoder is None:
            return features, ops.any(features != 0, axis=2)
        return features, None

    def dense(
        self, name: str, units: int, inputs: int, activation: str | None = None, **options: Any
    ) -> keras.layers.Layer:
        """Returns a built `Dense` layer from `inputs` to `units` values."""
        options = {"dtype": self.dtype_policy, **options}
        layer = keras.layers.Dense(units, activation, name=name, **options)
        layer.build((None, inputs))
        return layer

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "feature_size": self.feature_size,
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "objects": list(self.objects),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "RegionCaptioner":
        """Creates a captioner with the same sizes, and its own encoder if the configuration has one."""
        if config.get("encoder") is not None:
            encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects=custom_objects)
            config = {**config, "encoder": encoder}
        return cls(**config)


def mean_region(features: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Returns the mean of the regions, [B, D], or zeros if an image has none; arguments as from `regions`."""
    if mask is None:
        return ops.mean(features, axis=1)
    count = ops.cast(ops.sum(ops.cast(mask, "float32"), axis=1, keepdims=True), features.dtype)
    return ops.sum(features, axis=1) / ops.maximum(count, 1)


def _object_loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Cross-entropy in nats, summed over the objects and averaged over the images whose objects are known.

    With several replicas, the average is over the images of all.
    """
    targets = ops.cast(targets, "float32")  # Keras casts inputs to the compute dtype
    mask = ops.cast(targets >= 0, "float32")
    losses = mask * tf.nn.sigmoid_cross_entropy_with_logits(ops.maximum(targets, 0.0), logits)
    return ops.sum(losses) / sum_of_all_replicas(ops.sum(ops.max(mask, axis=1)))


def attention_bias(mask: tf.Tensor, dtype: str) -> tf.Tensor:
    """Returns the mask to add to attention scores before the softmax: 0 where `mask` is true, else -30 000.

    This number fits float16; if no row of an image is a region, all rows get equal weights.
    """
    return ops.where(mask, ops.zeros((), dtype), ops.full((), -3e4, dtype))


def _feature_size(encoder: keras.layers.Layer | None, captioner: str) -> int:
    """Length of the features that an encoder computes. Raises InputError if it is not known."""
    if encoder is None:
        raise InputError(f"{captioner} needs feature_size, the length of a feature, if it has no encoder")
    shape = getattr(encoder, "features_shape", None)
    if shape is None and isinstance(encoder, keras.Model) and hasattr(encoder, "output_shape"):
        shape = encoder.output_shape
    if shape is None:
        raise InputError(f"{captioner} cannot tell how long {encoder.name}'s features are: give feature_size")
    return int(shape[-1])


class AdditiveAttentionCaptioner(RegionCaptioner):
    """Base class of recurrent captioners that weight regions by `softmax(score(tanh(keys + query)))`.

    A subclass creates the layers `attention_features` (keys), `attention_query` and `attention_score`, and
    implements `embed`, `advance` and `logits`, the parts of a step.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        attention_size: units A of keys and query.
        share_attention: `"kv"` averages the keys instead of the features, so that one projection gives keys
            and values (Share-KV of ACORT, https://arxiv.org/abs/2202.05451); None shares nothing.
        kwargs: of `RegionCaptioner`.

    Raises:
        InputError: an unknown value of `share_attention`.
    """

    shares_memory = True

    def __init__(
        self, vocabulary_size: int, *, attention_size: int, share_attention: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(vocabulary_size, **kwargs)
        if share_attention not in (None, "kv"):
            raise InputError(
                f'share_attention is "{share_attention}": additive attention shares "kv" or nothing (none)'
            )
        self.attention_size, self.share_attention = attention_size, share_attention

    def embed(self, token_ids: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns the embeddings of tokens, [..., E], for token ids of any shape."""
        raise NotImplementedError

    def advance(
        self, embedded: tf.Tensor, state: State, memory: Memory, training: bool
    ) -> tuple[tf.Tensor, State]:
        """Returns the hidden state [B, units] after a token with this embedding, and the whole state."""
        raise NotImplementedError

    def logits(self, hidden: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns float32 logits [..., V] for hidden states [..., units]."""
        raise NotImplementedError

    def step(
        self, token_ids: tf.Tensor, state: State, memory: Memory, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        hidden, state = self.advance(self.embed(token_ids, training), state, memory, training)
        return self.logits(hidden, training), state

    def teacher_forcing(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        memory = self.encode_for_tokens(inputs, training)
        # Only what depends on the state is inside the loop.
        hidden = loop_over_tokens(
            lambda embedded, state: self.advance(embedded, state, memory, training),
            self.embed(inputs["tokens"], training),
            self.initial_state(memory),
            self.compute_dtype,
        )
        return self.logits(hidden, training)

    def attention_memory(self, features: tf.Tensor, mask: tf.Tensor | None) -> Memory:
        """Returns the part of the memory that attention uses.

        Args:
            features: [B, N, D], the values that are averaged.
            mask: bool [B, N], true for regions; None if all rows are regions.
        """
        keys = self.attention_features(features)
        memory = {"keys": keys}
        if self.share_attention != "kv":
            memory["features"] = features
        if mask is not None:
            memory["attention_bias"] = attention_bias(mask, keys.dtype)
        return memory

    def attention_weights(self, hidden: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the weight of each region, [B, N], for a hidden state [B, units]."""
        query = self.attention_query(hidden)
        energy = ops.tanh(memory["keys"] + ops.expand_dims(query, 1))
        scores = ops.squeeze(self.attention_score(energy), axis=-1)
        if "attention_bias" in memory:
            scores = scores + memory["attention_bias"]
        return ops.softmax(scores, axis=-1)

    def weighted_mean(self, weights: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the mean of the features, weighted by [B, N]: [B, D]."""
        features = memory["features"] if "features" in memory else memory["keys"]
        if features.shape[0] == 1:  # one product for all captions of an image
            return ops.squeeze(ops.matmul(ops.expand_dims(weights, 0), features), axis=0)
        return ops.squeeze(ops.matmul(ops.expand_dims(weights, 1), features), axis=1)

    def attention_state(self, before: State, after: State) -> tf.Tensor:
        """Returns the hidden state that the attention of a step used, given the states around the step."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "attention_size": self.attention_size,
            "share_attention": self.share_attention,
        }
