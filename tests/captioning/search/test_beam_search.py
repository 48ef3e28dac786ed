"""Greedy and beam search against NumPy and exhaustive search; tests/export compares exported files."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import SoftAttention, UpDown
from tfsparsecap.captioning.models.captioner_base import END, PAD, START, Captioner
from tfsparsecap.captioning.search.beam_search import Decoder, beam_search
from tfsparsecap.errors import InputError

LENGTH = 5


def make(vocabulary_size, seed=1, cell="gru", spread=1.5):
    """A captioner with large weights, so that captions differ and end at different lengths."""
    keras.utils.set_random_seed(seed)
    captioner = SoftAttention(
        vocabulary_size, cell=cell, embedding_size=6, rnn_size=8, attention_size=5, feature_size=7
    )
    for weight in captioner.weights:
        weight.assign(keras.random.normal(weight.shape, stddev=spread))
    return captioner


def features(batch, seed=2):
    return {"features": np.random.default_rng(seed).normal(size=(batch, 4, 7)).astype("float32")}


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def numpy_beam_search(captioner, inputs, beam, max_length):
    """One image, hypotheses as a Python list: [(score, words, state, ended)]."""
    memory = captioner.encode(inputs)
    hypotheses = [(0.0, [], captioner.initial_state(memory), False)]
    for _ in range(max_length):
        grown = []
        for score, words, state, ended in hypotheses:
            if ended:
                grown.append((score, words, state, True))
                continue
            last = np.array([words[-1] if words else captioner.start_id], "int32")
            logits, after = captioner.step(last, state, memory)
            for word, value in enumerate(log_softmax(np.asarray(logits, "float64"))[0]):
                grown.append((score + value, [*words, word], after, word == captioner.end_id))
        hypotheses = sorted(grown, key=lambda hypothesis: -hypothesis[0])[:beam]
    ids = [words + [captioner.pad_id] * (max_length - len(words)) for _, words, _, _ in hypotheses]
    return np.array(ids), np.array([hypothesis[0] for hypothesis in hypotheses])


def all_captions(captioner, inputs, max_length):
    """Every caption of at most `max_length` words with its score by teacher forcing, best first."""
    vocabulary = range(captioner.vocabulary_size)
    captions = {
        words[: words.index(END) + 1] if END in words else words
        for words in itertools.product(vocabulary, repeat=max_length)
    }
    captions = sorted(captions)
    ids = np.array([[*words, *[PAD] * (max_length - len(words))] for words in captions], "int32")
    tokens = np.concatenate([np.full((len(ids), 1), START, "int32"), ids[:, :-1]], axis=1)
    repeated = np.repeat(inputs["features"], len(ids), axis=0)
    logprobs = log_softmax(np.asarray(captioner({"features": repeated, "tokens": tokens}), "float64"))
    picked = np.take_along_axis(logprobs, ids[..., None].astype(int), axis=2)[..., 0]
    lengths = np.array([len(words) for words in captions])
    scores = np.where(np.arange(max_length) < lengths[:, None], picked, 0.0).sum(1)
    order = np.argsort(-scores)
    return ids[order], scores[order]


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_beam_search_equals_numpy(beam, cell):
    captioner, inputs = make(15, cell=cell), features(3)
    token_ids, scores = Decoder(captioner, beam, 8)(inputs)
    assert token_ids.shape == (3, beam, 8) and token_ids.dtype == tf.int32
    assert scores.shape == (3, beam) and scores.dtype == tf.float32
    for image in range(3):
        ids, values = numpy_beam_search(captioner, {"features": inputs["features"][image, None]}, beam, 8)
        np.testing.assert_array_equal(token_ids[image], ids)
        np.testing.assert_allclose(scores[image], values, rtol=1e-5, atol=1e-4)


def test_a_wide_beam_finds_the_best_of_all_captions():
    captioner, inputs = make(5), features(1)
    ids, scores = all_captions(captioner, inputs, 4)
    # The beam is wider than the number of captions: the search is exhaustive, and some beams are empty.
    token_ids, beam_scores = Decoder(captioner, len(ids) + 3, 4)(inputs)
    np.testing.assert_allclose(beam_scores[0, : len(ids)], scores, atol=1e-4)
    assert {tuple(words) for words in token_ids[0, : len(ids)].numpy()} == {tuple(words) for words in ids}
    np.testing.assert_array_equal(token_ids[0, 0], ids[0])
    np.testing.assert_array_equal(token_ids[0, len(ids) :], np.full((3, 4), PAD))
    assert np.all(np.isneginf(beam_scores[0, len(ids) :]))


def test_scores_equal_teacher_forcing_and_are_sorted():
    captioner, inputs = make(12), features(6)
    token_ids, scores = Decoder(captioner, 4, 7)(inputs)
    ids = token_ids.numpy().reshape(24, 7)
    tokens = np.concatenate([np.full((24, 1), START, "int32"), ids[:, :-1]], axis=1)
    logits = captioner({"features": np.repeat(inputs["features"], 4, axis=0), "tokens": tokens})
    picked = np.take_along_axis(log_softmax(np.asarray(logits)), ids[..., None], axis=2)[..., 0]
    before_end = np.cumsum(ids == END, axis=1) - (ids == END) == 0
    np.testing.assert_allclose(
        np.where(before_end, picked, 0).sum(1), scores.numpy().reshape(-1), rtol=1e-5, atol=1e-4
    )
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert np.all(ids[~before_end] == PAD)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_other_inputs_reach_the_captioner():
    keras.utils.set_random_seed(3)
    captioner = UpDown(30, embedding_size=8, rnn_size=8, attention_size=8, feature_size=6)
    rng = np.random.default_rng(0)
    regions = rng.normal(size=(2, 4, 6)).astype("float32")
    decode = Decoder(captioner, 2, 5)
    _, plain = decode({"features": regions})
    _, mean = decode({"features": regions, "pooled": regions.mean(1), "name": tf.constant(["a", "b"])})
    np.testing.assert_allclose(plain, mean, atol=1e-5)
    _, other = decode({"features": regions, "pooled": 10 * regions.mean(1)})
    assert np.abs(plain - other).max() > 1e-3
    _, masked = decode({"features": regions, "mask": np.array([[1, 1, 0, 0]] * 2, bool)})
    _, fewer = decode({"features": regions[:, :2]})
    np.testing.assert_allclose(masked, fewer, atol=1e-5)


class Scripted(Captioner):
    """Generates one fixed sentence and counts its steps."""

    def __init__(self, sentence, **kwargs):
        super().__init__(10, **kwargs)
        self.sentence, self.steps = tf.constant(sentence), tf.Variable(0, trainable=False)

    def encode(self, inputs, training=False):
        return {"features": inputs["features"]}

    def initial_state(self, memory):
        return {"position": tf.zeros_like(memory["features"][:, 0, 0], tf.int32)}

    def step(self, token_ids, state, memory, training=False):
        self.steps.assign_add(1)
        logits = 20.0 * tf.one_hot(tf.gather(self.sentence, state["position"]), self.vocabulary_size)
        return logits, {"position": state["position"] + 1}


def test_stops_when_all_captions_have_ended():
    captioner = Scripted([7, 8, END] + [9] * 20)
    token_ids, _ = Decoder(captioner, 1, 20)(features(3))
    np.testing.assert_array_equal(token_ids[1, 0], [7, 8, END] + [PAD] * 17)
    assert int(captioner.steps) == 3


def test_other_special_ids():
    captioner = Scripted([7, 8, 4, 9, 9, 9], start_id=9, end_id=4, pad_id=6)
    token_ids, _ = beam_search(captioner, features(2), 1, LENGTH)
    np.testing.assert_array_equal(token_ids[0, 0], [7, 8, 4, 6, 6])


@pytest.mark.slow
def test_graphs_of_unknown_batch_size_equal_eager_mode():
    captioner, inputs = make(15), features(4)
    signature = [tf.TensorSpec((None, 4, 7))]
    graph = tf.function(
        lambda features: beam_search(captioner, {"features": features}, 3, LENGTH), input_signature=signature
    )
    eager = beam_search(captioner, inputs, 3, LENGTH)
    for batch in (4, 1):
        token_ids, scores = graph(inputs["features"][:batch])
        np.testing.assert_array_equal(token_ids, eager[0][:batch])
        np.testing.assert_allclose(scores, eager[1][:batch], atol=1e-4)


def test_decoder_ignores_unknown_inputs_and_takes_any_batch_size():
    decode = Decoder(make(15), 2, LENGTH)
    all_ids, _ = decode({**features(4), "index": np.arange(4), "tokens": np.zeros((4, 2))})
    part, _ = decode({"features": features(4)["features"][:3]})
    np.testing.assert_array_equal(all_ids[:3], part)


def test_mixed_precision():
    captioner = SoftAttention(15, feature_size=7, rnn_size=8, dtype="mixed_bfloat16")
    token_ids, scores = Decoder(captioner, 3, LENGTH)(features(2))
    assert token_ids.shape == (2, 3, LENGTH) and scores.dtype == tf.float32


@pytest.mark.parametrize(("beam", "length"), [(0, 5), (2, 0), (-1, 5)])
def test_impossible_sizes_are_rejected(beam, length):
    with pytest.raises(InputError, match="at least 1"):
        beam_search(make(15), features(1), beam, length)


def test_a_beam_that_would_need_all_memory_is_rejected():
    with pytest.raises(InputError, match=r"beam is 1001.*at most 1000"):
        beam_search(make(15), features(1), 1001, 5)
