"""Up-Down: an attention LSTM selects regions of the image, a language LSTM generates the tokens."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tfsparsecap.captioning.models.captioner_base import Inputs, Memory, State
from tfsparsecap.captioning.models.regions import AdditiveAttentionCaptioner, mean_region
from tfsparsecap.errors import InputError, check_whole


@keras.saving.register_keras_serializable("tfsparsecap")
class Bias(keras.layers.Layer):
    """Adds a learned vector.

    PyTorch's LSTM cell has one bias for its inputs and one for its state. A single bias computes the same,
    but published weights and parameter counts include both, and two biases learn twice as fast as one.
    """

    def __init__(self, initializer: Any = "zeros", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight(name="bias", shape=input_shape[-1:], initializer=self.initializer)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.bias


@keras.saving.register_keras_serializable("tfsparsecap")
class UpDown(AdditiveAttentionCaptioner):
    """A captioner of two LSTMs with additive attention over image regions in between.

    With region features `f_1 … f_N`, their mean `f`, the previous token `w`, and the hidden states `h1` and
    `h2` of the two LSTMs:

        v_i = relu(feature_embedding(f_i)),  v = relu(pooled_embedding(f)),  x = relu(embedding(w))
        h1 = attention_lstm([h2, v, x], h1)
        a = softmax(score(tanh(attention_features(v_i) + attention_query(h1))))
        h2 = language_lstm([sum a_i v_i, h1], h2)
        logits = output(h2)

    Both LSTMs start at 0. After "Bottom-Up and Top-Down Attention" (Anderson et al.,
    https://arxiv.org/abs/1707.07998, section 3.2), by default with the sizes, parameters and initial weights
    of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298);
    `papers.published` loads that paper's weights. The constructor creates the weights.

    A step takes five matrix products: each LSTM is one matrix, except for the part that multiplies `v`, which
    is computed once per image (`attention_lstm_image`).

    Args:
        vocabulary_size: number of tokens, special tokens included.
        embedding_size: units of the word embedding.
        rnn_size: units of each LSTM and of the embedded features.
        attention_size: units of the attention.
        output_layers: number of layers from the hidden state to the logits, at least 1; those before the last
            one have `rnn_size` units and a ReLU.
        dropout: rate in training on embedded words and features and before each output layer, 0 to 1.
        kwargs: `feature_size`, `encoder`, `share_attention` and others, see `AdditiveAttentionCaptioner`.

    An additional input is `"pooled"`, float [B, D]: a feature of the whole image instead of the mean region.

    Raises:
        InputError: no output layer, an unknown `share_attention`, or the size of the features is not known.

    Examples:
        >>> captioner = UpDown(1000, rnn_size=64, feature_size=2048)
        >>> features, tokens = keras.random.normal((2, 36, 2048)), ops.ones((2, 5), "int32")
        >>> captioner({"features": features, "tokens": tokens}).shape
        TensorShape([2, 5, 1000])
    """

    input_names: tuple[str, ...] = ("image", "features", "frozen_features", "pooled", "mask")

    def __init__(
        self,
        vocabulary_size: int,
        *,
        embedding_size: int = 1000,
        rnn_size: int = 1000,
        attention_size: int = 512,
        output_layers: int = 1,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocabulary_size, attention_size=attention_size, **kwargs)
        check_whole("output_layers", output_layers, at_least=1)
        self.embedding_size, self.rnn_size = embedding_size, rnn_size
        self.output_layers, self.dropout_rate = output_layers, dropout
        self.build()

    def dense(
        self,
        name: str,
        units: int,
        inputs: int,
        activation: str | None = None,
        *,
        fan_in: int | None = None,
        **options: Any,
    ) -> keras.layers.Layer:
        """Returns a built `Dense` layer with PyTorch's initial weights, for `fan_in` or `inputs` inputs."""
        limit = (fan_in or inputs) ** -0.5
        for part in ("kernel_initializer", "bias_initializer"):
            options.setdefault(part, keras.initializers.RandomUniform(-limit, limit))
        return super().dense(name, units, inputs, activation, **options)

    def build(self, input_shape: Any = None) -> None:
        """Creates the layers and their weights; needs no input shape."""
        if self.built:
            return
        policy, units, attention = self.dtype_policy, self.rnn_size, self.attention_size
        self.embedding = keras.layers.Embedding(
            self.vocabulary_size,
            self.embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
            dtype=policy,
            name="embedding",
        )
        self.embedding.build((None,))
        self.feature_embedding = self.dense("feature_embedding", units, self.feature_size, "relu")
        self.pooled_embedding = self.dense("pooled_embedding", units, self.feature_size, "relu")
        self.attention_features = self.dense("attention_features", attention, units)
        self.attention_query = self.dense("attention_query", attention, units)
        self.attention_score = self.dense("attention_score", 1, attention)
        self.attention_lstm_image = self.dense("attention_lstm_image", 4 * units, units)
        # PyTorch initialises both matrices of an LSTM cell by its number of units.
        inputs = 2 * units + self.embedding_size
        self.attention_lstm = self.dense("attention_lstm", 4 * units, inputs, fan_in=units)
        context = attention if self.share_attention == "kv" else units
        self.language_lstm = self.dense("language_lstm", 4 * units, context + 2 * units, fan_in=units)
        self.language_lstm_bias = Bias(
            keras.initializers.RandomUniform(-(units**-0.5), units**-0.5),
            dtype=policy,
            name="language_lstm_bias",
        )
        self.language_lstm_bias.build((None, 4 * units))
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.hidden_layers = [
            self.dense(f"output_hidden_{number}", units, units, "relu")
            for number in range(self.output_layers - 1)
        ]
        # `output` is a property of every Keras layer. Logits keep full precision under mixed precision.
        self.output_layer = self.dense("output", self.vocabulary_size, units, dtype=policy.variable_dtype)
        self.built = True

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        features, mask = self.regions(inputs, training)
        if "pooled" in inputs:
            pooled = inputs["pooled"]
            self._check_pooled(pooled)
        else:
            pooled = mean_region(features, mask)
        embedded = self.feature_embedding(ops.cast(features, self.compute_dtype))
        embedded = self.dropout(embedded, training=training)
        pooled = self.pooled_embedding(ops.cast(pooled, self.compute_dtype))
        pooled = self.dropout(pooled, training=training)
        memory = {**self.attention_memory(embedded, mask), "image": self.attention_lstm_image(pooled)}
        return memory | self.object_memory(features, mask, inputs, training)

    def _check_pooled(self, pooled: Any) -> None:
        if len(pooled.shape) != 2 or pooled.shape[1] not in (self.feature_size, None):
            raise InputError(
                f'"pooled" is one feature per image, of shape [images, {self.feature_size}], not'
                f" {tuple(pooled.shape)}: give that, or leave it out for the mean of the regions"
            )

    def initial_state(self, memory: Memory) -> State:
        zeros = ops.zeros_like(memory["image"][:, : self.rnn_size])
        names = ("attention_hidden", "attention_carry", "language_hidden", "language_carry")
        return dict.fromkeys(names, zeros)

    def attention_state(self, before: State, after: State) -> tf.Tensor:
        return after["attention_hidden"]

    def embed(self, token_ids: tf.Tensor, training: bool) -> tf.Tensor:
        return self.dropout(ops.relu(self.embedding(token_ids)), training=training)

    def advance(
        self, embedded: tf.Tensor, state: State, memory: Memory, training: bool
    ) -> tuple[tf.Tensor, State]:
        inputs = [state["language_hidden"], embedded, state["attention_hidden"]]
        gates = self.attention_lstm(ops.concatenate(inputs, axis=-1)) + memory["image"]
        attention_hidden, attention_carry = _lstm(gates, state["attention_carry"])

        attended = self.weighted_mean(self.attention_weights(attention_hidden, memory), memory)
        inputs = [attended, attention_hidden, state["language_hidden"]]
        gates = self.language_lstm_bias(self.language_lstm(ops.concatenate(inputs, axis=-1)))
        language_hidden, language_carry = _lstm(gates, state["language_carry"])
        return language_hidden, {
            "attention_hidden": attention_hidden,
            "attention_carry": attention_carry,
            "language_hidden": language_hidden,
            "language_carry": language_carry,
        }

    def logits(self, hidden: tf.Tensor, training: bool) -> tf.Tensor:
        for layer in self.hidden_layers:
            hidden = layer(self.dropout(hidden, training=training))
        return ops.cast(self.output_layer(self.dropout(hidden, training=training)), "float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "embedding_size": self.embedding_size,
            "rnn_size": self.rnn_size,
            "output_layers": self.output_layers,
            "dropout": self.dropout_rate,
        }


def _lstm(gates: tf.Tensor, carry: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Hidden state and carry after a token, from the gates' pre-activations: [B, 4 U] and [B, U]."""
    input_gate, forget_gate, candidate, output_gate = ops.split(gates, 4, axis=-1)
    carry = ops.sigmoid(forget_gate) * carry + ops.sigmoid(input_gate) * ops.tanh(candidate)
    return ops.sigmoid(output_gate) * ops.tanh(carry), carry
