"""Captions are ranked by how well they fit photographs."""

import numpy as np
import pytest

from benchmarks.caption_ranking import CaptionRanker, Photographs, content_words

_THINGS = ("dog", "bus", "cat", "boat")


def _photographs(kinds: np.ndarray, labelled: bool = False) -> Photographs:
    """Features of each kind of photograph with noise of its own."""
    random = np.random.default_rng(len(kinds))
    kind_features = np.eye(len(_THINGS), 12)[kinds]
    labels = np.eye(len(_THINGS))[kinds] * labelled
    return Photographs(kind_features + 0.1 * random.normal(size=(len(kinds), 12)), labels)


def test_content_words_are_different_and_carry_meaning():
    assert content_words("The dog and a Dog's ball are on the grass.") == ["dog", "'s", "ball", "grass"]


@pytest.mark.slow
def test_captions_of_the_same_kind_come_first():
    kinds = np.arange(64) % len(_THINGS)
    captions = [[f"a {_THINGS[kind]} in a street", f"the {_THINGS[kind]}"] for kind in kinds]
    texts = [f"one {thing} near a house" for thing in _THINGS] * 8
    ranker = CaptionRanker(_photographs(kinds), captions, texts, rankers=2, epochs=8)
    new = np.array([2, 0, 3, 1, 1])
    similarities = ranker.similarities(_photographs(new))
    assert similarities.shape == (5, 32) and np.abs(similarities).max() <= 1 + 1e-5
    np.testing.assert_array_equal(similarities[:, : len(_THINGS)].argmax(1), new)
    # Equal texts have equal similarities.
    np.testing.assert_allclose(similarities[:, :4], similarities[:, 4:8], atol=1e-6)


def test_labels_are_used_where_features_say_nothing():
    kinds = np.arange(64) % len(_THINGS)
    photographs = Photographs(np.random.default_rng(0).normal(size=(64, 3)), np.eye(4)[kinds])
    captions = [[f"a {_THINGS[kind]}"] for kind in kinds]
    ranker = CaptionRanker(
        photographs, captions, [f"one {thing}" for thing in _THINGS] * 8, rankers=1, epochs=20
    )
    similarities = ranker.similarities(Photographs(np.zeros((4, 3)), np.eye(4)))
    np.testing.assert_array_equal(similarities[:, :4].argmax(1), np.arange(4))
