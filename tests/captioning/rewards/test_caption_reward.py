"""Rewards of token ids with every kind of vocabulary, compared with the original scorer."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward, cider_d, sentence_bleu
from tfsparsecap.captioning.rewards.references import References
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.search.sampling import Sampler
from tfsparsecap.errors import InputError

from ..data.test_sentencepiece import UNIGRAM, WORD, model

CAPTIONS = [
    ("A dog runs on the grass.", "The dog is running"),
    ("Two cats sleep", "two CATS on a bed", "a bed with cats"),
    (),
    ("a red dog on a bed",),
]
NORMALISED = [
    ["a dog runs on the grass", "the dog is running"],
    ["two cats sleep", "two cats on a bed", "a bed with cats"],
    [],
    ["a red dog on a bed"],
]
WORDS = WordTokenizer.from_captions([caption for group in CAPTIONS for caption in group])
#: One sampled caption per image.
SAMPLED = ["the dog runs on the grass", "two cats on the grass", "a dog", "a red dog on a bed"]


def records(groups=CAPTIONS):
    return [Record(f"{n}.jpg", Path(f"{n}.jpg"), tuple(group), "train") for n, group in enumerate(groups)]


def tokens(tokenizer, captions, length=24):
    """Token ids as a captioner predicts them: without start, padded after the end."""
    return tokenizer.encode_padded(tf.constant(captions), length)[1].numpy()


def expected(cider=1.0, bleu_4=0.0, sampled=SAMPLED, groups=NORMALISED, images=range(4)):
    references = References(groups)
    return (
        cider * cider_d(references, sampled, images)
        + bleu_4 * sentence_bleu(references, sampled, images)[:, 3]
    )


def pieces(kind=WORD, words=WORDS.vocabulary[4:]):
    return SentencePieceTokenizer(model(kind, [f"▁{word}" for word in words]))


# Created in the test, because TensorFlow drops a SentencePiece model when another test clears the session.
KINDS = {
    "words": lambda: WORDS,
    "digits": lambda: RadixTokenizer(WORDS, 3),
    "pieces of words": pieces,
    "unigrams": lambda: pieces(UNIGRAM),
}


def test_rewards_equal_the_original_scorers(fixtures):
    fixture = json.loads((fixtures / "cider_d" / "expected.json").read_text(encoding="utf-8"))
    images = list(fixture["hypotheses"])
    groups = [fixture["references"][image] for image in images]
    sampled = [fixture["hypotheses"][image] for image in images]
    words = WordTokenizer.from_captions([*(text for group in groups for text in group), *sampled])
    for tokenizer in (words, RadixTokenizer(words, 7), pieces(words=words.vocabulary[4:])):
        reward = CaptionReward(records(groups), tokenizer)
        rewards = reward(tokens(tokenizer, sampled, 160), range(len(images)))
        np.testing.assert_allclose(rewards, fixture["cider_d"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_compare_words_with_every_kind_of_tokens(kind):
    tokenizer = KINDS[kind]()
    token_ids = tokens(tokenizer, SAMPLED, 40)
    # This unigram model has no capitals and no punctuation.
    groups = CAPTIONS if kind != "unigrams" else NORMALISED
    reward = CaptionReward(records(groups), tokenizer, cider_d=0.5, bleu_4=2.0)
    rewards = reward(tf.constant(np.stack([token_ids, token_ids[::-1]], axis=1)), tf.range(4))
    assert rewards.shape == (4, 2) and rewards.dtype == np.float64
    np.testing.assert_allclose(rewards[:, 0], expected(0.5, 2.0), atol=1e-9)
    np.testing.assert_allclose(rewards[:, 1], expected(0.5, 2.0, SAMPLED[::-1]), atol=1e-9)
    np.testing.assert_array_equal(reward(token_ids, range(4)), rewards[:, 0])
    assert rewards[3, 0] > rewards[0, 0] > 1
    assert reward(token_ids[:0, None], []).shape == (0, 1)


def test_tokens_after_the_end_and_special_tokens_do_not_count():
    reward = CaptionReward(records(), WORDS)
    (clean,) = tokens(WORDS, ["the dog is running"], 6)
    padded = np.array([[1, *clean[:2], 0, 1, *clean[2:5], 5, 6, 7]])
    assert reward(padded, [0])[0] == reward(clean[None], [0])[0] > 1


def test_an_image_without_captions_gets_no_reward():
    reward = CaptionReward(records(), WORDS, bleu_4=1.0)
    assert reward(tokens(WORDS, ["a dog", ""]), [2, 2]).max() < 1e-6
    assert reward.references.documents == 3
    with pytest.raises(InputError, match="there are no references"):
        CaptionReward(records([(), ()]), WORDS)


@pytest.mark.parametrize("kind", ["words", "digits", "pieces of words"])
def test_with_count_end_incomplete_captions_get_lower_rewards(kind):
    tokenizer = KINDS[kind]()
    sampled = ["the dog is running", "two cats", "", "a red dog"]
    token_ids = tokens(tokenizer, sampled, 40)
    cut = np.where(token_ids == tokenizer.end_id, tokenizer.pad_id, token_ids)
    counted = CaptionReward(records(), tokenizer, count_end=True)
    ended = [[f"{text} </s>" for text in group] for group in NORMALISED]
    rewards = counted(token_ids, range(4))
    np.testing.assert_allclose(
        rewards, expected(sampled=[f"{text} </s>" for text in sampled], groups=ended), atol=1e-9
    )
    if kind != "digits":  # words without an end are cut in the middle of a digit
        plain = CaptionReward(records(), tokenizer)
        np.testing.assert_array_equal(plain(token_ids, range(4)), plain(cut, range(4)))
        assert rewards[0] > counted(cut, range(4))[0] + 0.1


@pytest.mark.parametrize("kind", ["words", "digits", "pieces"])
def test_an_unknown_word_never_matches(kind):
    small = [word for word in WORDS.vocabulary[4:] if word not in ("dog", "red")]
    words = WordTokenizer([*WORDS.vocabulary[:4], *small])
    tokenizer = {"words": words, "digits": RadixTokenizer(words, 4), "pieces": pieces(words=small)}[kind]
    reward = CaptionReward(records(), tokenizer)
    token_ids = tokens(tokenizer, ["a dog on a bed", "a on a bed", "dog", "a dog red dog on a bed"])
    unknown, without, alone, twice = reward(token_ids, [3, 3, 3, 3])
    assert alone == 0
    # The expected score is that of a word which no reference contains.
    groups = [[text.replace("red dog", "1 2").replace("dog", "2") for text in group] for group in NORMALISED]
    if kind == "pieces":  # SentencePiece merges several unknown words in a row
        groups = [[text.replace("1 2", "2") for text in group] for group in groups]
    sampled = ["a ? on a bed", "a on a bed", "a ? on a bed" if kind == "pieces" else "a ? ? ? on a bed"]
    scores = expected(sampled=sampled, groups=groups, images=[3, 3, 3])
    np.testing.assert_allclose([unknown, without, twice], scores, atol=1e-9)


def test_outputs_of_samplers_and_decoders_are_rewarded():
    captioner = SoftAttention(len(WORDS), feature_size=3, rnn_size=4, embedding_size=4, attention_size=4)
    inputs = {"features": tf.random.stateless_normal((4, 2, 3), (1, 2))}
    reward = CaptionReward(records(), WORDS, bleu_4=1)
    sampled, _ = Sampler(captioner, samples=3, max_length=6, seed=3)(inputs)
    greedy, _ = Decoder(captioner, beam=1, max_length=6)(inputs)
    rewards = reward(sampled, range(4))
    assert rewards.shape == (4, 3) and reward(greedy, range(4)).shape == (4, 1)
    captions = [
        " ".join("?" if token == WORDS.unknown_id else WORDS.decode([token]) for token in row)
        for row in (row[: row.index(2)] if 2 in row else row for row in sampled[0].numpy().tolist())
    ]
    np.testing.assert_allclose(rewards[0], expected(1, 1, captions, images=[0] * 3), rtol=1e-12)


def random_texts(seed, images=80, words=12, longest=13):
    """One to five references per image and a caption of each: many short, repetitive or empty."""
    random = np.random.default_rng(seed)

    def words_of(length):
        return [f"w{number}" for number in random.integers(0, words, length)]

    references = [
        [words_of(random.integers(0, longest)) for _ in range(random.integers(1, 6))] for _ in range(images)
    ]
    captions = []
    for group in references:
        first, second = (group[random.integers(len(group))] for _ in range(2))
        cut = random.integers(0, 6)
        captions.append(first[:cut] + second[cut:] + words_of(random.integers(0, 3)))
    return [[" ".join(text) for text in group] for group in references], list(map(" ".join, captions))


def original_cider(references, captions):
    """pycocoevalcap's, whose CIDEr is CIDEr-D."""
    return Cider().compute_score(dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)})[
        1
    ]


def original_bleu(references, captions):
    arguments = dict(enumerate(references)), {n: [text] for n, text in enumerate(captions)}
    return np.array(Bleu(4).compute_score(*arguments, verbose=0)[1]).T


def test_cider_d_equals_the_original_scorers(fixtures):
    expected = json.loads((fixtures / "cider_d" / "expected.json").read_text(encoding="utf-8"))
    images = list(expected["hypotheses"])
    references = References([expected["references"][image] for image in images])
    scores = cider_d(references, [expected["hypotheses"][image] for image in images], range(len(images)))
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected["cider_d"], rtol=0, atol=1e-9)
    assert scores.mean() == pytest.approx(expected["cider_d_mean"], abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("words", [4, 12])
def test_scores_equal_pycocoevalcaps(seed, words):
    texts, captions = random_texts(seed, words=words)
    captions[0] = " ".join([captions[1] or "w1"] * 12)  # long and repetitive
    references = References(texts)
    expected = original_cider(texts, captions)
    np.testing.assert_allclose(cider_d(references, captions, range(80)), expected, atol=1e-9)
    assert (expected > 0.5).sum() > 20 and (expected < 0.1).any()
    expected = original_bleu(texts, captions)
    scores = sentence_bleu(references, captions, range(80))
    assert scores.shape == (80, 4)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
    assert (expected[:, 3] > 0.3).sum() > 10 and (expected[:, 3] < 1e-3).sum() > 10


@pytest.mark.parametrize("score", [cider_d, sentence_bleu])
def test_order_batches_and_several_captions_of_an_image_do_not_matter(score):
    texts, captions = random_texts(6, images=50)
    references = References(texts)
    together = score(references, captions, range(50))
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 3))
    np.testing.assert_allclose(
        score(references, [captions[image] for image in order], order), together[order], atol=1e-12
    )
    single = [score(references, [caption], [image])[0] for image, caption in enumerate(captions)]
    np.testing.assert_allclose(single, together, atol=1e-12)
    assert score(references, [], []).shape == (0, *together.shape[1:])


def test_cider_d_of_tiny_corpora_by_hand():
    # "a" is in both images, all else in one: weights are 0 and log 2, which cancels where all are equal.
    references = References([["a b c"], ["a d"]])
    # Of the words b and c the caption has b, of the bigrams "a b" and "b c" the first: one bigram fewer.
    expected = 10 * math.exp(-1 / 72) * (1 / math.sqrt(2) + 1 / math.sqrt(2)) / 4
    assert cider_d(references, ["a b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    # A repeated word counts once if the reference has it once, but twice in the caption's norm.
    expected = 10 * math.exp(-1 / 72) * (1 / (2 * math.sqrt(2))) / 4
    assert cider_d(references, ["b b"], [0])[0] == pytest.approx(expected, rel=1e-12)
    assert cider_d(references, ["a", "a a a"], [0, 1]).tolist() == [0.0, 0.0]

    # Three images; d is in two of them and weighs log 3 - log 2, e in one and weighs log 3.
    references = References([["d e", "e"], ["d"], ["f"]])
    d, e = math.log(3 / 2), math.log(3)
    similarity = e / math.hypot(d, e) * math.exp(-1 / 72), 1.0
    assert cider_d(references, ["e"], [0])[0] == pytest.approx(10 * sum(similarity) / 2 / 4, rel=1e-12)


def test_cider_d_of_captions_that_equal_their_only_reference():
    texts = ["a b c d", "e", "f g", "h i j", "k k k k k"]
    scores = cider_d(References([[text] for text in texts]), texts, range(5))
    # A quarter of 10 for each n-gram size that the caption has.
    np.testing.assert_allclose(scores, [10, 2.5, 5, 7.5, 10], rtol=1e-12)
    # The weight of n-grams in all images is 0, and so is every weight if there is only one image.
    for count in (1, 3):
        assert cider_d(References([["a b c d"]] * count), ["a b c d"], [0]).tolist() == [0.0]


def test_an_image_without_references_scores_0_and_is_not_a_document():
    with_empty, without = References([["a b"], [], ["c"]]), References([["a b"], ["c"]])
    np.testing.assert_array_equal(
        cider_d(with_empty, ["a b", "a", "c"], [0, 1, 2])[[0, 2]], cider_d(without, ["a b", "c"], [0, 1])
    )
    assert cider_d(with_empty, ["a", ""], [1, 1]).tolist() == [0, 0]
    assert sentence_bleu(with_empty, ["a", ""], [1, 1]).max() < 1e-3


def test_bleu_takes_the_shorter_of_two_equally_close_references():
    # One word fewer or one more than the caption's four.
    references = References([["a b c", "a b c d e"], ["a b c d e"]])
    scores = sentence_bleu(references, ["a b c d", "a b c d"], [0, 1])
    np.testing.assert_allclose(scores[0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(scores[1], math.exp(1 - 5 / 4), rtol=1e-6)


def test_bleu_clips_counts_at_the_reference_that_has_most():
    references = [["a a b", "a c c"]]
    scores = sentence_bleu(References(references), ["a a a c c c"], [0])
    np.testing.assert_allclose(scores[0, :2], [4 / 6, math.sqrt(4 / 6 * 3 / 5)], rtol=1e-6)
    np.testing.assert_allclose(scores, original_bleu(references, ["a a a c c c"]), rtol=1e-9)
