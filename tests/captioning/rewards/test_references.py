"""Hashed captions, document frequencies and n-gram matches, compared with counting in Python."""

from collections import Counter

import numpy as np

from tfsparsecap.captioning.rewards.references import References, hash_captions, ngrams_of


def ngrams(text):
    words = text.split()
    return [tuple(words[i : i + size]) for size in (1, 2, 3, 4) for i in range(len(words) - size + 1)]


def test_hashes_are_equal_exactly_for_equal_words():
    vocabulary = [f"w{number}" for number in range(50_000)] + ["caf\u00e9", "\U0001f436", "</s>"]
    hashed = hash_captions([" ".join(vocabulary), "w7 w9", " "])
    assert hashed.words.dtype == np.uint64 and hashed.lengths.tolist() == [50_003, 2, 0]
    assert len(np.unique(hashed.words[:50_003])) == 50_003
    assert hashed.words[-2:].tolist() == [hashed.words[7], hashed.words[9]]


def test_document_frequencies_equal_counting_in_sets():
    random = np.random.default_rng(1)
    groups = [
        [" ".join(random.choice(list("abc"), random.integers(0, 8))) for _ in range(3)] for _ in range(40)
    ]
    expected = Counter()
    for group in groups:
        expected.update({ngram for text in group for ngram in ngrams(text)})
    references = References([*groups, []])
    assert references.documents == 40

    def frequency(*words):
        *_, hashes = [hashes for _, hashes in ngrams_of(hash_captions([" ".join(words)])) if len(hashes)]
        return references.document_frequency(hashes)[0]

    assert {ngram: frequency(*ngram) for ngram in expected} == expected and len(expected) > 100
    assert frequency("a", "a", "a", "zebra") == frequency("zebra") == 0


def test_matches_equal_counting_in_python():
    groups = [["a b a b", "b"], [], ["c d"]]
    captions, images = ["a b b", "", "c c d", "x"], [0, 0, 2, 1]
    comparison = References(groups).compare(captions, images)
    pairs = [
        (text, reference)
        for text, image in zip(captions, images, strict=True)
        for reference in groups[image] or [""]
    ]
    assert comparison.pairs_per_caption.tolist() == [2, 2, 1, 1]
    assert len(comparison.pair_captions) == len(pairs)
    counts = np.zeros(len(pairs), int)
    for matches in comparison.matches():
        np.add.at(counts, matches.pairs, np.minimum(matches.captions.times[matches.entries], matches.times))
    expected = [(Counter(ngrams(text)) & Counter(ngrams(reference))).total() for text, reference in pairs]
    assert counts.tolist() == expected == [4, 1, 0, 0, 3, 0]
