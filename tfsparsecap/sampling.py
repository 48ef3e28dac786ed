"""From a captioner to drawn captions: plain, top-k and nucleus sampling as one graph, for any `Captioner`.

Unlike `decoding`, nothing of this is exported: it is for training on rewards, and for looking at what a
captioner would say besides its best caption.
"""

import math
from numbers import Integral, Real

import numpy as np
import tensorflow as tf

from tfsparsecap.decoding import _length, _repeat, check_length
from tfsparsecap.errors import InputError
from tfsparsecap.gates import sample_gates_once
from tfsparsecap.models.captioner import Captioner

Seed = int | tuple[int, int] | tf.Tensor | None

# So many words are sorted first to find a nucleus, and all only where these do not do: sorting 10 000 takes
# four times as long as all the rest of a step.
_FEW = 256


def sample(
    captioner: Captioner,
    inputs: dict,
    samples: int,
    max_length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: Seed = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`samples` captions of every image, drawn word by word; the image is encoded once.

    A word is drawn from `softmax(logits / temperature)`. With `top_k`, only from the `top_k` most probable
    words of it; with `top_p`, only from the smallest set of most probable words whose probabilities reach
    `top_p` together. With both, `top_k` goes first and `top_p` is of what it leaves, scaled to 1 again.

    All draws are independent, and two captions of an image may be equal. Runs eagerly or inside
    `tf.function`; in a graph it stops as soon as every caption has ended. Layers run as in inference: no
    dropout, gates rounded.

    Args:
        captioner: any built `Captioner`.
        inputs: what `captioner.encode` takes, leading axis B (may be unknown in a graph).
        samples: captions of an image, at least 1.
        max_length: words of a caption at most, the end token included.
        temperature: above 0; below 1 draws likely words more often, towards 0 only the likeliest.
        top_k: words to draw from, at least 1; None is all.
        top_p: share of the probability to draw from, above 0, at most 1; None, as 1, is all.
        seed: one integer (the same as with a 0 after it), two, or a tensor of them. The same seed draws the
            same captions on the same kind of device; replicas of a `tf.distribute` strategy need one each.
            None takes a fresh one at each call, in a graph at each run, from the generator that
            `tf.random.set_seed` sets.

    Returns:
        `(token_ids, log_probabilities)`: int32 [B, samples, max_length] without the start token and with
        `pad_id` after the end token; float32 [B, samples, max_length], of each word that was drawn, the end
        token included, and 0 after it. They are those of the captioner itself, `log_softmax(logits)`,
        whatever `temperature`, `top_k` and `top_p` are: their sum is the score that `beam_search` gives the
        caption. They are not, unless these three are left as they are, those of the distribution that was
        drawn from. They can be differentiated with respect to the captioner's weights; the draw cannot.

    Raises:
        InputError: for an argument out of its range, or a seed of another form.

    Reference:
        Top-k: Fan et al., "Hierarchical Neural Story Generation", https://arxiv.org/abs/1805.04833. Top-p:
        Holtzman et al., "The Curious Case of Neural Text Degeneration", https://arxiv.org/abs/1904.09751.

    Example:
        >>> from tfsparsecap.models import SoftAttention
        >>> captioner, features = SoftAttention(100, feature_size=8), tf.zeros((2, 4, 8))
        >>> token_ids, log_probabilities = sample(captioner, {"features": features}, 5, 6, top_p=0.9, seed=1)
        >>> token_ids.shape, log_probabilities.shape
        (TensorShape([2, 5, 6]), TensorShape([2, 5, 6]))
    """
    _check(samples, max_length, temperature, top_k, top_p)
    check_length(captioner, max_length)
    seed = _as_seed(seed)
    # A gated weight is masked once, before the loop, not at every word.
    with sample_gates_once(captioner, training=False):
        memory = captioner.encode(inputs, training=False)
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

        def proceed(loop):
            return (loop["position"] < max_length) & ~tf.reduce_all(loop["ended"])

        def advance(loop):
            position, ended = loop["position"], loop["ended"]
            logits, state = captioner.step(loop["last"], loop["state"], memory, training=False)
            words = _drawn_words(logits, tf.random.fold_in(seed, position), temperature, top_k, top_p)
            drawn_logits = tf.gather(logits, words, batch_dims=1)
            log_chances = tf.where(ended, 0.0, drawn_logits - tf.reduce_logsumexp(logits, axis=1))
            last = tf.where(ended, captioner.pad_id, words)
            here = tf.range(max_length) == position
            following = {
                "position": position + 1,
                "last": last,
                "ended": ended | (last == captioner.end_id),
                "token_ids": tf.where(here, last[:, None], loop["token_ids"]),
                "log_probabilities": tf.where(here, log_chances[:, None], loop["log_probabilities"]),
                "state": state,
            }
            # A loop's shapes must stay the same, and a step may know less of them.
            tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), following, loop)
            return [following]

        (loop,) = tf.while_loop(proceed, advance, [loop])
    shape = [batch, samples, max_length]
    return tf.reshape(loop["token_ids"], shape), tf.reshape(loop["log_probabilities"], shape)


class Sampler:
    """A captioner's sampling, compiled once and called with batch after batch in the place of a `Decoder`.

    Args:
        captioner: any built `Captioner`.
        samples, max_length, temperature, top_k, top_p: see `sample`.
        seed: see `sample`; None takes a fresh one for this sampler. Each call goes on from the one before,
            so that batches get draws of their own; another sampler with the same seed repeats them all.

    Raises:
        InputError: as `sample`.

    Example:
        >>> from tfsparsecap.models import SoftAttention
        >>> draw = Sampler(SoftAttention(100, feature_size=8), samples=5, max_length=6, top_k=10)
        >>> token_ids, scores = draw({"features": tf.zeros((2, 4, 8))})
    """

    def __init__(
        self,
        captioner: Captioner,
        samples: int = 1,
        max_length: int = 20,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: Seed = None,
    ):
        _check(samples, max_length, temperature, top_k, top_p)
        self.captioner, self.samples, self.max_length = captioner, samples, max_length
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.seed = _as_seed(seed)
        # A variable, so that calls count inside somebody else's `tf.function`, too.
        self._calls = tf.Variable(
            0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, name="calls"
        )
        self._sample = tf.function(self._draw, reduce_retracing=True, autograph=False)

    def __call__(self, inputs: dict) -> tuple[tf.Tensor, tf.Tensor]:
        """Drawn captions of a batch; what is not in `captioner.input_names` is left out of the graph.

        Returns:
            `(token_ids, scores)`, best first: int32 [B, samples, max_length] as of `sample`; float32
            [B, samples], the sums of its log-probabilities.
        """
        return self._sample({name: inputs[name] for name in self.captioner.input_names if name in inputs})

    def _draw(self, inputs):
        token_ids, log_probabilities = sample(
            self.captioner,
            inputs,
            self.samples,
            self.max_length,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=tf.random.fold_in(self.seed, self._calls.assign_add(1)),
        )
        scores, order = tf.math.top_k(tf.reduce_sum(log_probabilities, axis=2), k=self.samples)
        return tf.gather(token_ids, order, batch_dims=1), scores


def _drawn_words(
    logits: tf.Tensor, seed: tf.Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> tf.Tensor:
    """One word, int32 [R], for each row of logits [R, V]."""
    # With the largest at 0, a low temperature sends the others to -inf and leaves it where it is. What is
    # far beyond these bounds would be 0 or infinite in float32, and 0 / 0 no number.
    logits -= tf.reduce_max(logits, axis=1, keepdims=True)
    logits /= min(max(temperature, 1e-37), 1e37)
    words = None
    if top_k is not None and top_k < logits.shape[1]:
        logits, words = tf.math.top_k(logits, k=top_k)
    picked = _pick(logits, seed) if top_p is None or top_p >= 1 else _pick_from_nucleus(logits, seed, top_p)
    return picked if words is None else tf.gather(words, picked, batch_dims=1)


def _pick(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """An index, int32 [R], into each row of logits [R, N], as probable as they say."""
    picked = tf.random.stateless_categorical(logits, 1, seed, dtype=tf.int32)[:, 0]
    # A row that is not finite gives N, which is no index.
    return tf.minimum(picked, logits.shape[1] - 1)


def _pick_from_nucleus(logits: tf.Tensor, seed: tf.Tensor, top_p: float) -> tf.Tensor:
    """`_pick` among the fewest most probable whose probabilities reach `top_p`; the largest logit is 0."""
    size = logits.shape[1]
    # In double precision, or the tail of a large vocabulary gets lost in the sums.
    total = tf.reduce_sum(tf.exp(tf.cast(logits, tf.float64)), axis=1, keepdims=True)

    def largest(count):
        found, indices = tf.math.top_k(logits, k=count)
        return found, indices, tf.cumsum(tf.exp(tf.cast(found, tf.float64)) / total, axis=1)

    def pick(found, indices, reached):
        # A word is kept where those before it do not reach top_p yet: the first one always is.
        before = tf.pad(reached[:, :-1], [[0, 0], [1, 0]])
        picked = _pick(tf.where(before < top_p, found, -math.inf), seed)
        return tf.gather(indices, picked, batch_dims=1)

    few = largest(min(_FEW, size))
    if size <= _FEW:
        return pick(*few)
    enough = tf.reduce_all(few[2][:, -1] >= top_p)
    return tf.cond(enough, lambda: pick(*few), lambda: pick(*largest(size)))


def _check(samples, max_length, temperature, top_k, top_p) -> None:
    """Raises `InputError` for the first setting of `sample` that is out of its range."""
    for name, value in (("samples", samples), ("max_length", max_length), ("top_k", top_k)):
        if (name, value) != ("top_k", None) and not (isinstance(value, Integral) and value >= 1):
            raise InputError(f"{name} is {value!r}: give a whole number of at least 1")
    if not (isinstance(temperature, Real) and 0 < temperature < math.inf):
        raise InputError(f"temperature is {temperature!r}: give a number above 0 (1 is the captioner's own)")
    if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
        raise InputError(f"top_p is {top_p!r}: give a number above 0 and at most 1")


def _as_seed(seed: Seed) -> tf.Tensor:
    """The two integers that a stateless draw takes."""
    if seed is None:
        return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)
    if not tf.is_tensor(seed):
        try:
            seed = np.asarray(seed)
        except ValueError:  # a list of lists of several lengths
            seed = np.asarray(None)
    whole = seed.dtype.is_integer if tf.is_tensor(seed) else seed.dtype.kind in "iu"
    if not whole or tuple(seed.shape) not in ((), (2,)):
        raise InputError("a seed is one or two integers of at most 64 bits, or None for a fresh one")
    seed = tf.cast(seed, tf.int64)
    return seed if seed.shape.rank else tf.stack([seed, tf.zeros_like(seed)])
