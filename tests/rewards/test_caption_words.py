"""Captions as ids: texts, lists of ids, and arrays of tokens as a decoder gives them."""

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.ngrams import LIMIT

# Padding, start, end, unknown.
VOCABULARY = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog"]


def lists(captions):
    ends = np.cumsum(captions.lengths)
    return [
        captions.words[end - length : end].tolist() for end, length in zip(ends, captions[1], strict=True)
    ]


def test_texts_and_ids_of_one_vocabulary_agree():
    words = CaptionWords(VOCABULARY).knowing(["a red dog", "red bird"])
    assert lists(words.read(["a  red\tdog", "", "bird"])) == [[4, 6, 5], [], [7]]
    assert lists(words.read([[4, 5], (), np.array([5], np.int32)])) == [[4, 5], [], [5]]
    # Words that nobody knows are told apart, and are none of the known ones.
    assert lists(words.read(["a cat", "cat fish"])) == [[4, 8], [8, 9]]
    assert lists(words.read([])) == []


def test_words_are_numbered_behind_special_ids():
    read, words = CaptionWords(end_id=2).read_references(["a dog", ""])
    assert lists(read) == [[3, 4, 2], [2]]
    assert lists(words.read(["dog cat"])) == [[4, 5]]


def test_ends_of_references_count_only_where_asked():
    assert lists(CaptionWords().read_references([[4, 5], []])[0]) == [[4, 5], []]
    assert lists(CaptionWords(end_id=9).read_references([[4, 5], []])[0]) == [[4, 5, 9], [9]]


TOKENS = [
    [4, 5, 2, 0, 0],
    [4, 0, 1, 5, 2],
    [2, 4, 5, 2, 0],
    [4, 4, 4, 4, 4],
    [0, 0, 0, 0, 0],
]


def test_tokens_are_read_to_their_first_end():
    read = CaptionWords().read_tokens(TOKENS, end_id=2, pad_id=0, start_id=1)
    assert lists(read) == [[4, 5], [4, 5], [], [4] * 5, []]
    # The end is a word of those captions that have one.
    read = CaptionWords(end_id=2).read_tokens(TOKENS, end_id=2, pad_id=0, start_id=1)
    assert lists(read) == [[4, 5, 2], [4, 5, 2], [2], [4] * 5, []]
    read = CaptionWords().read_tokens(np.array(TOKENS, np.uint8), end_id=2, pad_id=0)
    assert lists(read)[1] == [4, 1, 5] and read.words.dtype == np.int64
    assert lists(CaptionWords().read_tokens(np.zeros((2, 0), int), end_id=2, pad_id=0)) == [[], []]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([["a", "dog"]], "no id of a word"),
        ([[4.0]], "no id of a word"),
        ([[True]], "no id of a word"),
        ([[[4]], [[5, 6]]], "no id of a word"),
        ([[[4]]], "no id of a word"),
        ([[4, -1]], "holds the id -1"),
        ([[4, LIMIT]], f"holds the id {LIMIT}"),
        ([[2**70]], "no id of a word"),
        ([4, 5], "no text and no list"),
        ([[4], None], "no text and no list"),
        (["a dog"], "captions are texts, but the references are ids"),
    ],
)
def test_what_is_no_caption_is_said(given, message):
    with pytest.raises(InputError, match=message):
        CaptionWords().read(given)


def test_ids_and_texts_that_do_not_belong_together():
    _, words = CaptionWords().read_references(["a dog"])
    with pytest.raises(InputError, match="captions are ids, but the references are texts"):
        words.read([[0]])
    _, words = CaptionWords(VOCABULARY).read_references(["a bird"])
    with pytest.raises(InputError, match="holds the id 6: ids of words are from 0 to 5"):
        words.read([[6]])
    for mixed in (["a dog", [4]], [[4], "a dog"]):
        with pytest.raises(InputError, match="some captions are texts and some are not"):
            words.read(mixed)
    with pytest.raises(InputError, match="unknown_id is -1"):
        CaptionWords(unknown_id=-1)


def test_tokens_of_another_form_are_refused():
    for tokens in ([1, 2], [[1.0]], [[[1]]]):
        with pytest.raises(InputError, match=r"tokens are .*: give integers \[captions"):
            CaptionWords().read_tokens(np.array(tokens), end_id=2, pad_id=0)
    with pytest.raises(InputError, match="captions end with 3 and references with 2"):
        CaptionWords(end_id=2).read_tokens([[4, 3]], end_id=3, pad_id=0)
    with pytest.raises(InputError, match="the id -7"):
        CaptionWords().read_tokens([[4, -7]], end_id=3, pad_id=0)
