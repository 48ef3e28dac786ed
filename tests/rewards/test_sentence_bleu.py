"""BLEU of single captions against pycocoevalcap's."""

import math

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu

from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies
from tfsparsecap.rewards.references import References
from tfsparsecap.rewards.sentence_bleu import SentenceBleu


def text(words):
    return " ".join(map(str, words))


def original(references, captions):
    people = {image: [text(words) for words in group] for image, group in enumerate(references)}
    said = {image: [text(words)] for image, words in enumerate(captions)}
    return np.array(Bleu(4).compute_score(people, said, verbose=0)[1]).T


@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_pycocoevalcaps(seed):
    random = np.random.default_rng(seed)

    def caption(longest):
        return random.integers(0, 8, random.integers(0, longest)).tolist()

    references = [[caption(12) for _ in range(random.integers(1, 6))] for _ in range(100)]
    captions = []
    for group in references:
        one, other = (group[random.integers(len(group))] for _ in range(2))
        cut = random.integers(0, 7)
        captions.append(one[:cut] + other[cut:] + caption(4))
    expected = original(references, captions)
    scores = SentenceBleu(References(references)).score(captions, range(100))
    assert scores.shape == (100, 4)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-12)
    assert (expected[:, 3] > 0.3).sum() > 10 and (expected[:, 3] < 1e-3).sum() > 10
    # Frequencies of another corpus number n-grams otherwise, and do not matter.
    other = References(references, DocumentFrequencies.from_references([[[3, 4, 5]], [[1, 2, 99]]]))
    np.testing.assert_array_equal(SentenceBleu(other).score(captions, range(100)), scores)


def test_the_shorter_of_two_equally_close_references_counts():
    # One word fewer or one more than the caption's four.
    bleu = SentenceBleu(References([["a b c", "a b c d e"], ["a b c d e"]]))
    scores = bleu.score(["a b c d", "a b c d"], [0, 1])
    np.testing.assert_allclose(scores[0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(scores[1], math.exp(1 - 5 / 4), rtol=1e-6)


def test_counts_are_clipped_at_the_reference_that_has_most():
    bleu = SentenceBleu(References([["a a b", "a c c"]]))
    expected = [4 / 6, math.sqrt(4 / 6 * 3 / 5)]
    scores = bleu.score(["a a a c c c"], [0])[0]
    np.testing.assert_allclose(scores[:2], expected, rtol=1e-6)
    np.testing.assert_allclose(scores, original([["aab", "acc"]], ["aaaccc"])[0], rtol=1e-9)


def test_empty_captions_and_references():
    references, captions = [[[]], [[4, 5]], [[]]], [[], [], [4]]
    scores = SentenceBleu(References(references)).score(captions, range(3))
    np.testing.assert_allclose(scores, original(references, captions), atol=1e-12)
    assert np.abs(scores).max() < 1e-3
    assert SentenceBleu(References(references)).score([], []).shape == (0, 4)


def test_an_unknown_word_is_no_right_one():
    groups = [[[4, 3, 5, 6, 7]]]
    scores = SentenceBleu(References(groups, words=CaptionWords(unknown_id=3))).score([groups[0][0]], [0])
    np.testing.assert_array_equal(scores, SentenceBleu(References(groups)).score([[4, 99, 5, 6, 7]], [0]))
