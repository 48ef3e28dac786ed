"""Reference captions of many images, hashed once so that captions can be compared with them quickly."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Scores compare n-grams of 1 to this many words.
LONGEST = 4

# Odd, so that no bit of a hash is lost when it is multiplied.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class HashedCaptions(NamedTuple):
    """Many captions as hashed words.

    A word's hash has 64 bits. Four million different n-grams, as many as MS-COCO has, all get different
    hashes with probability 1 - 4e-7.

    Attributes:
        words: uint64 [words of all captions], one caption after the other.
        lengths: int64 [captions], the number of words of each.
    """

    words: np.ndarray
    lengths: np.ndarray


def hash_captions(captions: Iterable[str]) -> HashedCaptions:
    """Hashes captions whose words are separated by spaces.

    Examples:
        >>> captions = hash_captions(["a dog", "", "a"])
        >>> captions.lengths.tolist(), bool(captions.words[0] == captions.words[2])
        ([2, 0, 1], True)
    """
    split = [caption.split() for caption in captions]
    hashes = {word: _hash(word) for words in split for word in words}
    lengths = np.array([len(words) for words in split], np.int64)
    flat = (hashes[word] for words in split for word in words)
    return HashedCaptions(np.fromiter(flat, np.uint64, int(lengths.sum())), lengths)


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def ngrams_of(captions: HashedCaptions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each size from 1 to `LONGEST`: the caption of each n-gram, int64, and its hash, uint64."""
    words, lengths = captions
    owners = np.repeat(np.arange(len(lengths)), lengths)
    # The number of words from each word to the end of its caption.
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
    hashes = np.zeros(len(words), np.uint64)
    for size in range(1, LONGEST + 1):
        starts = np.flatnonzero(remaining >= size)
        hashes[starts] = hashes[starts] * _MULTIPLIER + words[starts + size - 1]
        yield owners[starts], hashes[starts]


class Counts(NamedTuple):
    """The different n-grams of one size in each of many captions.

    Attributes:
        owners: int64 [n-grams], which caption, ascending.
        ranks: int64 [n-grams], index into `NgramMatches.distinct`.
        times: int64 [n-grams], how often the caption contains it.
    """

    owners: np.ndarray
    ranks: np.ndarray
    times: np.ndarray


class NgramMatches(NamedTuple):
    """N-grams of one size in captions and in the references of their images.

    Attributes:
        distinct: uint64 [different n-grams], their hashes.
        captions, references: the n-grams of each caption and of each reference.
        entries: int64 [matches], index into `captions`; each n-gram is matched with each of its references.
        pairs: int64 [matches], index of the (caption, reference) pair, see `Comparison`.
        times: int64 [matches], how often the reference contains the n-gram, perhaps 0.
    """

    distinct: np.ndarray
    captions: Counts
    references: Counts
    entries: np.ndarray
    pairs: np.ndarray
    times: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """Captions, the references of their images, and all (caption, reference) pairs of one image.

    Attributes:
        captions, references: as hashed words.
        pairs_per_caption: int64 [captions], at least 1.
        first_pair: int64 [captions], index of each caption's first pair.
        pair_captions, pair_references: int64 [pairs], indices into `captions` and `references`.
    """

    captions: HashedCaptions
    references: HashedCaptions
    pairs_per_caption: np.ndarray
    first_pair: np.ndarray
    pair_captions: np.ndarray
    pair_references: np.ndarray

    def matches(self) -> Iterator[NgramMatches]:
        """The n-grams of each size from 1 to `LONGEST`."""
        for ngrams, reference_ngrams in zip(
            ngrams_of(self.captions), ngrams_of(self.references), strict=True
        ):
            hashes = np.concatenate([ngrams[1], reference_ngrams[1]])
            distinct, ranks = np.unique(hashes, return_inverse=True)
            split = len(ngrams[0])
            captions, _ = _count(ngrams[0], ranks[:split], len(distinct))
            references, keys = _count(reference_ngrams[0], ranks[split:], len(distinct))
            pairs_per_entry = self.pairs_per_caption[captions.owners]
            entries = np.repeat(np.arange(len(captions.owners)), pairs_per_entry)
            pairs = _ranges(self.first_pair[captions.owners], pairs_per_entry)
            match_keys = self.pair_references[pairs] * len(distinct) + captions.ranks[entries]
            places = np.searchsorted(keys, match_keys)
            is_there = np.append(keys, -1)[places] == match_keys
            times = np.where(is_there, np.append(references.times, 0)[places], 0)
            yield NgramMatches(distinct, captions, references, entries, pairs, times)


def _count(owners: np.ndarray, ranks: np.ndarray, distinct: int) -> tuple[Counts, np.ndarray]:
    """Counts n-grams per caption; also returns the sorted keys `owner * distinct + rank`."""
    keys, times = np.unique(owners * distinct + ranks, return_counts=True)
    return Counts(*np.divmod(keys, max(distinct, 1)), times), keys


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`starts[0], starts[0] + 1, …` (`counts[0]` numbers), then those of `starts[1]`, and so on; int64."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


class References:
    """The reference captions of many images and the document frequencies of their n-grams.

    Args:
        references: for each image its captions, whose words are separated by spaces. An image without
            captions is not counted as a document; captions of it score 0.

    Attributes:
        documents: number of images with captions.

    Examples:
        >>> references = References([["a dog", "a red dog"], ["a cat"], []])
        >>> references.documents, references.document_frequency(hash_captions(["a", "red"]).words).tolist()
        (2, [2, 1])
    """

    def __init__(self, references: Sequence[Sequence[str]]):
        self.documents = sum(map(bool, references))
        # So that each image has at least one reference.
        groups = [group or [""] for group in references]
        self._captions = hash_captions(caption for group in groups for caption in group)
        self._counts = np.array([len(group) for group in groups], np.int64)
        self._first = np.cumsum(self._counts) - self._counts
        self._first_word = np.cumsum(self._captions.lengths) - self._captions.lengths

        image_of = np.repeat(np.arange(len(groups)), self._counts)
        hashes, frequencies = [], []
        for owners, ngrams in ngrams_of(self._captions):
            distinct, ranks = np.unique(ngrams, return_inverse=True)
            once_per_image = np.unique(image_of[owners] * len(distinct) + ranks)
            hashes.append(distinct)
            frequencies.append(np.bincount(once_per_image % max(len(distinct), 1), minlength=len(distinct)))
        order = np.argsort(np.concatenate(hashes))
        # The last entry is found for hashes larger than all others.
        self._hashes = np.append(np.concatenate(hashes)[order], np.uint64(0))
        self._frequencies = np.append(np.concatenate(frequencies)[order], 0)

    def document_frequency(self, hashes: np.ndarray) -> np.ndarray:
        """The number of images with a reference that contains each n-gram: uint64 [n] -> int64 [n]."""
        places = np.searchsorted(self._hashes[:-1], hashes)
        return np.where(self._hashes[places] == hashes, self._frequencies[places], 0)

    def compare(
        self, captions: HashedCaptions | Sequence[str], images: Sequence[int] | np.ndarray
    ) -> Comparison:
        """Pairs each caption with each reference of its image.

        Args:
            captions: texts or hashed words.
            images: int [captions], index of the image of each.
        """
        if not isinstance(captions, HashedCaptions):
            captions = hash_captions(captions)
        # Each image's references once, however many captions it has.
        shown, place = np.unique(np.asarray(images, np.int64), return_inverse=True)
        counts = self._counts[shown]
        rows = _ranges(self._first[shown], counts)
        lengths = self._captions.lengths[rows]
        references = HashedCaptions(self._captions.words[_ranges(self._first_word[rows], lengths)], lengths)
        pairs_per_caption = counts[place]
        return Comparison(
            captions,
            references,
            pairs_per_caption,
            first_pair=np.cumsum(pairs_per_caption) - pairs_per_caption,
            pair_captions=np.repeat(np.arange(len(place)), pairs_per_caption),
            pair_references=_ranges((np.cumsum(counts) - counts)[place], pairs_per_caption),
        )
