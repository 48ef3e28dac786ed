"""What captions have in common with references, against counting in dictionaries."""

from collections import Counter

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.caption_words import CaptionWords
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies
from tfsparsecap.rewards.references import References


def ngrams(words, size):
    return Counter(tuple(words[first : first + size]) for first in range(len(words) - size + 1))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_matches_equal_those_by_hand(elsewhere):
    random = np.random.default_rng(2)

    def drawn():
        return random.integers(0, 4, random.integers(0, 9)).tolist()

    groups = [[drawn() for _ in range(random.integers(1, 4))] for _ in range(12)]
    frequencies = DocumentFrequencies.from_references([[drawn(), [99]], [[98, 1, 2]]]) if elsewhere else None
    references = References(groups, frequencies)
    captions, images = [[*drawn(), 7] for _ in range(60)], random.integers(0, 12, 60)
    read = references.read(captions, images)
    pairs = references.pairs(read[1])
    lists = [reference for group in groups for reference in group]
    assert references.lengths.tolist() == [len(words) for words in lists]
    by_pair = [(caption, reference) for caption in range(60) for reference in groups[images[caption]]]
    assert [
        (caption, lists[reference])
        for caption, reference in zip(pairs.captions.tolist(), pairs.references.tolist(), strict=True)
    ] == by_pair
    assert pairs.counts.tolist() == [len(groups[image]) for image in images]
    assert [pairs.captions[first] for first in pairs.first] == list(range(60))
    for size, matches in enumerate(references.matches(*read), 1):
        counted = [ngrams(words, size) for words in captions]
        assert Counter(zip(matches.captions.tolist(), matches.times.tolist(), strict=True)) == Counter(
            (caption, times) for caption, counts in enumerate(counted) for times in counts.values()
        )
        found = Counter(
            zip(
                matches.pairs.tolist(),
                matches.times[matches.entries].tolist(),
                matches.reference_times.tolist(),
                strict=True,
            )
        )
        expected = Counter(
            (pair, times, there[ngram])
            for pair, (caption, reference) in enumerate(by_pair)
            for there in [ngrams(reference, size)]
            for ngram, times in counted[caption].items()
            if ngram in there
        )
        assert found == expected and (expected or size == 4)


def test_frequencies_bring_their_words():
    frequencies = DocumentFrequencies.from_references([["a dog"], ["a cat"]], CaptionWords(["a"]))
    references = References([["a red dog"]], frequencies)
    assert references.frequencies is frequencies
    assert references.words.vocabulary == ("a",) and references.words.further == ("dog", "cat", "red")
    with pytest.raises(InputError, match="bring their own CaptionWords"):
        References([["a red dog"]], frequencies, CaptionWords())
    with pytest.raises(InputError, match="there are no references"):
        References([])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([0], r"images are int64 \[1\] for 2 captions"),
        (0, r"images are int64 \[\] for 2 captions"),
        ([0.0, 1.0], "images are float64"),
        ([0, 2], "no image 2: there are references of 2"),
        ([-1, 0], "no image -1"),
    ],
)
def test_images_that_are_none(images, message):
    references = References([[[4]], [[5]]])
    with pytest.raises(InputError, match=message):
        references.read([[4], [5]], images)
