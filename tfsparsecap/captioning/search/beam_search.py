"""Greedy and beam search for any `Captioner`, as one graph.

All shapes are static and all operations are TensorFlow Lite built-ins, so the same graph is evaluated and
exported.
"""

from typing import Any

import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner, Inputs, Memory, State
from tfsparsecap.captioning.search.search_options import LARGEST_BEAM
from tfsparsecap.captioning.search.sentence_rules import BROKEN_RULE, NEVER, SPARE_CANDIDATES, SearchRules
from tfsparsecap.errors import InputError, check_whole
from tfsparsecap.gates import sample_gates_once


def beam_search(
    captioner: Captioner, inputs: dict[str, Any], beam: int, max_length: int, rules: SearchRules | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the `beam` best captions by beam search; `beam=1` is greedy search.

    Runs eagerly or inside `tf.function`; in a graph it stops as soon as every beam has ended.

    With `rules`, the next token is one of the `beam + SPARE_CANDIDATES` most probable ones.
    Captions are ranked first by the number of rules that they break, then by their score, divided by
    `length ** length_penalty`; the objects that they name count, too, if the captioner predicts them. This
    holds at each token, and also between captions that have ended and those that have not.

    Args:
        captioner: any built `Captioner`.
        inputs: inputs of `captioner.encode`, leading axis B (may be unknown in a graph).
        beam: number of captions kept at each step, at least 1.
        max_length: largest number of tokens in a caption, including the end token.
        rules: for complete sentences; None is the plain search, which ranks captions by their scores.

    Returns:
        `(token_ids, scores)`, best first: int32 [B, beam, max_length] without the start token and with
        `pad_id` after the end token; float32 [B, beam], the sum of the log-probabilities of a caption's
        tokens, including the end token if generated, whatever the `rules`. If fewer than `beam` captions
        exist, the rest are `pad_id` with score -inf.

    Raises:
        InputError: a beam or length below 1, a beam above 1000, or a length above `captioner.max_length`.

    Examples:
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> captioner, features = SoftAttention(100, feature_size=8), tf.zeros((2, 4, 8))
        >>> token_ids, scores = beam_search(captioner, {"features": features}, beam=3, max_length=6)
        >>> token_ids.shape, scores.shape
        (TensorShape([2, 3, 6]), TensorShape([2, 3]))
    """
    # Mask gated weights once before the loop, not at every token.
    with sample_gates_once(captioner, training=False):
        return search_memory(captioner, captioner.encode(inputs, training=False), beam, max_length, rules)


def search_memory(
    captioner: Captioner, memory: Memory, beam: int, max_length: int, rules: SearchRules | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """`beam_search` for images that are already encoded: `memory` is as from `captioner.encode`."""
    beam = check_whole("beam", beam, at_least=1, at_most=LARGEST_BEAM)
    max_length = check_whole("max_length", max_length, at_least=1)
    check_length(captioner, max_length)
    state = captioner.initial_state(memory)
    one_image = tf.nest.flatten(state)[0].shape[0] == 1
    state = tf.nest.map_structure(lambda x: _repeat(x, beam), state)
    evidence = None
    if rules is not None and rules.sees_objects:
        evidence = rules.evidence(memory["objects"])
        evidence = evidence if one_image else _repeat(evidence, beam)
    if not (one_image and captioner.shares_memory):
        memory = tf.nest.map_structure(lambda x: _repeat(x, beam), memory)
    return _search(captioner, memory, state, beam, max_length, rules, evidence)


def check_length(captioner: Captioner, max_length: int) -> None:
    """Raises InputError if `max_length` exceeds the captioner's."""
    if captioner.max_length is not None and max_length > captioner.max_length:
        raise InputError(
            f"max_length is {max_length}, but captions of {captioner.name} have at most"
            f" {captioner.max_length} tokens: give no more, or train it with a larger data.max_length"
        )


def _search(
    captioner: Captioner,
    memory: Memory,
    state: State,
    beam: int,
    max_length: int,
    rules: SearchRules | None,
    evidence: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Searches from memory and state with leading axis B * beam, equal for all beams of an image."""
    rows = _length(tf.nest.flatten(state)[0])
    batch = rows // beam
    # At most `beam` continuations of one caption can be among the best, and rules exclude some.
    width = min(beam + (SPARE_CANDIDATES if rules is not None else 0), captioner.vocabulary_size)
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
    if rules is not None:
        loop |= {"broken": tf.zeros([rows], tf.int32), "weight": tf.ones([rows])}
        loop |= rules.initial_state(rows, max_length)
    if evidence is not None:
        loop["evidence"] = tf.zeros([rows])

    def proceed(loop: dict[str, tf.Tensor]) -> tf.Tensor:
        return (loop["position"] < max_length) & ~tf.reduce_all(loop["ended"])

    def advance(loop: dict[str, tf.Tensor]) -> list[dict[str, tf.Tensor]]:
        logits, state = captioner.step(loop["last"], loop["state"], memory, training=False)
        # Compute the logarithm of the best tokens only.
        probabilities, tokens = tf.math.top_k(tf.nn.softmax(logits), k=width)
        # With rules, a token of probability 0 may be the only one left; this changes no other logarithm.
        log_probabilities = tf.math.log(probabilities if rules is None else probabilities + 1e-37)
        ended = tf.expand_dims(loop["ended"], 1)
        tokens = tf.where(ended, captioner.pad_id, tokens)
        scores = tf.expand_dims(loop["scores"], 1) + tf.where(ended, after_end, log_probabilities)
        # What belongs to a caption, one row for each; and what belongs to its candidates [rows, width].
        rows_of = {"token_ids": loop["token_ids"], "ended": loop["ended"], "state": state}
        candidates, ranks = {"last": tokens, "scores": scores}, scores
        if rules is not None:
            rows_of["weight"] = tf.where(loop["ended"], loop["weight"], rules.weight(loop["position"] + 1))
            rows_of |= {name: loop[name] for name in rules.state_names}
            broken = tf.where(ended, 0, rules.broken_rules(tokens, loop))
            candidates["broken"] = tf.expand_dims(loop["broken"], 1) + broken
            penalties = BROKEN_RULE * tf.cast(candidates["broken"], tf.float32)
            if evidence is not None:
                more = tf.where(ended, 0.0, rules.word_evidence(tokens, loop["last"], evidence))
                candidates["evidence"] = tf.expand_dims(loop["evidence"], 1) + more
                ranks = scores + candidates["evidence"]
            ranks = ranks * tf.expand_dims(rows_of["weight"], 1) - penalties
        if width > 1:
            _, index = tf.math.top_k(tf.reshape(ranks, [batch, beam * width]), k=beam)
            parents, picked = index // width, index
            if isinstance(batch, tf.Tensor) or batch > 1:
                first = tf.expand_dims(tf.range(batch) * beam, 1)
                parents, picked = parents + first, picked + first * width
            parents, picked = tf.reshape(parents, [-1]), tf.reshape(picked, [-1])
            candidates = {
                name: tf.gather(tf.reshape(values, [-1]), picked) for name, values in candidates.items()
            }
            if beam > 1:
                rows_of = tf.nest.map_structure(lambda x: tf.gather(x, parents), rows_of)
        else:
            candidates = {name: tf.reshape(values, [-1]) for name, values in candidates.items()}
        last = candidates["last"]
        here = tf.range(max_length) == loop["position"]
        following = {
            **rows_of,
            **candidates,
            "position": loop["position"] + 1,
            "ended": rows_of["ended"] | (last == captioner.end_id),
            "token_ids": tf.where(here, tf.expand_dims(last, 1), rows_of["token_ids"]),
        }
        if rules is not None:
            following |= rules.next_state({**rows_of, "position": loop["position"]}, last)
        # Reshaping loses static shapes, but a loop must keep them.
        tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), following, loop)
        return [following]

    (loop,) = tf.while_loop(proceed, advance, [loop])
    scores = loop["scores"]
    if rules is not None:
        scores = tf.where(loop["broken"] < NEVER, scores, float("-inf"))
    exists = scores > float("-inf")
    token_ids = tf.where(tf.expand_dims(exists, 1), loop["token_ids"], captioner.pad_id)
    return tf.reshape(token_ids, [batch, beam, max_length]), tf.reshape(scores, [batch, beam])


class Decoder:
    """A captioner's greedy or beam search, compiled once for many batches.

    Args:
        captioner: any built `Captioner`.
        beam: number of captions kept at each step; 1 is greedy.
        max_length: largest number of tokens in a caption, including the end token.
        rules: for complete sentences; None is the plain search, see `beam_search`.

    Examples:
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> decode = Decoder(SoftAttention(100, feature_size=8), beam=3, max_length=6)
        >>> token_ids, scores = decode({"features": tf.zeros((2, 4, 8))})
    """

    def __init__(
        self,
        captioner: Captioner,
        beam: int = 1,
        max_length: int = 20,
        rules: SearchRules | None = None,
    ) -> None:
        self.captioner, self.beam, self.max_length, self.rules = captioner, beam, max_length, rules
        self._search = tf.function(self._decode, reduce_retracing=True, autograph=False)

    def __call__(self, inputs: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs `beam_search` on a batch; inputs that are not in `captioner.input_names` are ignored."""
        return self.with_objects(inputs)[:2]

    def with_objects(self, inputs: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """The same, and the probabilities of `captioner.objects`, float32 [B, K]; None without objects."""
        used = {name: inputs[name] for name in self.captioner.input_names if name in inputs}
        captions: tuple[tf.Tensor, tf.Tensor, tf.Tensor | None] = self._search(used)
        return captions

    @property
    def traces(self) -> int:
        """Number of graphs traced so far: one per new input shape; each takes seconds."""
        return int(self._search.experimental_get_tracing_count())

    def _decode(self, inputs: Inputs) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        with sample_gates_once(self.captioner, training=False):
            memory = self.captioner.encode(inputs, training=False)
            token_ids, scores = self._captions(memory)
        return token_ids, scores, memory.get("objects")

    def _captions(self, memory: Memory) -> tuple[tf.Tensor, tf.Tensor]:
        return search_memory(self.captioner, memory, self.beam, self.max_length, self.rules)


def _repeat(x: tf.Tensor, times: int) -> tf.Tensor:
    """Repeats each row: [B, …] to [B * times, …]."""
    return x if times == 1 else tf.repeat(x, times, axis=0)


def _length(x: tf.Tensor) -> int | tf.Tensor:
    """Length of the first axis, as an int if it is known."""
    return x.shape[0] if x.shape[0] is not None else tf.shape(x)[0]
