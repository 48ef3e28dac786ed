"""Plain, top-k and nucleus sampling for any `Captioner`, as one graph.

Used for training on rewards and for several captions per image; unlike `beam_search`, it is not exported.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner, Memory
from tfsparsecap.captioning.search.beam_search import Decoder, _length, _repeat, check_length
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.gates import sample_gates_once

Seed: TypeAlias = int | tuple[int, int] | tf.Tensor | None

# Number of tokens to sort first when finding a nucleus; all are sorted only if these are too few, because
# sorting 10 000 takes four times as long as the rest of a step.
_FEW = 256


def sample(
    captioner: Captioner,
    inputs: dict[str, Any],
    samples: int,
    max_length: int,
    **options: Any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Samples captions of every image token by token; the image is encoded once.

    Tokens are sampled from `softmax(logits / temperature)`: with `top_k` only from the `top_k` most probable
    tokens, with `top_p` only from the smallest set of most probable tokens whose probabilities add up to
    `top_p`. With both, `top_p` applies to the renormalised probabilities of the `top_k` tokens.

    All samples are independent, so two captions of an image may be equal. Runs eagerly or inside
    `tf.function`; in a graph it stops as soon as every caption has ended. Layers run in inference mode: no
    dropout, rounded gates.

    Args:
        captioner: any built `Captioner`.
        inputs: inputs of `captioner.encode`, leading axis B (may be unknown in a graph).
        samples: number of captions per image, at least 1.
        max_length: largest number of tokens in a caption, including the end token.
        **options: any of the following.
        temperature: above 0; values below 1 make likely tokens likelier, values near 0 are greedy; default 1.
        top_k: number of tokens to sample from, at least 1; None is all.
        top_p: probability mass to sample from, above 0 and at most 1; None and 1 are all.
        seed: an integer s (the same as the pair s, 0), a pair, or a tensor of these. The same seed gives the
            same captions on the same kind of device; replicas of a `tf.distribute` strategy need different
            seeds. None takes a new seed for each call (in a graph, each run) from the generator that
            `tf.random.set_seed` seeds.
        rules: for complete sentences: only tokens that break the fewest rules are sampled. None allows all,
            also padding and the unknown token, as training on rewards requires.

    Returns:
        `(token_ids, log_probabilities)`: int32 [B, samples, max_length] without the start token and with
        `pad_id` after the end token; float32 [B, samples, max_length] of each sampled token, including the
        end token, and 0 after it. They are always the captioner's `log_softmax(logits)`, independent of
        `temperature`, `top_k` and `top_p`: their sum is the caption's score in `beam_search`, not its
        log-probability under the sampling distribution. They are differentiable with respect to the
        captioner's weights; the choice of tokens is not.

    Raises:
        InputError: an argument out of range, or a malformed seed.

    Reference:
        Top-k: Fan et al., "Hierarchical Neural Story Generation", https://arxiv.org/abs/1805.04833. Top-p:
        Holtzman et al., "The Curious Case of Neural Text Degeneration", https://arxiv.org/abs/1904.09751.

    Examples:
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> captioner, features = SoftAttention(100, feature_size=8), tf.zeros((2, 4, 8))
        >>> token_ids, log_probabilities = sample(captioner, {"features": features}, 5, 6, top_p=0.9, seed=1)
        >>> token_ids.shape, log_probabilities.shape
        (TensorShape([2, 5, 6]), TensorShape([2, 5, 6]))
    """
    # Mask gated weights once before the loop, not at every token.
    with sample_gates_once(captioner, training=False):
        memory = captioner.encode(inputs, training=False)
        return sample_memory(captioner, memory, samples, max_length, **options)


def sample_memory(
    captioner: Captioner,
    memory: Memory,
    samples: int,
    max_length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: Seed = None,
    rules: SearchRules | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`sample` for images that are already encoded: `memory` is as from `captioner.encode`."""
    samples, max_length = _check(samples, max_length, temperature, top_k, top_p)
    check_length(captioner, max_length)
    seed = _as_seed(seed)
    state = captioner.initial_state(memory)
    batch = _length(tf.nest.flatten((state, memory))[0])
    rows = batch * samples
    memory, state = tf.nest.map_structure(lambda x: _repeat(x, samples), (memory, state))
    loop = {
        "position": tf.constant(0),
        "last": tf.fill([rows], captioner.start_id),
        "ended": tf.fill([rows], False),
        "token_ids": tf.fill([rows, max_length], captioner.pad_id),
        "log_probabilities": tf.zeros([rows, max_length]),
        "state": state,
    }
    if rules is not None:
        loop |= rules.initial_state(rows, max_length)

    def proceed(loop: dict[str, tf.Tensor]) -> tf.Tensor:
        return (loop["position"] < max_length) & ~tf.reduce_all(loop["ended"])

    def advance(loop: dict[str, tf.Tensor]) -> list[dict[str, tf.Tensor]]:
        position, ended = loop["position"], loop["ended"]
        logits, state = captioner.step(loop["last"], loop["state"], memory, training=False)
        allowed = logits
        if rules is not None:
            broken = rules.broken_rules(tf.range(captioner.vocabulary_size)[None], loop)
            fewest = tf.reduce_min(broken, axis=1, keepdims=True)
            allowed = tf.where(broken == fewest, logits, -math.inf)
        tokens = _sample_tokens(allowed, tf.random.fold_in(seed, position), temperature, top_k, top_p)
        sampled_logits = tf.gather(logits, tokens, batch_dims=1)
        log_probabilities = tf.where(ended, 0.0, sampled_logits - tf.reduce_logsumexp(logits, axis=1))
        last = tf.where(ended, captioner.pad_id, tokens)
        here = tf.range(max_length) == position
        following = {
            "position": position + 1,
            "last": last,
            "ended": ended | (last == captioner.end_id),
            "token_ids": tf.where(here, last[:, None], loop["token_ids"]),
            "log_probabilities": tf.where(here, log_probabilities[:, None], loop["log_probabilities"]),
            "state": state,
        }
        if rules is not None:
            following |= rules.next_state(loop, last)
        # A step may lose static shapes, but a loop must keep them.
        tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), following, loop)
        return [following]

    (loop,) = tf.while_loop(proceed, advance, [loop])
    shape = [batch, samples, max_length]
    return tf.reshape(loop["token_ids"], shape), tf.reshape(loop["log_probabilities"], shape)


class Sampler(Decoder):
    """A captioner's sampling, compiled once for many batches, with the interface of a `Decoder`.

    Args:
        captioner: any built `Captioner`.
        samples: see `sample`.
        max_length: see `sample`.
        temperature: see `sample`.
        top_k: see `sample`.
        top_p: see `sample`.
        seed: see `sample`; None takes a new seed for this sampler. Each call uses a different seed derived
            from it; another sampler with the same seed gives the same samples.
        rules: see `sample`.

    Raises:
        InputError: as `sample`.

    Examples:
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> draw = Sampler(SoftAttention(100, feature_size=8), samples=5, max_length=6, top_k=10)
        >>> token_ids, scores = draw({"features": tf.zeros((2, 4, 8))})
    """

    def __init__(
        self,
        captioner: Captioner,
        samples: int = 1,
        max_length: int = 20,
        *,
        seed: Seed = None,
        rules: SearchRules | None = None,
        **options: Any,
    ) -> None:
        samples, max_length = _check(samples, max_length, **options)
        super().__init__(captioner, samples, max_length, rules)
        self.seed, self.options = _as_seed(seed), options
        # A variable, so that calls inside another `tf.function` are counted too.
        self._calls = tf.Variable(
            0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, name="calls"
        )

    def _captions(self, memory: Memory) -> tuple[tf.Tensor, tf.Tensor]:
        seed = tf.random.fold_in(self.seed, self._calls.assign_add(1))
        token_ids, log_probabilities = sample_memory(
            self.captioner, memory, self.beam, self.max_length, seed=seed, rules=self.rules, **self.options
        )
        scores, order = tf.math.top_k(tf.reduce_sum(log_probabilities, axis=2), k=self.beam)
        return tf.gather(token_ids, order, batch_dims=1), scores


def _sample_tokens(
    logits: tf.Tensor, seed: tf.Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> tf.Tensor:
    """Samples one token, int32 [R], for each row of logits [R, V]."""
    # With the largest logit at 0, a low temperature sends all others to -inf. The bounds keep the temperature
    # finite and above 0 in float32, so that 0 / 0 does not give NaN.
    logits -= tf.reduce_max(logits, axis=1, keepdims=True)
    logits /= min(max(temperature, 1e-37), 1e37)
    tokens = None
    if top_k is not None and top_k < logits.shape[1]:
        logits, tokens = tf.math.top_k(logits, k=int(top_k))
    picked = _pick(logits, seed) if top_p is None or top_p >= 1 else _pick_from_nucleus(logits, seed, top_p)
    return picked if tokens is None else tf.gather(tokens, picked, batch_dims=1)


def _pick(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Samples an index, int32 [R], for each row of logits [R, N]."""
    picked = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)[:, 0]
    # A row with NaN gives N, which is out of range.
    return tf.minimum(picked, logits.shape[1] - 1)


def _pick_from_nucleus(logits: tf.Tensor, seed: tf.Tensor, top_p: float) -> tf.Tensor:
    """`_pick` from the smallest set whose probabilities add up to `top_p`; the largest logit is 0."""
    size = logits.shape[1]
    # In single precision, the sums would miss the tail of a large vocabulary.
    total = tf.reduce_sum(tf.exp(tf.cast(logits, tf.float64)), axis=1, keepdims=True)

    def largest(count: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        largest_logits, indices = tf.math.top_k(logits, k=count)
        return largest_logits, indices, tf.cumsum(tf.exp(tf.cast(largest_logits, tf.float64)) / total, axis=1)

    def pick(largest_logits: tf.Tensor, indices: tf.Tensor, reached: tf.Tensor) -> tf.Tensor:
        # A token is kept if the tokens before it do not reach top_p, so the first is always kept.
        before = tf.pad(reached[:, :-1], [[0, 0], [1, 0]])
        picked = _pick(tf.where(before < top_p, largest_logits, -math.inf), seed)
        return tf.gather(indices, picked, batch_dims=1)

    few = largest(min(_FEW, size))
    if size <= _FEW:
        return pick(*few)
    enough = tf.reduce_all(few[2][:, -1] >= top_p)
    return tf.cond(enough, lambda: pick(*few), lambda: pick(*largest(size)))


def _check(
    samples: Any, max_length: Any, temperature: Any = 1.0, top_k: Any = None, top_p: Any = None
) -> tuple[int, int]:
    """Returns `samples` and `max_length`; raises InputError for the first argument that is out of range."""
    sizes = [
        check_whole(name, value, at_least=1)
        for name, value in (
            ("samples", samples),
            ("max_length", max_length),
            ("top_k", 1 if top_k is None else top_k),
        )
    ]
    check_number("temperature", temperature, above=0)
    check_number("top_p", 1.0 if top_p is None else top_p, above=0, at_most=1)
    return sizes[0], sizes[1]


def _as_seed(seed: Seed) -> tf.Tensor:
    """Converts a seed to the two integers of stateless sampling."""
    if seed is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    values: Any = seed
    if not tf.is_tensor(values):
        try:
            values = np.asarray(values)
        except ValueError:  # a list of lists of several lengths
            values = np.asarray(None)
    is_integer = values.dtype.is_integer if tf.is_tensor(values) else values.dtype.kind in "iu"
    if not is_integer or tuple(values.shape) not in ((), (2,)):
        raise InputError("a seed is one or two integers of at most 64 bits, or None for a new one")
    values = tf.cast(values, tf.int64)
    return values if values.shape.rank else tf.stack([values, tf.zeros_like(values)])
