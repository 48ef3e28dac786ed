"""References of many images, prepared once to score captions against them again and again."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.caption_words import Caption, CaptionWords
from tfsparsecap.rewards.document_frequencies import DocumentFrequencies, read_references
from tfsparsecap.rewards.ngrams import LIMIT, Captions, Ngrams


class Pairs(NamedTuple):
    """Each caption with each reference of its image, caption by caption.

    Attributes:
        first: int64 [captions], where the pairs of each caption begin.
        counts: int64 [captions], how many it has: at least 1.
        captions: int64 [pairs], which caption.
        references: int64 [pairs], which reference, among those of all images.
    """

    first: np.ndarray
    counts: np.ndarray
    captions: np.ndarray
    references: np.ndarray


class Matches(NamedTuple):
    """Different n-grams of one size in captions, and those of them that references hold.

    Attributes:
        captions: int64 [n-grams], which caption, in ascending order.
        numbers: int64 [n-grams], as of `References.table`; what it does not hold has larger ones.
        times: int64 [n-grams], how often it stands in the caption.
        entries: int64 [matches], which of these n-grams.
        pairs: int64 [matches], which caption and reference, as in `Pairs`.
        reference_times: int64 [matches], how often it stands in the reference.
    """

    captions: np.ndarray
    numbers: np.ndarray
    times: np.ndarray
    entries: np.ndarray
    pairs: np.ndarray
    reference_times: np.ndarray


class Held(NamedTuple):
    """N-grams of one size in references, by image, then by number, then by reference.

    Attributes:
        first: int64 [images + 1], where those of each image begin.
        numbers: int32 [n-grams].
        references: int32 [n-grams], among those of all images.
        times: unsigned [n-grams], how often it stands there.
    """

    first: np.ndarray
    numbers: np.ndarray
    references: np.ndarray
    times: np.ndarray


class References:
    """What `CiderD`, `SentenceBleu` and `CaptionReward` compare captions with.

    Args:
        captions: an image's references for each image, all as texts or all as ids of words without start, end
            and padding.
        frequencies: of the n-grams, such as those of a training split; None counts them in these references.
        words: how to read captions, see `CaptionWords`; not with `frequencies`, which bring their own.

    Attributes:
        images: how many images there are.
        counts: int64 [images], references of each.
        lengths: int64 [references], words of each.
        held: by size, the n-grams of the references.
        frequencies, words: as given or made.
        table: numbers of the n-grams of frequencies and references.

    Raises:
        InputError: there are no images, one of them has no reference, or they cannot be read.

    Example:
        >>> references = References([["a dog runs", "a red dog"], ["two cats sit"]])
        >>> references.images, references.lengths.tolist()
        (2, [3, 3, 3])
    """

    def __init__(
        self,
        captions: Sequence[Sequence[Caption]],
        frequencies: DocumentFrequencies | None = None,
        words: CaptionWords | None = None,
    ):
        if frequencies is not None and words is not None:
            raise InputError("document frequencies bring their own CaptionWords: leave words out, or them")
        read, self.counts, self.words = read_references(
            captions, words if frequencies is None else frequencies.words
        )
        if frequencies is None:
            frequencies = DocumentFrequencies.from_captions(read, self.counts, self.words)
        self.frequencies = frequencies
        ngrams, self.table = frequencies.table.number(read)
        self.images, self.lengths = len(self.counts), read.lengths
        self._first = np.concatenate(([0], np.cumsum(self.counts)))
        image_of = np.repeat(np.arange(self.images), self.counts)
        self.held = [_held(one, image_of, self.images) for one in ngrams]

    def read(
        self, captions: Captions | Sequence[Caption], images: Sequence[int] | np.ndarray
    ) -> tuple[Captions, np.ndarray]:
        """Captions to score as ids of words, and their images as int64 [captions].

        Args:
            captions: texts, or ids of words, or what `words.read_tokens` made of arrays of tokens.
            images: for each caption, whose references it is scored against, from 0.

        Raises:
            InputError: they cannot be read, or there is no such image.
        """
        if not isinstance(captions, Captions):
            captions = self.words.read(captions)
        images = np.asarray(images)
        if images.shape != (len(captions.lengths),) or (images.size and images.dtype.kind not in "iu"):
            raise InputError(
                f"images are {images.dtype} {list(images.shape)} for {len(captions.lengths)} captions: give "
                "the number of its image for each"
            )
        if images.size and not 0 <= images.min() <= images.max() < self.images:
            wrong = images[(images < 0) | (images >= self.images)][0]
            raise InputError(f"there is no image {wrong}: there are references of {self.images}, from 0")
        if self.words.unknown_id is not None:
            # No reference holds this one.
            captions = captions._replace(
                words=np.where(captions.words == self.words.unknown_id, LIMIT, captions.words)
            )
        return captions, images.astype(np.int64)

    def pairs(self, images: np.ndarray) -> Pairs:
        """Captions of images, int64 [captions], each with each reference of its image."""
        counts = self.counts[images]
        captions = np.repeat(np.arange(len(images)), counts)
        return Pairs(np.cumsum(counts) - counts, counts, captions, _ranges(self._first[images], counts))

    def matches(self, captions: Captions, images: np.ndarray) -> Iterator[Matches]:
        """What captions have in common with the references of their images, as of `read`; one word first."""
        first_pair = self.pairs(images).first
        ngrams, _ = self.table.number(captions)
        # Only what these images' references hold is searched: it is little, and stays near the processor.
        there, place_of = np.unique(images, return_inverse=True)
        for (owners, numbers), held in zip(ngrams, self.held, strict=True):
            keys, times = np.unique(owners << 32 | numbers, return_counts=True)
            owners, numbers = keys >> 32, keys & (LIMIT - 1)
            begins = held.first[there]
            counts = held.first[there + 1] - begins
            rows = _ranges(begins, counts)
            known = np.repeat(np.arange(len(there)), counts) << 32 | held.numbers[rows]
            wanted = place_of[owners] << 32 | numbers
            left = np.searchsorted(known, wanted, side="left")
            found = np.searchsorted(known, wanted, side="right") - left
            rows = rows[_ranges(left, found)]
            entries = np.repeat(np.arange(len(keys)), found)
            caption = owners[entries]
            pairs = first_pair[caption] + held.references[rows] - self._first[images[caption]]
            yield Matches(owners, numbers, times, entries, pairs, held.times[rows].astype(np.int64))


def _held(ngrams: Ngrams, image_of: np.ndarray, images: int) -> Held:
    keys = image_of[ngrams.captions] << 32 | ngrams.numbers
    # Stable: those of one image and number stay in the order of the references.
    order = np.argsort(keys, kind="stable")
    keys, references = keys[order], ngrams.captions[order]
    changes = (np.diff(keys, prepend=-1) != 0) | (np.diff(references, prepend=-1) != 0)
    begins = np.flatnonzero(changes)
    times = np.diff(begins, append=len(keys))
    keys = keys[begins]
    return Held(
        np.searchsorted(keys, np.arange(images + 1) << 32),
        (keys & (LIMIT - 1)).astype(np.int32),
        references[begins].astype(np.int32),
        times.astype(np.min_scalar_type(times.max(initial=0))),
    )


def _ranges(begins: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`begins[i]`, `begins[i] + 1`, … `counts[i]` of them, for one i after another, int64."""
    skipped = begins - (np.cumsum(counts) - counts)
    return np.repeat(skipped, counts) + np.arange(counts.sum())
