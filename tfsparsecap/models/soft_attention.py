"""Soft-Attention: an LSTM or GRU that looks at another part of the picture for each word."""

import keras
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.gates import sample_gates_once
from tfsparsecap.models.additive_attention import (
    attention_memory,
    attention_weights,
    checked_sharing,
    looked_at,
)
from tfsparsecap.models.captioner import Captioner, Inputs, Memory, State
from tfsparsecap.models.regions import feature_size as size_of_features
from tfsparsecap.models.regions import mean_region, regions
from tfsparsecap.models.teacher_forcing import hidden_after_words

_CELLS = {"lstm": keras.layers.LSTMCell, "gru": keras.layers.GRUCell}


@keras.saving.register_keras_serializable("tfsparsecap")
class SoftAttention(Captioner):
    """A recurrent captioner with additive attention over the encoder's feature map.

    With features `f_1 … f_N`, hidden state `h` and the word before, `w`:

        a = softmax(score(tanh(attention_features(f_i) + attention_query(h))))
        h = cell([embedding(w), sum a_i f_i], h)
        logits = output(h)

    The state before the first word is computed from the mean of the feature map. After "Show, Attend and
    Tell" (Xu et al., https://arxiv.org/abs/1502.03044, section 3.1.2), by default in the sizes of "End-to-End
    Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298). All weights exist as soon as the object
    does.

    Args:
        vocabulary_size: number of words, special tokens included.
        cell: `"lstm"` or `"gru"`.
        embedding_size, rnn_size, attention_size: units of the word embedding, the cell and the attention.
        share_attention: `"kv"` has the sum be of `attention_features(f_i)` and not of `f_i`: one projection
            gives keys and values (Share-KV of ACORT, https://arxiv.org/abs/2202.05451). None shares nothing.
        feature_size: length D of a feature. Not needed with an encoder that says it itself
            (`features_shape`, or the `output_shape` of a functional model).
        encoder: a Keras layer or model from images [B, S, S, 3] with values 0 to 255 to features [B, N, D];
            without one the captioner takes `"features"` only.
        dropout: share of the hidden units dropped in training before `output`, 0 to 1.

    Inputs besides those of the contract:
        `"mask"`: bool [B, N], which rows of the features are regions. Without it, and without an encoder,
            rows of zeros are not (see `models.regions`).

    Raises:
        InputError: for an unknown cell or sharing, or when the size of the features is not known.

    Example:
        >>> captioner = SoftAttention(1000, cell="gru", feature_size=768)
        >>> features, tokens = keras.random.normal((2, 49, 768)), keras.ops.ones((2, 5), "int32")
        >>> captioner({"features": features, "tokens": tokens}).shape
        TensorShape([2, 5, 1000])
    """

    input_names = ("image", "features", "mask")

    def __init__(
        self,
        vocabulary_size: int,
        *,
        cell: str = "lstm",
        embedding_size: int = 256,
        rnn_size: int = 512,
        attention_size: int = 512,
        share_attention: str | None = None,
        feature_size: int | None = None,
        encoder: keras.layers.Layer | None = None,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(vocabulary_size, **kwargs)
        if cell not in _CELLS:
            raise InputError(f'SoftAttention knows no cell "{cell}": give "lstm" or "gru"')
        self.cell_name, self.share_attention = cell, checked_sharing(share_attention)
        self.embedding_size, self.rnn_size, self.attention_size = embedding_size, rnn_size, attention_size
        self.feature_size = feature_size or size_of_features(encoder, "SoftAttention")
        self.dropout_rate = dropout
        self.encoder = encoder

        policy = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_size, dtype=policy, name="embedding"
        )
        self.initial_hidden = keras.layers.Dense(
            rnn_size, activation="tanh", dtype=policy, name="initial_hidden"
        )
        self.initial_carry = None
        if cell == "lstm":
            self.initial_carry = keras.layers.Dense(
                rnn_size, activation="tanh", dtype=policy, name="initial_carry"
            )
        self.attention_features = keras.layers.Dense(
            attention_size, use_bias=False, dtype=policy, name="attention_features"
        )
        self.attention_query = keras.layers.Dense(attention_size, dtype=policy, name="attention_query")
        # Softmax does not see a constant added to all scores, hence no bias.
        self.attention_score = keras.layers.Dense(1, use_bias=False, dtype=policy, name="attention_score")
        self.cell = _CELLS[cell](rnn_size, dtype=policy, name=cell)
        self.dropout = keras.layers.Dropout(dropout, dtype=policy, name="dropout")
        # `output` is a property of every Keras layer. Logits keep full precision under mixed precision.
        self.output_layer = keras.layers.Dense(vocabulary_size, dtype=policy.variable_dtype, name="output")
        self.build()

    def build(self, input_shape=None) -> None:
        """Make the weights; their sizes are known without an input."""
        if self.built:
            return
        self.embedding.build((None,))
        self.initial_hidden.build((None, self.feature_size))
        if self.initial_carry is not None:
            self.initial_carry.build((None, self.feature_size))
        self.attention_features.build((None, None, self.feature_size))
        self.attention_query.build((None, self.rnn_size))
        self.attention_score.build((None, None, self.attention_size))
        context = self.attention_size if self.share_attention == "kv" else self.feature_size
        self.cell.build((None, self.embedding_size + context))
        self.output_layer.build((None, self.rnn_size))
        self.built = True

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        features, mask = regions(inputs, self.encoder, self.feature_size, training)
        features = ops.cast(features, self.compute_dtype)
        memory = attention_memory(self.attention_features(features), features, mask, self.share_attention)
        return {**memory, "mean": mean_region(features, mask)}

    def initial_state(self, memory: Memory) -> State:
        state = {"hidden": self.initial_hidden(memory["mean"])}
        if self.initial_carry is not None:
            state["carry"] = self.initial_carry(memory["mean"])
        return state

    def step(self, token_ids, state: State, memory: Memory, training: bool = False):
        state = self._advance(self.embedding(token_ids), state, memory, training)
        return self._logits(state["hidden"], training), state

    def call(self, inputs: Inputs, training: bool = False):
        with sample_gates_once(self, training):
            memory = self.encode(inputs, training)
            state = self.initial_state(memory)
            # What does not depend on the state is done for all words at once, outside the loop.
            embedded = self.embedding(inputs["tokens"])
            hidden = hidden_after_words(
                lambda word, state: self._advance(word, state, memory, training), embedded, state, "hidden"
            )
            return self._logits(hidden, training)

    def _advance(self, embedded, state: State, memory: Memory, training: bool) -> State:
        query = self.attention_query(state["hidden"])
        context = looked_at(attention_weights(query, memory, self.attention_score), memory)
        # The order of a stock LSTMCell's states is (hidden, carry).
        names = ("hidden", "carry") if self.initial_carry is not None else ("hidden",)
        _, after = self.cell(
            ops.concatenate([embedded, context], axis=-1), [state[name] for name in names], training=training
        )
        return dict(zip(names, after, strict=True))

    def _logits(self, hidden, training: bool):
        return ops.cast(self.output_layer(self.dropout(hidden, training=training)), "float32")

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "cell": self.cell_name,
            "embedding_size": self.embedding_size,
            "rnn_size": self.rnn_size,
            "attention_size": self.attention_size,
            "share_attention": self.share_attention,
            "feature_size": self.feature_size,
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "dropout": self.dropout_rate,
        }
