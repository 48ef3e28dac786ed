"""Incomplete and repetitive captions, told apart by hand."""

import json

import numpy as np
import pytest

from tfsparsecap.captioning.metrics.caption_statistics import (
    caption_statistics,
    fault_statistics,
    text_faults,
    token_faults,
)
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.errors import InputError

CUT, UNKNOWN, FUNCTION = "cut at the maximum length", "unknown word", "function word at the end"
TWICE, THREE, REPEATED = "word twice in a row", "word three times", "words repeated"


@pytest.mark.parametrize(
    ("caption", "faults"),
    [
        ("a dog runs on the grass", ()),
        ("A man, a woman and a child sit on a bench.", ()),  # function words may occur often
        ("a man on a bench next to a man", ()),
        ("a dog runs up", ()),
        ("a dog runs on the", (FUNCTION,)),
        ("A dog jumps OVER .", (FUNCTION,)),
        ("a dog and", (FUNCTION,)),
        ("a man is", (FUNCTION,)),
        ("", ("no word",)),
        (" . ", ("no word",)),
        ("a man holds a <unk>", (UNKNOWN,)),
        ("a <unk> dog runs", (UNKNOWN,)),
        ("a dog dog runs", (TWICE,)),
        ("a dog sees the dog near another dog", (THREE,)),
        ("a black dog near the black dog", ()),
        ("a black dog runs near a black dog", (REPEATED,)),
        ("a shirt and a shirt and a shirt and a", (FUNCTION, THREE, REPEATED)),
        ("white white white", (TWICE, THREE)),
        ("white white white white", (TWICE, THREE, REPEATED)),
    ],
)
def test_faults_of_captions(caption, faults):
    assert text_faults(caption) == faults


def test_the_rules_of_another_language_and_of_scenes_apply():
    german = SearchOptions(function_words=("auf", "der", "ein"))
    assert text_faults("ein Hund auf der", german) == (FUNCTION,)
    assert text_faults("a dog on the", german) == ()
    unknown_words = SearchOptions(function_words=())
    assert text_faults("a dog and a dog and a dog on", unknown_words) == (REPEATED,)
    assert text_faults("a dog near a dog near a dog", SearchOptions(no_repeat_ngram=0)) == ()
    assert text_faults("a dog runs on a dog", SearchOptions(no_repeat_ngram=2)) == (REPEATED,)


@pytest.mark.parametrize(
    ("token_ids", "unknown_id", "faults"),
    [
        ([5, 6, 2, 0], 3, ()),
        ([5, 3, 2, 0], 3, (UNKNOWN,)),
        ([5, 3, 2, 0], None, ()),
        ([5, 2, 3, 3], 3, ()),  # what follows the end is no part of the caption
        ([5, 6, 7, 8], 3, (CUT,)),
        ([3, 6, 7, 8], 3, (CUT, UNKNOWN)),
    ],
)
def test_faults_of_tokens(token_ids, unknown_id, faults):
    assert token_faults(token_ids, 2, unknown_id) == faults
    assert token_faults(np.array(token_ids, np.int32), 2, unknown_id) == faults


def test_shares_count_captions_and_not_faults():
    captions = [(), (CUT, FUNCTION), (THREE, REPEATED, FUNCTION), (THREE,), ()]
    assert fault_statistics(captions) == {
        "incomplete": 2 / 5,
        "repetitive": 2 / 5,
        "faults": {THREE: 2, FUNCTION: 2, REPEATED: 1, CUT: 1},
    }
    assert fault_statistics([()]) == {"incomplete": 0, "repetitive": 0, "faults": {}}


@pytest.mark.slow
def test_published_captions_do_not_end_in_function_words(fixtures):
    """The program that wrote them has a list of its own of words that it removes from the end."""
    file = fixtures / "updown_smp975" / "published_test_captions.json"
    captions = [row["caption"] for row in json.loads(file.read_text(encoding="utf-8"))]
    assert not [caption for caption in captions if FUNCTION in text_faults(caption)]
    assert all(FUNCTION in text_faults(f"{caption} with a") for caption in captions)


def test_statistics_equal_counting_by_hand():
    captions = ["A dog runs.", "a dog runs", "a cat", "", "the dog's ball"]
    training = ["a dog runs", "A DOG runs!", "the cow sits", "a red ball"]
    statistics = caption_statistics(captions, training)
    assert statistics == {
        "uniqueness": 3 / 5,  # the first two are training captions
        "distinct": 4 / 5,
        "mean_length": (3 + 3 + 2 + 0 + 4) / 5,  # the, dog, 's, ball
        "vocabulary_used": 7,  # a, dog, runs, cat, the, 's, ball
        "vocabulary_share": 5 / 8,  # a, dog, runs, the, ball of these and cow, sits, red
    }


@pytest.mark.parametrize("training", [None, [], ["", " . "]])
def test_without_training_captions_novelty_is_absent(training):
    assert caption_statistics(["a dog"], training) == {"distinct": 1, "mean_length": 2, "vocabulary_used": 2}


def test_statistics_of_published_captions(fixtures):
    file = fixtures / "updown_smp975" / "published_test_captions.json"
    captions = [row["caption"] for row in json.loads(file.read_text(encoding="utf-8"))]
    # These have no punctuation and no capitals.
    statistics = caption_statistics(captions, captions[:100])
    assert statistics["distinct"] == pytest.approx(len(set(captions)) / 5000)
    assert statistics["mean_length"] == pytest.approx(sum(len(text.split()) for text in captions) / 5000)
    assert statistics["vocabulary_used"] == len(set(" ".join(captions).split()))
    training_count = sum(caption in captions[:100] for caption in captions)
    assert statistics["uniqueness"] == pytest.approx(1 - training_count / 5000)
    assert statistics["vocabulary_share"] == 1


def test_no_captions_are_rejected():
    with pytest.raises(InputError, match="there are no captions"):
        caption_statistics([])
