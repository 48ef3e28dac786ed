"""Soft-Attention: an LSTM or GRU that attends to the image anew for each token."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory, State
from tfsparsecap.captioning.models.regions import AdditiveAttentionCaptioner, mean_region
from tfsparsecap.errors import InputError

_CELLS = {"lstm": keras.layers.LSTMCell, "gru": keras.layers.GRUCell}


@keras.saving.register_keras_serializable("tfsparsecap")
class SoftAttention(AdditiveAttentionCaptioner):
    """A recurrent captioner with additive attention over region features or an encoder's feature map.

    With features `f_1 … f_N`, hidden state `h` and the previous token `w`:

        a = softmax(score(tanh(attention_features(f_i) + attention_query(h))))
        h = cell([embedding(w), sum a_i f_i], h)
        logits = output(h)

    The initial state is computed from the mean of the features. With `objects`, it also sees their
    probabilities p, and `logits = output(h + object_hidden(p))`. After "Show, Attend and Tell" (Xu et al.,
    https://arxiv.org/abs/1502.03044, section 3.1.2); with `value_size=512` in the sizes of "Image Captioning
    with Sparse Recurrent Neural Network" (Tan et al., https://arxiv.org/abs/1908.10797, section 4.1). The
    constructor creates the weights.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        cell: `"lstm"` or `"gru"`.
        embedding_size: units of the word embedding.
        rnn_size: units of the cell.
        attention_size: units of the attention.
        value_size: units of a projection of the features, whose outputs are averaged instead of the features;
            None for no projection.
        dropout: rate in training on the hidden state before `output`, 0 to 1.
        input_dropout: the same on the inputs of the cell, the embedded token and the attended features.
        attention_dropout: the same on the attention weights.
        kwargs: `feature_size`, `encoder`, `share_attention` and others, see `AdditiveAttentionCaptioner`.

    Raises:
        InputError: an unknown cell or `share_attention`, or the size of the features is not known.

    Examples:
        >>> captioner = SoftAttention(1000, cell="gru", feature_size=768)
        >>> features, tokens = keras.random.normal((2, 49, 768)), ops.ones((2, 5), "int32")
        >>> captioner({"features": features, "tokens": tokens}).shape
        TensorShape([2, 5, 1000])
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        cell: str = "lstm",
        embedding_size: int = 256,
        rnn_size: int = 512,
        attention_size: int = 512,
        value_size: int | None = None,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, attention_size=attention_size, **kwargs)
        if cell not in _CELLS:
            raise InputError(f'SoftAttention has no cell "{cell}": give "lstm" or "gru"')
        if value_size and self.share_attention:
            raise InputError(
                f'value_size is {value_size} and share_attention is "{self.share_attention}", which has no'
                " values of its own: leave one of them out"
            )
        self.cell_name, self.value_size, self.dropout_rate = cell, value_size, dropout
        self.input_dropout_rate, self.attention_dropout_rate = input_dropout, attention_dropout
        self.embedding_size, self.rnn_size = embedding_size, rnn_size
        self.build()

    def build(self, input_shape: Any = None) -> None:
        """Creates the layers and their weights; needs no input shape."""
        if self.built:
            return
        policy, units = self.dtype_policy, self.rnn_size
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size, self.embedding_size, dtype=policy, name="embedding"
        )
        self.embedding.build((None,))
        summary = self.feature_size + len(self.objects)
        self.initial_hidden = self.dense("initial_hidden", units, summary, "tanh")
        # The order of a stock LSTMCell's states is (hidden, carry).
        self.state_names = ("hidden", "carry") if self.cell_name == "lstm" else ("hidden",)
        if "carry" in self.state_names:
            self.initial_carry = self.dense("initial_carry", units, summary, "tanh")
        attention = self.attention_size
        self.attention_features = self.dense(
            "attention_features", attention, self.feature_size, use_bias=False
        )
        self.attention_query = self.dense("attention_query", attention, units)
        # Softmax ignores a constant added to all scores, hence no bias.
        self.attention_score = self.dense("attention_score", 1, attention, use_bias=False)
        context = attention if self.share_attention == "kv" else self.value_size or self.feature_size
        if self.value_size:
            self.attention_values = self.dense(
                "attention_values", self.value_size, self.feature_size, use_bias=False
            )
        self.cell = _CELLS[self.cell_name](units, dtype=policy, name=self.cell_name)
        self.cell.build((None, self.embedding_size + context))
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.input_dropout = keras.layers.Dropout(self.input_dropout_rate, dtype=policy, name="input_dropout")
        self.attention_dropout = keras.layers.Dropout(
            self.attention_dropout_rate, dtype=policy, name="attention_dropout"
        )
        # `output` is a property of every Keras layer. Logits keep full precision under mixed precision.
        self.output_layer = self.dense("output", self.vocabulary_size, units, dtype=policy.variable_dtype)
        if self.objects:
            self.object_hidden = self.dense("object_hidden", units, len(self.objects), use_bias=False)
        self.built = True

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        features, mask = self.regions(inputs, training)
        features = ops.cast(features, self.compute_dtype)
        memory = {**self.attention_memory(features, mask), "summary": mean_region(features, mask)}
        if self.value_size:
            memory["features"] = self.attention_values(features)
        objects = self.object_memory(features, mask, inputs, training)
        if objects:
            probabilities = ops.cast(objects["objects"], self.compute_dtype)
            memory["summary"] = ops.concatenate([memory["summary"], probabilities], axis=-1)
            memory["object_hidden"] = self.object_hidden(probabilities)
            memory |= objects
        return memory

    def initial_state(self, memory: Memory) -> State:
        return {name: getattr(self, f"initial_{name}")(memory["summary"]) for name in self.state_names}

    def attention_state(self, before: State, after: State) -> tf.Tensor:
        return before["hidden"]

    def embed(self, token_ids: tf.Tensor, training: bool) -> tf.Tensor:
        return self.embedding(token_ids)

    def advance(
        self, embedded: tf.Tensor, state: State, memory: Memory, training: bool
    ) -> tuple[tf.Tensor, State]:
        weights = self.attention_weights(state["hidden"], memory)
        weights = self.attention_dropout(weights, training=training)
        inputs = ops.concatenate([embedded, self.weighted_mean(weights, memory)], axis=-1)
        inputs = self.input_dropout(inputs, training=training)
        _, states = self.cell(inputs, [state[name] for name in self.state_names], training=training)
        state = dict(zip(self.state_names, states, strict=True))
        hidden = state["hidden"]
        return hidden + memory["object_hidden"] if self.objects else hidden, state

    def logits(self, hidden: tf.Tensor, training: bool) -> tf.Tensor:
        return ops.cast(self.output_layer(self.dropout(hidden, training=training)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cell": self.cell_name,
            "embedding_size": self.embedding_size,
            "rnn_size": self.rnn_size,
            "value_size": self.value_size,
            "dropout": self.dropout_rate,
            "input_dropout": self.input_dropout_rate,
            "attention_dropout": self.attention_dropout_rate,
        }
