"""The reward of self-critical training: against the original scorer, in every kind of vocabulary."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.data.radix import RadixTokenizer
from tfsparsecap.data.records import Record
from tfsparsecap.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.rewards.cider_d import CiderD
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies
from tfsparsecap.rewards.references import References
from tfsparsecap.rewards.sentence_bleu import SentenceBleu
from tfsparsecap.settings.schema import Config
from tfsparsecap.training.scst_reward import make_reward

from ..data.test_sentencepiece import UNIGRAM, WORD, model

PEOPLE = [
    ("A dog runs on the grass.", "The dog is running"),
    ("Two cats sleep", "two CATS on a bed", "a bed with cats"),
    (),
    ("a red dog on a bed",),
]
WORDS = WordTokenizer.from_captions([caption for group in PEOPLE for caption in group])
#: One an image, and what they are compared with, as words.
SAID = ["the dog runs on the grass", "two cats on the grass", "a dog", "a red dog on a bed"]
PLAIN = [
    ["a dog runs on the grass", "the dog is running"],
    ["two cats sleep", "two cats on a bed", "a bed with cats"],
    [""],
    ["a red dog on a bed"],
]


def records(groups=PEOPLE):
    return [Record(f"{n}.jpg", Path(f"{n}.jpg"), tuple(group), "train") for n, group in enumerate(groups)]


def settings(cache=None, **scst):
    return Config(training={"scst": scst, "start_from": "runs/dense"}, data={"cache_folder": cache})


def tokens(tokenizer, captions, length=24):
    """As a captioner gives them: without the start, filled up behind the end."""
    return tokenizer.encode_padded(tf.constant(captions), length)[1].numpy()


def expected(cider_d=1.0, bleu_4=0.0, said=SAID, people=PLAIN):
    """By the scorers on texts; the third image is in no document."""
    frequencies = DocumentFrequencies.from_references([group for group in people if group != [""]])
    references = References(people, frequencies)
    images = range(len(people))
    return (
        cider_d * CiderD(references).score(said, images)
        + bleu_4 * SentenceBleu(references).score(said, images)[:, 3]
    )


def pieces(kind=WORD, words=WORDS.vocabulary[4:]):
    return SentencePieceTokenizer(model(kind, [f"▁{word}" for word in words]))


def test_rewards_equal_the_original_scorers(shared):
    fixture = json.loads((shared / "fixtures" / "cider_d" / "expected.json").read_text(encoding="utf-8"))
    images = list(fixture["hypotheses"])
    groups = [fixture["references"][image] for image in images]
    said = [fixture["hypotheses"][image] for image in images]
    every = [text for group in groups for text in group] + said
    whole = WordTokenizer.from_captions(every)
    for tokenizer in (whole, RadixTokenizer(whole, 7), pieces(words=whole.vocabulary[4:])):
        reward = make_reward(settings(), records(groups), tokenizer)
        found = reward(tokens(tokenizer, said, 160), np.arange(len(images)))
        np.testing.assert_allclose(found, fixture["cider_d"], rtol=0, atol=1e-9)


# Made in the test: what TensorFlow keeps for a model of pieces goes when another test clears its session.
KINDS = {
    "words": lambda: WORDS,
    "digits": lambda: RadixTokenizer(WORDS, 3),
    "pieces of words": pieces,
    "unigrams": lambda: pieces(UNIGRAM),
}


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_compared_whatever_they_are_written_in(kind):
    tokenizer = KINDS[kind]()
    given = tokens(tokenizer, SAID, 40)
    # Pieces that are not words know no case and no punctuation but their own.
    groups = PEOPLE if kind != "unigrams" else [[text for text in group if text] for group in PLAIN]
    reward = make_reward(settings(cider_d=0.5, bleu_4=2.0), records(groups), tokenizer)
    found = reward(np.stack([given, given[::-1]], axis=1), np.arange(4))
    assert found.shape == (4, 2)
    np.testing.assert_allclose(found[:, 0], expected(0.5, 2.0), atol=1e-9)
    np.testing.assert_allclose(found[:, 1], expected(0.5, 2.0, SAID[::-1]), atol=1e-9)
    assert found[3, 0] > found[0, 0] > 1


def test_an_image_without_captions_rewards_nothing_and_is_no_document():
    reward = make_reward(settings(bleu_4=1.0), records(), WORDS)
    assert reward(tokens(WORDS, ["a dog", ""]), [2, 2]).max() < 1e-6
    assert reward.references.images == 4 and reward.references.frequencies.images == 3
    with pytest.raises(InputError, match="there are no references"):
        make_reward(settings(), records([(), ()]), WORDS)


def test_the_end_counts_where_asked_and_punishes_captions_that_break_off():
    given = tokens(WORDS, ["the dog is running", "two cats", "", "a red dog"], 8)
    broken = np.where(given == WORDS.end_id, WORDS.pad_id, given)
    without = make_reward(settings(), records(), WORDS)
    np.testing.assert_array_equal(without(given, range(4)), without(broken, range(4)))
    counted = make_reward(settings(count_end=True), records(), WORDS)
    assert counted(given, range(4))[0] == pytest.approx(without(given, range(4))[0], rel=0.5)
    assert counted(given, range(4))[0] > counted(broken, range(4))[0] + 0.1
    ended = [[f"{text} </s>" for text in group] if group != [""] else [""] for group in PLAIN]
    said = ["the dog is running </s>", "two cats </s>", "</s>", "a red dog </s>"]
    np.testing.assert_allclose(counted(given, range(4)), expected(said=said, people=ended), atol=1e-9)
    digits = RadixTokenizer(WORDS, 3)
    counted = make_reward(settings(count_end=True), records(), digits)
    np.testing.assert_allclose(
        counted(tokens(digits, ["the dog is running", "two cats", "", "a red dog"]), range(4)),
        expected(said=said, people=ended),
        atol=1e-9,
    )
    with pytest.raises(InputError, match="count_end is for vocabularies of words"):
        make_reward(settings(count_end=True), records(), pieces())


@pytest.mark.parametrize("kind", ["words", "digits", "pieces"])
def test_to_say_unknown_is_never_right(kind):
    """A caption of unknown words alone gains nothing where people's words are unknown, too."""
    small = [word for word in WORDS.vocabulary[4:] if word not in ("dog", "red")]
    words = WordTokenizer([*WORDS.vocabulary[:4], *small])
    tokenizer = {"words": words, "digits": RadixTokenizer(words, 4), "pieces": pieces(words=small)}[kind]
    reward = make_reward(settings(), records(), tokenizer)
    given = tokens(tokenizer, ["a dog on a bed", "a on a bed", "dog", "a dog red dog on a bed"])
    unknown, without, alone, twice = reward(given, [3, 3, 3, 3])
    assert alone == 0
    # An unknown word is one word too many, or in the wrong place; it is no word of nothing.
    people = [[text.replace("red dog", "1 2").replace("dog", "2") for text in group] for group in PLAIN]
    if kind == "pieces":  # a model of pieces makes one unknown word of several
        people = [[text.replace("1 2", "2") for text in group] for group in people]
    frequencies = DocumentFrequencies.from_references([people[n] for n in (0, 1, 3)])
    said = ["a ? on a bed", "a on a bed", "a ? on a bed" if kind == "pieces" else "a ? ? ? on a bed"]
    scores = CiderD(References(people, frequencies)).score(said, [3, 3, 3])
    np.testing.assert_allclose([unknown, without, twice], scores, atol=1e-9)


def test_document_frequencies_are_counted_once(tmp_path, monkeypatch):
    cache, wanted = tmp_path / "cache", expected(bleu_4=0.5)
    first = make_reward(settings(str(cache)), records(), WORDS)
    (file,) = cache.iterdir()
    monkeypatch.setattr(
        DocumentFrequencies,
        "from_captions",
        lambda *arguments: pytest.fail("they were counted again"),
    )
    again = make_reward(settings(str(cache), bleu_4=0.5), records(), WORDS)
    np.testing.assert_allclose(again(tokens(WORDS, SAID), range(4)), wanted, atol=1e-9)
    assert first.references.frequencies.digest == again.references.frequencies.digest
    assert [file] == list(cache.iterdir())
    monkeypatch.undo()
    make_reward(settings(str(cache)), records(PEOPLE[:2]), WORDS)
    assert len(list(cache.iterdir())) == 2
