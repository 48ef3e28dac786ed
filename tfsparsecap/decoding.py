"""Greedy and beam search for any `Captioner`, as one graph.

All shapes are static and all operations are TensorFlow Lite built-ins, so the same graph is evaluated and
exported.
"""

import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import sample_gates_once
from tfsparsecap.models.captioner import Captioner, Inputs, Memory, State


def beam_search(
    captioner: Captioner, inputs: dict, beam: int, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the `beam` best captions by beam search without length normalisation; `beam=1` is greedy search.

    Runs eagerly or inside `tf.function`; in a graph it stops as soon as every beam has ended.

    Args:
        captioner: any built `Captioner`.
        inputs: inputs of `captioner.encode`, leading axis B (may be unknown in a graph).
        beam: number of captions kept at each step, at least 1.
        max_length: largest number of tokens in a caption, including the end token.

    Returns:
        `(token_ids, scores)`, best first: int32 [B, beam, max_length] without the start token and with
        `pad_id` after the end token; float32 [B, beam], the sum of the log-probabilities of a caption's
        tokens, including the end token if generated. If fewer than `beam` captions exist, the rest are
        `pad_id` with score -inf.

    Raises:
        InputError: a beam or length below 1, or a length above `captioner.max_length`.

    Examples:
        >>> from tfsparsecap.models import SoftAttention
        >>> captioner, features = SoftAttention(100, feature_size=8), tf.zeros((2, 4, 8))
        >>> token_ids, scores = beam_search(captioner, {"features": features}, beam=3, max_length=6)
        >>> token_ids.shape, scores.shape
        (TensorShape([2, 3, 6]), TensorShape([2, 3]))
    """
    if beam < 1 or max_length < 1:
        raise InputError(f"beam is {beam} and max_length {max_length}: both must be at least 1")
    check_length(captioner, max_length)
    # Mask gated weights once before the loop, not at every token.
    with sample_gates_once(captioner, training=False):
        memory = captioner.encode(inputs, training=False)
        state = captioner.initial_state(memory)
        memory, state = tf.nest.map_structure(lambda x: _repeat(x, beam), (memory, state))
        return _search(captioner, memory, state, beam, max_length)


def check_length(captioner: Captioner, max_length: int) -> None:
    """Raises InputError if `max_length` exceeds the captioner's."""
    if captioner.max_length is not None and max_length > captioner.max_length:
        raise InputError(
            f"max_length is {max_length}, but captions of {captioner.name} have at most"
            f" {captioner.max_length} tokens: give no more, or train it with a larger data.max_length"
        )


def _search(
    captioner: Captioner, memory: Memory, state: State, beam: int, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Searches from memory and state with leading axis B * beam, equal for all beams of an image."""
    rows = _length(tf.nest.flatten(state)[0])
    batch = rows // beam
    # At most `beam` continuations of one caption can be among the best.
    width = min(beam, captioner.vocabulary_size)
    # All beams start equal, so only the first is alive; otherwise all would find the same caption. A dead
    # beam counts as ended, so that it does not keep the loop running.
    alive = tf.range(rows) % beam == 0
    # Only padding follows the end token, with log-probability 0.
    after_end = tf.constant([[0.0, *[float("-inf")] * (width - 1)]])
    loop = {
        "position": tf.constant(0),
        "last": tf.fill([rows], captioner.start_id),
        "ended": tf.logical_not(alive),
        "scores": tf.where(alive, 0.0, float("-inf")),
        "token_ids": tf.fill([rows, max_length], captioner.pad_id),
        "state": state,
    }

    def proceed(loop: dict[str, tf.Tensor]) -> tf.Tensor:
        return (loop["position"] < max_length) & ~tf.reduce_all(loop["ended"])

    def advance(loop: dict[str, tf.Tensor]) -> list[dict[str, tf.Tensor]]:
        logits, state = captioner.step(loop["last"], loop["state"], memory, training=False)
        # Compute the logarithm of the best tokens only.
        probabilities, tokens = tf.math.top_k(tf.nn.softmax(logits), k=width)
        ended = tf.expand_dims(loop["ended"], 1)
        tokens = tf.where(ended, captioner.pad_id, tokens)
        scores = tf.expand_dims(loop["scores"], 1) + tf.where(ended, after_end, tf.math.log(probabilities))
        token_ids, ended = loop["token_ids"], loop["ended"]
        if beam > 1:
            scores, index = tf.math.top_k(tf.reshape(scores, [batch, beam * width]), k=beam)
            parents, picked = index // width, index
            if isinstance(batch, tf.Tensor) or batch > 1:
                first = tf.expand_dims(tf.range(batch) * beam, 1)
                parents, picked = parents + first, picked + first * width
            parents = tf.reshape(parents, [-1])
            tokens = tf.gather(tf.reshape(tokens, [-1]), picked)
            token_ids, ended, state = tf.nest.map_structure(
                lambda x: tf.gather(x, parents), (token_ids, ended, state)
            )
        last = tf.reshape(tokens, [-1])
        here = tf.range(max_length) == loop["position"]
        following = {
            "position": loop["position"] + 1,
            "last": last,
            "ended": ended | (last == captioner.end_id),
            "scores": tf.reshape(scores, [-1]),
            "token_ids": tf.where(here, tf.expand_dims(last, 1), token_ids),
            "state": state,
        }
        # Reshaping loses static shapes, but a loop must keep them.
        tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), following, loop)
        return [following]

    (loop,) = tf.while_loop(proceed, advance, [loop])
    exists = loop["scores"] > float("-inf")
    token_ids = tf.where(tf.expand_dims(exists, 1), loop["token_ids"], captioner.pad_id)
    return tf.reshape(token_ids, [batch, beam, max_length]), tf.reshape(loop["scores"], [batch, beam])


class Decoder:
    """A captioner's greedy or beam search, compiled once for many batches.

    Args:
        captioner: any built `Captioner`.
        beam: number of captions kept at each step; 1 is greedy.
        max_length: largest number of tokens in a caption, including the end token.

    Examples:
        >>> from tfsparsecap.models import SoftAttention
        >>> decode = Decoder(SoftAttention(100, feature_size=8), beam=3, max_length=6)
        >>> token_ids, scores = decode({"features": tf.zeros((2, 4, 8))})
    """

    def __init__(self, captioner: Captioner, beam: int = 1, max_length: int = 20) -> None:
        self.captioner, self.beam, self.max_length = captioner, beam, max_length
        self._search = tf.function(self._decode, reduce_retracing=True, autograph=False)

    def __call__(self, inputs: dict) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs `beam_search` on a batch; inputs that are not in `captioner.input_names` are ignored."""
        return self._search({name: inputs[name] for name in self.captioner.input_names if name in inputs})

    @property
    def traces(self) -> int:
        """Number of graphs traced so far: one per new input shape; each takes seconds."""
        return self._search.experimental_get_tracing_count()

    def _decode(self, inputs: Inputs) -> tuple[tf.Tensor, tf.Tensor]:
        return beam_search(self.captioner, inputs, self.beam, self.max_length)


def _repeat(x: tf.Tensor, times: int) -> tf.Tensor:
    """Repeats each row: [B, …] to [B * times, …]."""
    return x if times == 1 else tf.repeat(x, times, axis=0)


def _length(x: tf.Tensor) -> int | tf.Tensor:
    """Length of the first axis, as an int if it is known."""
    return x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
