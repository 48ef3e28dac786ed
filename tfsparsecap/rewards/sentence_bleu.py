"""BLEU of single captions, as the COCO evaluation computes it, fast enough to train on."""

from collections.abc import Sequence

import numpy as np

from tfsparsecap.rewards.caption_words import Caption
from tfsparsecap.rewards.ngrams import Captions
from tfsparsecap.rewards.references import References

# What the COCO evaluation adds to numerators and denominators, lest it divides by 0.
_TINY, _SMALL = 1e-15, 1e-9


class SentenceBleu:
    """BLEU-1 to BLEU-4 of each caption by itself: equal to pycocoevalcap's scores of single captions.

    BLEU-n is the geometric mean of the shares of the caption's n-grams of 1 to n words that a reference
    holds (as often as the one that holds it most often), times `exp(1 - r / c)` where the caption's `c` words
    are fewer than the `r` words of the reference whose length is closest (the shorter of two).

    Args:
        references: what captions are compared with; frequencies do not matter.

    Reference:
        Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002.

    Example:
        >>> bleu = SentenceBleu(References([["a dog runs on grass", "the dog is running"]]))
        >>> bleu.score(["a dog is running on grass"], images=[0]).round(3).tolist()
        [[1.0, 0.894, 0.585, 0.0]]
    """

    def __init__(self, references: References):
        self.references = references

    def score(self, captions: Captions | Sequence[Caption], images: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of captions, several of one image or of many.

        Args:
            captions: texts, or ids of words, or what `references.words.read_tokens` made of arrays of tokens.
            images: for each caption, whose references it is scored against, from 0.

        Returns:
            float64 [captions, 4], BLEU-1 to BLEU-4, from 0 to 1; an empty caption has 0.

        Raises:
            InputError: the captions cannot be read, or there is no such image.
        """
        captions, images = self.references.read(captions, images)
        lengths = captions.lengths
        shorter = self._brevity(lengths, images)
        product, scores = np.ones(len(images)), []
        for size, level in enumerate(self.references.matches(captions, images), 1):
            most = np.zeros(len(level.captions), np.int64)
            np.maximum.at(most, level.entries, level.reference_times)
            right = np.bincount(level.captions, np.minimum(most, level.times), minlength=len(images))
            product *= (right + _TINY) / (np.maximum(lengths - size + 1, 0) + _SMALL)
            scores.append(product ** (1 / size) * shorter)
        return np.stack(scores, axis=1)

    def _brevity(self, lengths: np.ndarray, images: np.ndarray) -> np.ndarray:
        """The factor for captions of so many words, float64 [captions]."""
        pairs = self.references.pairs(images)
        if not len(images):
            return np.ones(0)
        of_references = self.references.lengths[pairs.references]
        apart = np.abs(of_references - lengths[pairs.captions])
        # Ordered by distance, then by length: both are below 2 ** 31.
        closest = np.minimum.reduceat(apart << 32 | of_references, pairs.first) & (2**32 - 1)
        ratio = (lengths + _TINY) / (closest + _SMALL)
        return np.exp(np.minimum(1 - 1 / ratio, 0))
