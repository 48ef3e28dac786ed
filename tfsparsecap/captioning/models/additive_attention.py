"""Additive attention over the regions of an image, shared by Soft-Attention and Up-Down."""

from typing import Any

import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory, State, loop_over_tokens
from tfsparsecap.captioning.models.regions import RegionCaptioner, attention_bias
from tfsparsecap.errors import InputError


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
