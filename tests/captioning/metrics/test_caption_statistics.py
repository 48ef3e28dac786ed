"""Statistics of captions, compared with counts by hand."""

import json

import pytest

from tfsparsecap.captioning.metrics.caption_statistics import caption_statistics
from tfsparsecap.errors import InputError


def test_statistics_equal_counting_by_hand():
    captions = ["A dog runs.", "a dog runs", "a cat", "", "the dog's ball"]
    training = ["a dog runs", "A DOG runs!", "the cow sits", "a red ball"]
    found = caption_statistics(captions, training)
    assert found == {
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
    found = caption_statistics(captions, captions[:100])
    assert found["distinct"] == pytest.approx(len(set(captions)) / 5000)
    assert found["mean_length"] == pytest.approx(sum(len(text.split()) for text in captions) / 5000)
    assert found["vocabulary_used"] == len(set(" ".join(captions).split()))
    known = sum(caption in captions[:100] for caption in captions)
    assert found["uniqueness"] == pytest.approx(1 - known / 5000)
    assert found["vocabulary_share"] == 1


def test_no_captions_are_rejected():
    with pytest.raises(InputError, match="there are no captions"):
        caption_statistics([])
