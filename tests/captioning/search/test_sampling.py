"""Sampled captions against exact probabilities, and log-probabilities against teacher forcing."""

import itertools
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import ObjectRelationTransformer, SoftAttention, UpDown
from tfsparsecap.captioning.models.captioner_base import END, PAD, START, Captioner
from tfsparsecap.captioning.search.beam_search import beam_search
from tfsparsecap.captioning.search.sampling import Sampler, sample
from tfsparsecap.errors import InputError

LENGTH = 3
COUNT = 20_000
SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_p": 0.6},
    {"top_p": 0.9, "temperature": 1.5},
    {"top_k": 4, "top_p": 0.7},
    {"top_k": 100, "top_p": 1.0},
]
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


class Chain(Captioner):
    """A Markov chain: the next word depends only on the previous one. Counts its calls."""

    def __init__(self, logits, **kwargs):
        super().__init__(len(logits), **kwargs)
        self.table = tf.constant(logits, tf.float32)
        self.encoded, self.steps = tf.Variable(0, trainable=False), tf.Variable(0, trainable=False)

    def encode(self, inputs, training=False):
        self.encoded.assign_add(tf.shape(inputs["features"])[0])
        return {"features": inputs["features"]}

    def initial_state(self, memory):
        return {"nothing": memory["features"][:, 0, 0]}

    def step(self, token_ids, state, memory, training=False):
        self.steps.assign_add(1)
        return tf.gather(self.table, token_ids), state


def table(size=6, seed=4):
    return np.random.default_rng(seed).normal(size=(size, size)).astype("float32")


def features(batch, seed=2):
    return {"features": np.random.default_rng(seed).normal(size=(batch, 4, 7)).astype("float32")}


def log_softmax(x):
    x = np.asarray(x, "float64")
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def word_chances(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution of one token, float64 [V], computed token by token."""
    chances = np.exp(log_softmax(logits / temperature))
    order = sorted(range(len(chances)), key=lambda word: -chances[word])[:top_k]
    total = sum(chances[word] for word in order)
    nucleus, reached = [], 0.0
    for word in order:
        nucleus.append(word)
        reached += chances[word] / total
        if top_p is not None and reached >= top_p:
            break
    result = np.zeros(len(chances))
    result[nucleus] = chances[nucleus] / chances[nucleus].sum()
    return result


def caption_chances(logits, length, **settings):
    """Every caption that can be sampled, padded, with its probability."""
    result = {}
    for words in itertools.product(range(len(logits)), repeat=length):
        ended = words.index(END) + 1 if END in words else length
        chance, last = 1.0, START
        for word in words[:ended]:
            chance *= word_chances(logits[last], **settings)[word]
            last = word
        if chance:
            result[(*words[:ended], *[PAD] * (length - ended))] = chance
    return result


def assert_sampled_from(drawn, chances):
    """Pearson's chi-squared test with a bound of five deviations; rare captions are counted together."""
    counts, total = Counter(drawn), len(drawn)
    assert set(counts) <= set(chances)
    common = [caption for caption in chances if chances[caption] * total >= 10]
    observed = np.array([counts[caption] for caption in common] + [0.0])
    expected = np.array([chances[caption] * total for caption in common] + [0.0])
    observed[-1], expected[-1] = total - observed.sum(), total - expected.sum()
    # Drop the rest if its expected count is too small to divide by.
    observed, expected = observed[expected > 1], expected[expected > 1]
    distance = ((observed - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert distance <= freedom + 5 * np.sqrt(2 * freedom)


def make(vocabulary_size=15, kind="lstm"):
    """A captioner with large weights, so that captions differ and end at different lengths."""
    keras.utils.set_random_seed(1)
    sizes = {"embedding_size": 6, "rnn_size": 8, "attention_size": 5, "feature_size": 7}
    if kind == "up_down":
        captioner = UpDown(vocabulary_size, **sizes)
    elif kind == "transformer":
        captioner = ObjectRelationTransformer(vocabulary_size, size=8, heads=2, layers=2, feature_size=7)
    else:
        captioner = SoftAttention(vocabulary_size, cell=kind, **sizes)
    for weight in captioner.weights:
        weight.assign(keras.random.normal(weight.shape, stddev=0.7))
    # Makes some captions end.
    bias = captioner.output_layer.bias
    bias.assign_add(tf.one_hot(END, vocabulary_size))
    return captioner


def forced_log_probabilities(captioner, inputs, token_ids):
    """Teacher forcing of sampled captions [B, S, T], as a tensor: 0 after the end token."""
    batch, samples, length = token_ids.shape
    ids = np.asarray(token_ids).reshape(batch * samples, length)
    tokens = np.concatenate([np.full((len(ids), 1), START, "int32"), ids[:, :-1]], axis=1)
    repeated = {name: np.repeat(value, samples, axis=0) for name, value in inputs.items()}
    logits = captioner({**repeated, "tokens": tokens})
    picked = tf.gather(tf.nn.log_softmax(logits), ids, batch_dims=2)
    counts = np.cumsum(ids == END, axis=1) - (ids == END) == 0
    return tf.reshape(tf.where(counts, picked, 0.0), token_ids.shape)


@every_setting
def test_frequencies_of_captions_match_their_probabilities(settings):
    logits = table()
    token_ids, _ = sample(Chain(logits), features(4), COUNT // 4, LENGTH, seed=7, **settings)
    captions = [tuple(words) for words in token_ids.numpy().reshape(COUNT, LENGTH).tolist()]
    chances = caption_chances(logits, LENGTH, **settings)
    assert_sampled_from(captions, chances)
    assert {words for words, chance in chances.items() if chance * COUNT > 20} <= set(captions)


def test_images_samples_and_positions_are_independent():
    # One distribution everywhere and no end token: the probability of a pair is a product.
    chances = np.array([0.3, 0.2, 0.0, 0.25, 0.25])
    with np.errstate(divide="ignore"):
        captioner = Chain(np.tile(np.log(chances), (5, 1)))
    token_ids = sample(captioner, features(2), COUNT, 2, seed=3)[0].numpy()
    pairs = {(a, b): chances[a] * chances[b] for a in range(5) for b in range(5) if chances[a] * chances[b]}
    for first, second in (
        (token_ids[0, :, 0], token_ids[1, :, 0]),
        (token_ids[0, :-1, 0], token_ids[0, 1:, 0]),
        (token_ids[0, :, 0], token_ids[0, :, 1]),
        (token_ids[0, :-1, 1], token_ids[0, 1:, 0]),
    ):
        assert_sampled_from(list(zip(first.tolist(), second.tolist(), strict=True)), pairs)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"top_k": 3}, {0, 1, 3}),
        # Seven words of probability 1/8, and two that share the last eighth.
        ({"top_p": 0.5}, {0, 1, 3, 4}),
        ({"top_p": 0.501}, {0, 1, 3, 4, 5}),
        ({"top_p": 0.875}, {0, 1, 3, 4, 5, 6, 7}),
        ({"top_p": 0.9}, {0, 1, 3, 4, 5, 6, 7, 8}),
        ({"top_p": 1e-9}, {0}),
        # Half of the top_k tokens' mass, not of all.
        ({"top_k": 4, "top_p": 0.5}, {0, 1}),
        ({"top_k": 4, "top_p": 0.6}, {0, 1, 3}),
        ({}, set(range(9)) - {END} | {9}),
    ],
    ids=str,
)
def test_exactly_the_allowed_tokens_are_sampled(settings, words):
    chances = np.array([2, 2, 0, 2, 2, 2, 2, 2, 1, 1]) / 16
    with np.errstate(divide="ignore"):
        captioner = Chain(np.tile(np.log(chances), (10, 1)))
    token_ids, _ = sample(captioner, features(1), 2000, 1, seed=1, **settings)
    assert set(token_ids.numpy().ravel().tolist()) == words


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru", "up_down", "transformer"])
def test_log_probabilities_equal_teacher_forcing(kind):
    captioner, inputs = make(kind=kind), features(3)
    if kind == "transformer":
        corners = np.sort(np.random.default_rng(3).uniform(size=(3, 4, 2, 2)), axis=2)
        inputs["boxes"] = corners.reshape(3, 4, 4).astype("float32")
    token_ids, log_probabilities = sample(captioner, inputs, 12, 10, temperature=1.3, top_k=10, seed=1)
    np.testing.assert_allclose(
        log_probabilities, forced_log_probabilities(captioner, inputs, token_ids), rtol=1e-4, atol=1e-5
    )
    ids = token_ids.numpy()
    ended = np.cumsum(ids == END, axis=2) - (ids == END) > 0
    assert ended.any() and np.all(ids[ended] == PAD) and np.all(log_probabilities.numpy()[ended] == 0)
    assert len({tuple(words) for words in ids[0].tolist()}) > 1


@pytest.mark.slow
def test_gradients_of_log_probabilities_equal_teacher_forcing():
    captioner, inputs = make(), features(2)

    @tf.function(autograph=False)
    def drawn(features):
        with tf.GradientTape() as tape:
            token_ids, log_probabilities = sample(captioner, {"features": features}, 3, 6, seed=1)
            total = tf.reduce_sum(log_probabilities)
        return token_ids, tape.gradient(total, captioner.trainable_variables)

    token_ids, gradients = drawn(inputs["features"])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(forced_log_probabilities(captioner, inputs, token_ids))
    for gradient, expected in zip(
        gradients, tape.gradient(total, captioner.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), tf.convert_to_tensor(expected), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("temperature", [1e-4, 1e-45, 1e-300])
def test_very_low_temperatures_are_greedy(temperature):
    captioner, inputs = make(), features(4)
    token_ids, log_probabilities = sample(captioner, inputs, 3, 8, temperature=temperature)
    expected, scores = beam_search(captioner, inputs, 1, 8)
    np.testing.assert_array_equal(token_ids, np.repeat(expected, 3, axis=1))
    np.testing.assert_allclose(
        log_probabilities.numpy().sum(2), np.repeat(scores, 3, axis=1), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_equal_seeds_give_equal_captions_and_other_seeds_do_not():
    captioner, inputs = make(), features(3)

    def draw(seed):
        return sample(captioner, inputs, 5, 6, seed=seed)[0].numpy().tolist()

    same = [3, np.int64(3), (3, 0), [3, 0], np.array([3, 0]), tf.constant(3), tf.constant([3, 0], tf.int64)]
    first, others = draw(3), [4, -3, (0, 3), (3, 1), 3 + 2**32, 3 + 2**62, 2**64 - 1, None, None]
    assert all(draw(seed) == first for seed in same)
    drawn = [first, *map(draw, others)]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@pytest.mark.slow
def test_graphs_of_unknown_batch_size_equal_eager_mode():
    captioner, inputs = make(), features(4)

    @tf.function(input_signature=[tf.TensorSpec((None, 4, 7)), tf.TensorSpec((), tf.int32)], autograph=False)
    def graph(features, seed):
        return sample(captioner, {"features": features}, 3, LENGTH, top_p=0.9, seed=seed)

    for batch in (4, 1):
        part = {"features": inputs["features"][:batch]}
        expected, values = sample(captioner, part, 3, LENGTH, top_p=0.9, seed=batch)
        token_ids, log_probabilities = graph(part["features"], batch)
        np.testing.assert_array_equal(token_ids, expected)
        np.testing.assert_allclose(log_probabilities, values, atol=1e-5)
    assert graph(np.zeros((0, 4, 7), "float32"), 1)[0].shape == (0, 3, LENGTH)


def sentence(*words, size=10):
    """Logits of a chain that generates these words in order."""
    logits = np.full((size, size), -30.0)
    for last, word in itertools.pairwise(words):
        logits[last, word] = 30.0
    return logits


def test_stops_when_all_captions_have_ended_and_encodes_an_image_once():
    captioner = Chain(sentence(START, 7, 8, END, 9))
    token_ids, log_probabilities = sample(captioner, features(3), 4, 20, seed=1)
    np.testing.assert_array_equal(token_ids, np.tile([7, 8, END] + [PAD] * 17, (3, 4, 1)))
    np.testing.assert_allclose(log_probabilities, 0.0, atol=1e-5)
    assert (int(captioner.steps), int(captioner.encoded)) == (3, 3)
    other = Chain(sentence(9, 7, 8, 4, 5), start_id=9, end_id=4, pad_id=6)
    token_ids, _ = sample(other, features(2), 2, 5, seed=1)
    np.testing.assert_array_equal(token_ids, np.tile([7, 8, 4, 6, 6], (2, 2, 1)))


def test_logits_of_nan_still_give_valid_tokens():
    for settings in ({}, {"top_k": 3}, {"top_p": 0.5}):
        token_ids, log_probabilities = sample(
            Chain(np.full((6, 6), np.nan)), features(2), 3, 4, seed=1, **settings
        )
        assert set(token_ids.numpy().ravel().tolist()) <= set(range(6)) and np.isnan(log_probabilities).any()


def test_mixed_precision():
    captioner = SoftAttention(15, feature_size=7, rnn_size=8, dtype="mixed_bfloat16")
    assert sample(captioner, features(2), 3, LENGTH, top_p=0.8)[1].dtype == tf.float32


@pytest.mark.slow
def test_sampler_returns_scores_and_the_best_caption_first():
    captioner, inputs = make(), features(3)
    draw = Sampler(captioner, 6, 8, top_p=0.95, seed=2)
    # Inputs that the captioner does not use are ignored.
    token_ids, scores = draw({**inputs, "index": np.arange(3), "name": np.array(["a", "b", "c"])})
    assert token_ids.shape == (3, 6, 8) and token_ids.dtype == tf.int32
    assert scores.shape == (3, 6) and scores.dtype == tf.float32
    forced = forced_log_probabilities(captioner, inputs, token_ids)
    np.testing.assert_allclose(scores, forced.numpy().sum(2), rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(scores, axis=1) <= 0) and np.any(np.diff(scores, axis=1) < 0)
    assert draw(features(1))[1].shape == (1, 6)


def test_sampler_uses_its_settings():
    logits = table()
    for settings in ({"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.6}):
        token_ids, _ = Sampler(Chain(logits), COUNT, 1, seed=1, **settings)(features(1))
        chances = word_chances(logits[START], **settings)
        drawn = token_ids.numpy().ravel().tolist()
        assert_sampled_from(drawn, {word: chances[word] for word in np.flatnonzero(chances).tolist()})


@pytest.mark.slow
def test_calls_of_a_sampler_differ_and_another_sampler_with_the_same_seed_repeats_them():
    captioner, inputs = make(), features(2)

    def calls(draw):
        return [draw(inputs)[0].numpy().tolist() for _ in range(3)]

    for seed in (5, None):
        first = calls(Sampler(captioner, 4, 6, seed=seed))
        assert first[0] != first[1] != first[2] != first[0]
        assert (calls(Sampler(captioner, 4, 6, seed=seed)) == first) == (seed is not None)
    # The same inside another graph.
    draw = Sampler(captioner, 4, 6, seed=5)
    inside = tf.function(lambda: draw(inputs), autograph=False)
    assert [inside()[0].numpy().tolist() for _ in range(3)] == calls(Sampler(captioner, 4, 6, seed=5))


@pytest.mark.parametrize(
    ("name", "message", "values"),
    [
        ("samples", "samples is", [0, -1, 2.5, None]),
        ("max_length", "max_length is", [0, 1.5]),
        ("temperature", "temperature is", [0, -1.0, float("nan"), float("inf"), None]),
        ("top_k", "top_k is", [0, "5", 2.5]),
        ("top_p", "top_p is", [0.0, 1.01, float("nan"), "1"]),
        ("seed", "one or two integers", [(1, 2, 3), [1, [2, 3]], 1.5, 2**64, tf.constant([1.0, 2.0])]),
    ],
)
def test_wrong_arguments_are_rejected(name, message, values):
    for value in values:
        arguments = {"samples": 2, "max_length": 5, name: value}
        with pytest.raises(InputError, match=message):
            sample(Chain(table()), features(1), **arguments)
        with pytest.raises(InputError, match=message):
            Sampler(Chain(table()), **arguments)
