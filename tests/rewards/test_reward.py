"""Rewards of tokens: what is a word of them, in which weights, and with radix digits."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.data.radix import RadixTokenizer
from tfsparsecap.data.tokenizers import WordTokenizer
from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.models import SoftAttention
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.cider_d import CiderD
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies
from tfsparsecap.rewards.references import References
from tfsparsecap.rewards.reward import CaptionReward
from tfsparsecap.rewards.sentence_bleu import SentenceBleu
from tfsparsecap.sampling import Sampler

GROUPS = [[[4, 5, 6, 7, 8], [4, 5, 9]], [[8, 9, 10]], [[4, 7, 8, 9], [5]]]
IDS = {"end_id": 2, "pad_id": 0, "start_id": 1}
TOKENS = np.array(
    [
        [[4, 5, 6, 7, 2], [4, 5, 9, 2, 0]],
        [[8, 9, 2, 9, 10], [2, 0, 0, 0, 0]],
        [[4, 7, 8, 9, 5], [4, 0, 1, 7, 2]],
    ],
    np.int32,
)
CAPTIONS = [[4, 5, 6, 7], [4, 5, 9], [8, 9], [], [4, 7, 8, 9, 5], [4, 7]]
IMAGES = [0, 0, 1, 1, 2, 2]


def test_rewards_are_weighted_scores_of_words():
    references = References(GROUPS)
    cider = CiderD(references).score(CAPTIONS, IMAGES)
    bleu = SentenceBleu(references).score(CAPTIONS, IMAGES)
    assert (cider > 0).sum() == 5
    for weights, expected in (
        ({}, cider),
        ({"cider_d": 0.5, "bleu": (0, 0.1, 0, 2)}, 0.5 * cider + 0.1 * bleu[:, 1] + 2 * bleu[:, 3]),
        ({"cider_d": 0, "bleu": (1, 1, 1, 1)}, bleu.sum(axis=1)),
    ):
        reward = CaptionReward(references, **IDS, **weights)
        given = reward(tf.constant(TOKENS), tf.constant([0, 1, 2]))
        assert given.shape == (3, 2) and given.dtype == np.float64
        np.testing.assert_allclose(given.ravel(), expected, rtol=1e-12)
        np.testing.assert_array_equal(reward(TOKENS[:, 1], [0, 1, 2]), given[:, 1])
    assert reward(TOKENS[:0], []).shape == (0, 2)
    assert reward(np.zeros((3, 2, 0), int), [0, 1, 2]).max() < 1e-6


def test_the_end_is_a_word_where_asked():
    references = References(GROUPS, words=CaptionWords(end_id=2))
    ended = [[[*words, 2] for words in group] for group in GROUPS]
    by_hand = References(ended)
    captions = [[4, 5, 6, 7, 2], [4, 5, 9, 2], [8, 9, 2], [2], [4, 7, 8, 9, 5], [4, 7, 2]]
    given = CaptionReward(references, **IDS, bleu=(0, 0, 0, 1))(TOKENS, [0, 1, 2])
    expected = CiderD(by_hand).score(captions, IMAGES) + SentenceBleu(by_hand).score(captions, IMAGES)[:, 3]
    np.testing.assert_allclose(given.ravel(), expected, rtol=1e-12)
    # A caption that breaks off before its end gets less, which it does not without.
    cut = np.array([[[8, 9, 10, 2, 0], [8, 9, 10, 10, 10]]])[:, :, :3]
    whole = np.array([[8, 9, 10, 2]])
    with_end, without = CaptionReward(references, **IDS), CaptionReward(References(GROUPS), **IDS)
    assert with_end(whole, [1])[0] > with_end(cut, [1])[0, 0] + 1
    assert without(whole, [1])[0] == without(cut, [1])[0, 0]
    with pytest.raises(InputError, match="captions end with 3 and references with 2"):
        CaptionReward(references, end_id=3, pad_id=0)(TOKENS, [0, 1, 2])


@pytest.fixture(scope="module")
def tokenizers():
    words = WordTokenizer.from_captions(["a red dog runs on the green grass", "a cat sits on a mat"])
    return words, RadixTokenizer(words, base=3)


TEXTS = [["a red dog runs", "the dog runs"], ["a cat sits on a mat"], ["the green grass"]]
SAID = ["a dog runs on grass", "a cat on a mat", "zebra grass", "the red cat"]


def test_digits_are_rewarded_as_the_words_they_write(tokenizers):
    words, radix = tokenizers
    references = References(
        [[words.encode(tf.constant([one]))[0, 1:-1].numpy() for one in group] for group in TEXTS],
        words=CaptionWords(unknown_id=words.unknown_id),
    )
    special = {"end_id": words.end_id, "pad_id": words.pad_id, "start_id": words.start_id}
    plain = CaptionReward(references, **special)
    digits = CaptionReward(references, **special, to_words=radix.to_words)
    _, as_words = words.encode_padded(tf.constant(SAID), 8)
    _, as_digits = radix.encode_padded(tf.constant(SAID), 8 * radix.digits)
    images = [0, 1, 2, 0]
    assert radix.digits > 1 and plain(as_words, images).min() > 0
    np.testing.assert_array_equal(digits(as_digits, images), plain(as_words, images))


def test_texts_and_ids_of_their_vocabulary_are_rewarded_alike(tokenizers):
    words, _ = tokenizers
    texts = References(TEXTS, words=CaptionWords(words.vocabulary))
    special = {"end_id": words.end_id, "pad_id": words.pad_id, "start_id": words.start_id}
    _, tokens = words.encode_padded(tf.constant(SAID[:2]), 8)
    by_ids = CaptionReward(texts, **special)(tokens, [0, 1])
    by_texts = CaptionReward(texts, **special, to_words=lambda tokens: [words.decode(row) for row in tokens])(
        tokens, [0, 1]
    )
    np.testing.assert_array_equal(by_ids, by_texts)
    np.testing.assert_array_equal(by_ids, CiderD(texts).score(SAID[:2], [0, 1]))
    ends = References(TEXTS, words=CaptionWords(words.vocabulary, end_id=words.end_id))
    with pytest.raises(InputError, match="do not show whether captions have ended"):
        CaptionReward(ends, **special, to_words=lambda tokens: ["a"] * len(tokens))(tokens, [0, 1])


def test_what_samplers_and_decoders_give_is_rewarded():
    captioner = SoftAttention(12, feature_size=3, rnn_size=4, embedding_size=4, attention_size=4)
    inputs = {"features": tf.random.stateless_normal((3, 2, 3), (1, 2))}
    references = References(GROUPS, DocumentFrequencies.from_references([*GROUPS, [[11, 10]]]))
    reward = CaptionReward(
        references,
        end_id=captioner.end_id,
        pad_id=captioner.pad_id,
        start_id=captioner.start_id,
        bleu=(0, 0, 0, 1),
    )
    sampled, _ = Sampler(captioner, samples=4, max_length=6, seed=3)(inputs)
    greedy, _ = Decoder(captioner, beam=1, max_length=6)(inputs)
    rewards, baseline = reward(sampled, [0, 1, 2]), reward(greedy, [0, 1, 2])
    assert rewards.shape == (3, 4) and baseline.shape == (3, 1)
    row = sampled[0, 1].numpy().tolist()
    caption = [token for token in row[: row.index(2) if 2 in row else None] if token not in (0, 1)]
    one = CiderD(references).score([caption], [0])[0] + SentenceBleu(references).score([caption], [0])[0, 3]
    assert rewards[0, 1] == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "images", "message"),
    [
        ([4, 5], [0], r"tokens are \[2\]"),
        ([[4, 5]], [0, 1], r"images \[2\]"),
        ([[4, 5]], 0, r"images \[\]"),
        ([[[[4]]]], [0], r"tokens are \[1, 1, 1, 1\]"),
        ([[4.0, 5.0]], [0], "tokens are float64"),
        ([[4, -5]], [0], "the id -5"),
        ([[4, 5]], [3], "no image 3"),
    ],
)
def test_what_cannot_be_rewarded_is_said(tokens, images, message):
    with pytest.raises(InputError, match=message):
        CaptionReward(References(GROUPS), **IDS)(tokens, images)


@pytest.mark.parametrize(
    "weights",
    [{"cider_d": 0}, {"bleu": (1, 1)}, {"cider_d": float("nan")}, {"bleu": (0, 0, 0, float("inf"))}],
)
def test_weights_that_are_none(weights):
    with pytest.raises(InputError, match="the reward weighs"):
        CaptionReward(References(GROUPS), **IDS, **weights)
