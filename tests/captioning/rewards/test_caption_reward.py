"""Rewards of token ids with every kind of vocabulary, compared with the original scorer."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward
from tfsparsecap.captioning.rewards.references import References
from tfsparsecap.captioning.rewards.similarity import cider_d, sentence_bleu
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
        found = CaptionReward(records(groups), tokenizer)(tokens(tokenizer, sampled, 160), range(len(images)))
        np.testing.assert_allclose(found, fixture["cider_d"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_compare_words_with_every_kind_of_tokens(kind):
    tokenizer = KINDS[kind]()
    given = tokens(tokenizer, SAMPLED, 40)
    # This unigram model has no capitals and no punctuation.
    groups = CAPTIONS if kind != "unigrams" else NORMALISED
    reward = CaptionReward(records(groups), tokenizer, cider_d=0.5, bleu_4=2.0)
    found = reward(tf.constant(np.stack([given, given[::-1]], axis=1)), tf.range(4))
    assert found.shape == (4, 2) and found.dtype == np.float64
    np.testing.assert_allclose(found[:, 0], expected(0.5, 2.0), atol=1e-9)
    np.testing.assert_allclose(found[:, 1], expected(0.5, 2.0, SAMPLED[::-1]), atol=1e-9)
    np.testing.assert_array_equal(reward(given, range(4)), found[:, 0])
    assert found[3, 0] > found[0, 0] > 1
    assert reward(given[:0, None], []).shape == (0, 1)


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
    given = tokens(tokenizer, sampled, 40)
    cut = np.where(given == tokenizer.end_id, tokenizer.pad_id, given)
    counted = CaptionReward(records(), tokenizer, count_end=True)
    ended = [[f"{text} </s>" for text in group] for group in NORMALISED]
    found = counted(given, range(4))
    np.testing.assert_allclose(
        found, expected(sampled=[f"{text} </s>" for text in sampled], groups=ended), atol=1e-9
    )
    if kind != "digits":  # words without an end are cut in the middle of a digit
        plain = CaptionReward(records(), tokenizer)
        np.testing.assert_array_equal(plain(given, range(4)), plain(cut, range(4)))
        assert found[0] > counted(cut, range(4))[0] + 0.1


@pytest.mark.parametrize("kind", ["words", "digits", "pieces"])
def test_an_unknown_word_never_matches(kind):
    small = [word for word in WORDS.vocabulary[4:] if word not in ("dog", "red")]
    words = WordTokenizer([*WORDS.vocabulary[:4], *small])
    tokenizer = {"words": words, "digits": RadixTokenizer(words, 4), "pieces": pieces(words=small)}[kind]
    reward = CaptionReward(records(), tokenizer)
    given = tokens(tokenizer, ["a dog on a bed", "a on a bed", "dog", "a dog red dog on a bed"])
    unknown, without, alone, twice = reward(given, [3, 3, 3, 3])
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
