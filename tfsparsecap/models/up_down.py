"""Up-Down: one LSTM looks at the regions of a picture, another one says the words."""

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


@keras.saving.register_keras_serializable("tfsparsecap")
class Bias(keras.layers.Layer):
    """Adds a learnt vector.

    PyTorch's LSTM cell has a bias on its inputs and another one on its state. One would do, but published
    weights, and counts of parameters, have both, and what has two is trained at twice the speed.
    """

    def __init__(self, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape) -> None:
        self.bias = self.add_weight(name="bias", shape=input_shape[-1:], initializer=self.initializer)

    def call(self, inputs):
        return inputs + self.bias

    def get_config(self) -> dict:
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "initializer": initializer}


@keras.saving.register_keras_serializable("tfsparsecap")
class UpDown(Captioner):
    """A captioner of two LSTMs with additive attention over the regions of a picture in between.

    With region features `f_1 … f_N`, their mean `f`, the word before, `w`, and the hidden states `h1` and
    `h2` of the two LSTMs:

        v_i = relu(feature_embedding(f_i)),  v = relu(pooled_embedding(f)),  x = relu(embedding(w))
        h1 = attention_lstm([h2, v, x], h1)
        a = softmax(score(tanh(attention_features(v_i) + attention_query(h1))))
        h2 = language_lstm([sum a_i v_i, h1], h2)
        logits = output(h2)

    Both LSTMs start at 0. After "Bottom-Up and Top-Down Attention" (Anderson et al.,
    https://arxiv.org/abs/1707.07998, section 3.2), by default in the sizes, with the parameters and with the
    initial weights of "End-to-End Supermask Pruning" (Tan et al., https://arxiv.org/abs/2110.03298);
    `models.published` loads that paper's weights. All weights exist as soon as the object does.

    A step takes five products. All that an LSTM multiplies is side by side in one matrix, except what sees
    `v`, which is multiplied once an image: `attention_lstm_image`.

    Args:
        vocabulary_size: number of words, special tokens included.
        embedding_size, rnn_size, attention_size: units of the word embedding, of each LSTM (and of the
            embedded features), and of the attention.
        share_attention: `"kv"` has the sum be of `attention_features(v_i)` and not of `v_i`: one projection
            gives keys and values (Share-KV of ACORT, https://arxiv.org/abs/2202.05451). None shares nothing.
        feature_size: length D of a feature. Not needed with an encoder that says it itself
            (`features_shape`, or the `output_shape` of a functional model).
        encoder: a Keras layer or model from images [B, S, S, 3] with values 0 to 255 to features [B, N, D];
            without one the captioner takes `"features"` only.
        output_layers: layers from the hidden state to the logits, at least 1; those before the last one have
            `rnn_size` units and a ReLU.
        dropout: share of the embedded words and features, and of the hidden units before each output layer,
            that is dropped in training, 0 to 1.

    Inputs besides those of the contract:
        `"mask"`: bool [B, N], which rows of the features are regions. Without it, and without an encoder,
            rows of zeros are not (see `models.regions`).
        `"pooled"`: float [B, D], one feature for the whole image, in place of the mean of the regions.

    Raises:
        InputError: no output layer, an unknown sharing, or when the size of the features is not known.

    Example:
        >>> captioner = UpDown(1000, rnn_size=64, feature_size=2048)
        >>> features, tokens = keras.random.normal((2, 36, 2048)), keras.ops.ones((2, 5), "int32")
        >>> captioner({"features": features, "tokens": tokens}).shape
        TensorShape([2, 5, 1000])
    """

    input_names = ("image", "features", "pooled", "mask")

    def __init__(
        self,
        vocabulary_size: int,
        *,
        embedding_size: int = 1000,
        rnn_size: int = 1000,
        attention_size: int = 512,
        share_attention: str | None = None,
        feature_size: int | None = None,
        encoder: keras.layers.Layer | None = None,
        output_layers: int = 1,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(vocabulary_size, **kwargs)
        if output_layers < 1:
            raise InputError(f"output_layers is {output_layers}: UpDown needs at least 1")
        self.embedding_size, self.rnn_size, self.attention_size = embedding_size, rnn_size, attention_size
        self.feature_size = feature_size or size_of_features(encoder, "UpDown")
        self.output_layers, self.dropout_rate = output_layers, dropout
        self.share_attention = checked_sharing(share_attention)
        self.encoder = encoder

        policy = self.dtype_policy

        def dense(name, units, inputs, activation=None, dtype=policy):
            # Weights and biases start as in the original.
            return keras.layers.Dense(
                units,
                activation,
                kernel_initializer=_initially_within(inputs),
                bias_initializer=_initially_within(inputs),
                dtype=dtype,
                name=name,
            )

        self.embedding = keras.layers.Embedding(
            vocabulary_size,
            embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
            dtype=policy,
            name="embedding",
        )
        self.feature_embedding = dense("feature_embedding", rnn_size, self.feature_size, "relu")
        self.pooled_embedding = dense("pooled_embedding", rnn_size, self.feature_size, "relu")
        self.attention_features = dense("attention_features", attention_size, rnn_size)
        self.attention_query = dense("attention_query", attention_size, rnn_size)
        self.attention_score = dense("attention_score", 1, attention_size)
        self.attention_lstm_image = dense("attention_lstm_image", 4 * rnn_size, rnn_size)
        self.attention_lstm = dense("attention_lstm", 4 * rnn_size, rnn_size)
        self.language_lstm = dense("language_lstm", 4 * rnn_size, rnn_size)
        self.language_lstm_bias = Bias(_initially_within(rnn_size), dtype=policy, name="language_lstm_bias")
        self.dropout = keras.layers.Dropout(dropout, dtype=policy, name="dropout")
        self.hidden_layers = [
            dense(f"output_hidden_{number}", rnn_size, rnn_size, "relu")
            for number in range(output_layers - 1)
        ]
        # `output` is a property of every Keras layer. Logits keep full precision under mixed precision.
        self.output_layer = dense("output", vocabulary_size, rnn_size, dtype=policy.variable_dtype)
        self.build()

    def build(self, input_shape=None) -> None:
        """Make the weights; their sizes are known without an input."""
        if self.built:
            return
        hidden = (None, self.rnn_size)
        self.embedding.build((None,))
        self.feature_embedding.build((None, None, self.feature_size))
        self.pooled_embedding.build((None, self.feature_size))
        self.attention_features.build((None, None, self.rnn_size))
        self.attention_query.build(hidden)
        self.attention_score.build((None, None, self.attention_size))
        self.attention_lstm_image.build(hidden)
        self.attention_lstm.build((None, 2 * self.rnn_size + self.embedding_size))
        context = self.attention_size if self.share_attention == "kv" else self.rnn_size
        self.language_lstm.build((None, context + 2 * self.rnn_size))
        self.language_lstm_bias.build((None, 4 * self.rnn_size))
        for layer in (*self.hidden_layers, self.output_layer):
            layer.build(hidden)
        self.built = True

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        given, mask = regions(inputs, self.encoder, self.feature_size, training)
        pooled = self._pooled(inputs["pooled"]) if "pooled" in inputs else mean_region(given, mask)
        features = self.feature_embedding(ops.cast(given, self.compute_dtype))
        features = self.dropout(features, training=training)
        pooled = self.pooled_embedding(ops.cast(pooled, self.compute_dtype))
        pooled = self.dropout(pooled, training=training)
        memory = attention_memory(self.attention_features(features), features, mask, self.share_attention)
        return {**memory, "image": self.attention_lstm_image(pooled)}

    def _pooled(self, given):
        if len(given.shape) != 2 or given.shape[1] not in (self.feature_size, None):
            raise InputError(
                f'"pooled" is one feature for each image, of shape [images, {self.feature_size}], not'
                f" {tuple(given.shape)}: give that, or leave it out for the mean of the regions"
            )
        return given

    def initial_state(self, memory: Memory) -> State:
        zeros = ops.zeros_like(memory["image"][:, : self.rnn_size])
        names = ("attention_hidden", "attention_carry", "language_hidden", "language_carry")
        return dict.fromkeys(names, zeros)

    def step(self, token_ids, state: State, memory: Memory, training: bool = False):
        state = self._advance(self._embedded(token_ids, training), state, memory)
        return self._logits(state["language_hidden"], training), state

    def call(self, inputs: Inputs, training: bool = False):
        with sample_gates_once(self, training):
            memory = self.encode(inputs, training)
            # What does not depend on the state is done for all words at once, outside the loop.
            hidden = hidden_after_words(
                lambda embedded, state: self._advance(embedded, state, memory),
                self._embedded(inputs["tokens"], training),
                self.initial_state(memory),
                "language_hidden",
            )
            return self._logits(hidden, training)

    def _embedded(self, token_ids, training: bool):
        return self.dropout(ops.relu(self.embedding(token_ids)), training=training)

    def _advance(self, embedded, state: State, memory: Memory) -> State:
        gates = self.attention_lstm(
            ops.concatenate([state["language_hidden"], embedded, state["attention_hidden"]], axis=-1)
        )
        attention_hidden, attention_carry = _lstm(gates + memory["image"], state["attention_carry"])

        query = self.attention_query(attention_hidden)
        context = looked_at(attention_weights(query, memory, self.attention_score), memory)

        gates = self.language_lstm(
            ops.concatenate([context, attention_hidden, state["language_hidden"]], axis=-1)
        )
        language_hidden, language_carry = _lstm(self.language_lstm_bias(gates), state["language_carry"])
        return {
            "attention_hidden": attention_hidden,
            "attention_carry": attention_carry,
            "language_hidden": language_hidden,
            "language_carry": language_carry,
        }

    def _logits(self, hidden, training: bool):
        for layer in self.hidden_layers:
            hidden = layer(self.dropout(hidden, training=training))
        return ops.cast(self.output_layer(self.dropout(hidden, training=training)), "float32")

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "embedding_size": self.embedding_size,
            "rnn_size": self.rnn_size,
            "attention_size": self.attention_size,
            "share_attention": self.share_attention,
            "feature_size": self.feature_size,
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "output_layers": self.output_layers,
            "dropout": self.dropout_rate,
        }


def _lstm(gates, carry):
    """Hidden state and carry after a word, from what the four gates are to squash: [B, 4 U] and [B, U]."""
    entered, kept, candidate, shown = ops.split(gates, 4, axis=-1)
    carry = ops.sigmoid(kept) * carry + ops.sigmoid(entered) * ops.tanh(candidate)
    return ops.sigmoid(shown) * ops.tanh(carry), carry


def _initially_within(inputs: int) -> keras.initializers.Initializer:
    """PyTorch's initial weights, uniform within 1 / sqrt(inputs); for each weight one of its own."""
    limit = inputs**-0.5
    return keras.initializers.RandomUniform(-limit, limit)
