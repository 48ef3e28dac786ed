"""Base class of captioners: Keras models that generate a caption of an image token by token.

It is the interface between captioners and everything that trains, decodes, evaluates and exports them.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tfsparsecap.errors import InputError
from tfsparsecap.gates import sample_gates_once

#: Ids of the special tokens in every word vocabulary of this package.
PAD, START, END, UNKNOWN = 0, 1, 2, 3

Inputs = dict[str, tf.Tensor]
Memory = dict[str, tf.Tensor]
State = dict[str, tf.Tensor]


class Captioner(keras.Model):
    """Base class of image captioners, which generate a caption token by token.

    A subclass implements `encode`, `initial_state` and `step`; training, pruning, decoding, evaluation and
    export need nothing else. It may also override `teacher_forcing` to process all tokens at once.
    `B` is the number of captions, `T` their length in tokens, `V` the size of the vocabulary.

    Args:
        vocabulary_size: `V`, special tokens included.
        start_id: id of the token before the first word.
        end_id: id of the token after the last word.
        pad_id: id of the token that fills up shorter captions.
        kwargs: of `keras.Model`, such as `name` and `dtype`.

    Examples:
        >>> class MeanPool(Captioner):
        ...     def __init__(self, vocabulary_size, units=32, **kwargs):
        ...         super().__init__(vocabulary_size, **kwargs)
        ...         self.project = keras.layers.Dense(units)
        ...         self.embedding = keras.layers.Embedding(vocabulary_size, units)
        ...         self.cell = keras.layers.GRUCell(units)
        ...         self.logits = keras.layers.Dense(vocabulary_size)
        ...
        ...     def encode(self, inputs, training=False):
        ...         return {"image": self.project(ops.mean(inputs["features"], axis=1))}
        ...
        ...     def initial_state(self, memory):
        ...         return {"hidden": memory["image"]}
        ...
        ...     def step(self, token_ids, state, memory, training=False):
        ...         output, (hidden,) = self.cell(self.embedding(token_ids), [state["hidden"]])
        ...         return ops.cast(self.logits(output), "float32"), {"hidden": hidden}
        >>> captioner = MeanPool(100)
        >>> inputs = {"features": ops.ones((2, 9, 16)), "tokens": ops.ones((2, 5), "int32")}
        >>> captioner(inputs).shape
        TensorShape([2, 5, 100])
        >>> from tfsparsecap.captioning.search.beam_search import Decoder
        >>> token_ids, scores = Decoder(captioner, beam=3, max_length=6)({"features": ops.ones((2, 9, 16))})
        >>> token_ids.shape
        TensorShape([2, 3, 6])
    """

    #: Names of the inputs that `encode` uses; the first two are the kinds of input that datasets contain.
    input_names: tuple[str, ...] = ("image", "features")
    #: Largest number of tokens in a caption; None is unlimited.
    max_length: int | None = None
    #: Whether `step` takes the memory of one image for several captions of it, without repeating its row.
    shares_memory = False
    #: Names of the objects whose probabilities `encode` returns as `"objects"`, float32 [B, K].
    objects: tuple[str, ...] = ()
    built: bool
    #: Share of the target probability that the loss spreads over all tokens, in [0, 1).
    label_smoothing: float = 0.0
    #: Share of the loss that is the cross-entropy with the probabilities of teachers, if given.
    teacher_weight: float = 0.5

    def __init__(
        self,
        vocabulary_size: int,
        *,
        start_id: int = START,
        end_id: int = END,
        pad_id: int = PAD,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.start_id, self.end_id, self.pad_id = start_id, end_id, pad_id

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        """Computes everything that depends only on the image.

        Args:
            inputs: `"image"` uint8 or float [B, S, S, 3] with values 0 to 255, or `"features"` float
                [B, N, D], which replace the encoder's output and take precedence, and the other inputs in
                `input_names`; other keys are ignored.
            training: whether layers such as dropout are in training mode.

        Returns:
            A dictionary of tensors, each with leading axis B.
        """
        raise NotImplementedError

    def initial_state(self, memory: Memory) -> State:
        """Returns the decoder's state before the first token: a dictionary of tensors with leading axis B."""
        raise NotImplementedError

    def step(
        self, token_ids: tf.Tensor, state: State, memory: Memory, training: bool = False
    ) -> tuple[tf.Tensor, State]:
        """Predicts the next token.

        Args:
            token_ids: int32 [B], the previous token (`start_id` at first).
            state: as returned by `initial_state` or the previous step; leading axis B.
            memory: as returned by `encode`; leading axis B.
            training: as in `encode`.

        Returns:
            `(logits, state)`: float32 [B, V] and the next state, with unchanged structure, shapes and dtypes.
        """
        raise NotImplementedError

    def call(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        """Predicts every token from the tokens before it.

        Args:
            inputs: as in `encode`, and `"tokens"` int32 [B * k, T], which start with `start_id`: k captions
                of each image, one image after the other. Outputs for `pad_id` do not matter, because the
                loss ignores them.
            training: whether layers such as dropout are in training mode.

        Returns:
            Logits float32 [B * k, T, V]; position t predicts token t + 1.
        """
        # All tokens use the same sampled gates.
        with sample_gates_once(self, training):
            return self.teacher_forcing(inputs, training)

    def teacher_forcing(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        """Computes `call`; by default, one `step` after the other."""
        memory = self.encode_for_tokens(inputs, training)
        return loop_over_tokens(
            lambda token_ids, state: self.step(token_ids, state, memory, training),
            inputs["tokens"],
            self.initial_state(memory),
        )

    def encode_for_tokens(self, inputs: Inputs, training: bool = False) -> Memory:
        """Computes `encode`, repeated for each caption in `inputs["tokens"]`, see `call`."""
        memory, tokens = self.encode(inputs, training), inputs["tokens"]
        rows = {tensor.shape[0] for tensor in tf.nest.flatten(memory)}
        if tokens.shape[0] is not None and rows == {tokens.shape[0]}:
            return memory

        def repeat(tensor: tf.Tensor) -> tf.Tensor:
            return tf.repeat(tensor, tf.shape(tokens)[0] // tf.shape(tensor)[0], axis=0)

        repeated: Memory = tf.nest.map_structure(repeat, memory)
        return repeated

    def compute_loss(
        self,
        x: tf.Tensor | None = None,
        y: tf.Tensor | None = None,
        y_pred: tf.Tensor | None = None,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Computes the loss that `fit` and the training command minimise.

        It is the cross-entropy of all target tokens except padding, in nats per token, plus `other_losses`.
        With several replicas, the average is over the tokens of all: the values of
        the replicas sum to the loss. A loss given to `compile` replaces it.

        Args:
            x: inputs of `call`; `"teacher_probabilities"` float [B, T, V] are targets besides the tokens
                (knowledge distillation, Hinton et al., https://arxiv.org/abs/1503.02531, at temperature 1).
            y: target tokens int32 [B, T].
            y_pred: logits float [B, T, V].
            sample_weight: must be None.
            training: not used.

        Returns:
            float32 scalar.

        Raises:
            InputError: weights are given.

        Examples:
            >>> from tfsparsecap.captioning.models import SoftAttention
            >>> captioner = SoftAttention(100, rnn_size=8, attention_size=8, feature_size=16)
            >>> captioner.compile("adam")
            >>> tokens = np.random.randint(3, 100, (4, 6))
            >>> inputs = {"features": np.ones((4, 9, 16)), "tokens": tokens[:, :-1]}
            >>> list(captioner.fit(inputs, tokens[:, 1:], verbose=0).history)
            ['loss']
        """
        if getattr(self, "loss", None) is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is not None:
            raise InputError("the loss of a captioner has no sample weights: leave sample_weight out")
        return self.word_loss(x, y, y_pred) + self.other_losses()

    def word_loss(self, x: Any, y: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """The cross-entropy of `compute_loss` alone; arguments as there."""
        taught = x.get("teacher_probabilities") if isinstance(x, dict) else None
        loss = masked_cross_entropy(y_pred, y, self.pad_id, self.label_smoothing, taught, self.teacher_weight)
        return loss / sum_of_all_replicas(tf.math.count_nonzero(y != self.pad_id))

    def other_losses(self) -> tf.Tensor | float:
        """The sum of the regularization losses, divided by the number of replicas: all compute the same."""
        replica = tf.distribute.get_replica_context()
        return (
            tf.add_n(self.losses) / (replica.num_replicas_in_sync if replica else 1) if self.losses else 0.0
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "start_id": self.start_id,
            "end_id": self.end_id,
            "pad_id": self.pad_id,
        }

    def constant_tables(self) -> dict[str, np.ndarray]:
        """Returns constants in the graph that are not weights, such as positional encodings."""
        return {}


def sum_of_all_replicas(count: tf.Tensor) -> tf.Tensor:
    """The sum of the counts of all replicas; at least 1, float32."""
    replica, total = tf.distribute.get_replica_context(), tf.cast(count, tf.float32)
    if replica is not None and replica.num_replicas_in_sync > 1:
        total = replica.all_reduce(tf.distribute.ReduceOp.SUM, total)
    return tf.maximum(total, 1.0)


def masked_cross_entropy(
    logits: tf.Tensor,
    targets: tf.Tensor,
    pad_id: int,
    label_smoothing: float = 0.0,
    taught: tf.Tensor | None = None,
    teacher_weight: float = 0.0,
) -> tf.Tensor:
    """Cross-entropy in nats, summed over all tokens except padding.

    With smoothing e the target distribution is (1 - e) on the target token plus e / V on each of V tokens.
    With teacher weight w, it is (1 - w) of that plus w of the teachers' probabilities.

    Args:
        logits: float [B, T, V].
        targets: int32 [B, T].
        pad_id: id of the padding, which is ignored.
        label_smoothing: e, in [0, 1).
        taught: probabilities of teachers, float32 [B, T, V].
        teacher_weight: w, in [0, 1]; without effect if `taught` is None.

    Returns:
        float32 scalar.

    Examples:
        >>> loss = masked_cross_entropy(tf.zeros([1, 2, 4]), tf.constant([[3, 0]]), pad_id=0)
        >>> round(float(loss), 3)
        1.386
    """
    logits = tf.cast(logits, tf.float32)
    if label_smoothing or taught is not None:
        # One operation with a gradient of its own: half of the time of a sum of two losses.
        size, share = logits.shape[-1], 1.0 if taught is None else 1.0 - teacher_weight
        every = share * label_smoothing / size
        probabilities = tf.one_hot(targets, size, share * (1.0 - label_smoothing) + every, every)
        if taught is not None:
            probabilities += teacher_weight * taught
        losses = tf.nn.softmax_cross_entropy_with_logits(probabilities, logits)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_sum(tf.where(targets == pad_id, 0.0, losses))


def loop_over_tokens(
    step: Callable[..., Any], tokens: tf.Tensor, state: State, dtype: str = "float32"
) -> tf.Tensor:
    """Runs a step for each token and stacks the outputs.

    Unrolled if T is known, which is as fast as a loop and compiles with XLA; otherwise a loop in the graph.

    Args:
        step: `step(token, state)` -> `(output [B, ...], next state)`.
        tokens: [B, T] ids or [B, T, E] embeddings.
        state: before the first token.
        dtype: of the outputs.

    Returns:
        [B, T, ...].

    Examples:
        >>> def add(number, state):
        ...     total = state["total"] + number
        ...     return total, {"total": total}
        >>> totals = loop_over_tokens(add, ops.ones((2, 3)), {"total": ops.zeros(2)})
        >>> ops.convert_to_numpy(totals[0]).tolist()
        [1.0, 2.0, 3.0]
    """
    tokens = ops.convert_to_tensor(tokens)
    if tokens.shape[1] is not None:
        outputs = []
        for position in range(tokens.shape[1]):
            output, state = step(tokens[:, position], state)
            outputs.append(output)
        return ops.stack(outputs, axis=1)
    length = tf.shape(tokens)[1]
    inputs = tf.TensorArray(tokens.dtype, length).unstack(_swap_first_axes(tokens))

    def body(
        position: tf.Tensor, state: State, outputs: tf.TensorArray
    ) -> tuple[tf.Tensor, State, tf.TensorArray]:
        output, state = step(inputs.read(position), state)
        return position + 1, state, outputs.write(position, output)

    outputs = tf.TensorArray(dtype, length)
    _, _, outputs = tf.while_loop(lambda position, *_: position < length, body, (0, state, outputs))
    return _swap_first_axes(outputs.stack())


def _swap_first_axes(x: tf.Tensor) -> tf.Tensor:
    return tf.transpose(x, (1, 0, *range(2, x.shape.rank)))
