"""CIDEr-D of single captions, fast enough to train on."""

from collections.abc import Sequence

import numpy as np

from tfsparsecap.rewards.caption_words import Caption
from tfsparsecap.rewards.ngrams import LONGEST, Captions
from tfsparsecap.rewards.references import References


class CiderD:
    """CIDEr-D: how like its image's references a caption is, rare n-grams counting most.

    For n-grams of n words, `c` and `r` times in caption and reference, with the weight `w = log(images) -
    log(max(1, images whose references hold it))`:

        10 exp(-(l_c - l_r)² / (2 sigma²)) sum(w² min(c, r) r) / (sqrt(sum (w c)²) sqrt(sum (w r)²))

    averaged over n from 1 to 4 and over the references; `l` are their lengths, and 0 / 0 is 0.

    Scores of a caption that is one reference word by word: 10 at most, and just that where it is the only
    reference and each of the four sizes has an n-gram that is not in all images. One image alone scores 0.

    Args:
        references: what captions are compared with, and the frequencies of n-grams.
        sigma: of the penalty on other lengths, in words.

    Reference:
        Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation",
        https://arxiv.org/abs/1411.5726, section 6 (CIDEr-D).

    Example:
        >>> cider = CiderD(References([["a dog runs on grass"], ["two cats sit down"]]))
        >>> cider.score(["a dog runs on grass", "a dog", "two cats"], images=[0, 0, 1]).round(3).tolist()
        [10.0, 2.498, 3.038]
    """

    def __init__(self, references: References, sigma: float = 6.0):
        self.references, self.sigma = references, sigma
        frequencies = references.frequencies
        # The last one is that of all n-grams without a number, which stand in no image.
        self._weights = np.full(references.table.size + 1, np.log(frequencies.images))
        self._weights[: len(frequencies.counts)] -= np.log(frequencies.counts)
        # Of each reference and size.
        self._norms = [
            np.sqrt(
                np.bincount(
                    held.references,
                    (held.times * self._weights[held.numbers]) ** 2,
                    minlength=len(references.lengths),
                )
            )
            for held in references.held
        ]

    def score(self, captions: Captions | Sequence[Caption], images: Sequence[int] | np.ndarray) -> np.ndarray:
        """Scores of captions, several of one image or of many.

        Args:
            captions: texts, or ids of words, or what `references.words.read_tokens` made of arrays of tokens.
            images: for each caption, whose references it is scored against, from 0.

        Returns:
            float64 [captions], from 0 to 10; an empty caption has 0.

        Raises:
            InputError: the captions cannot be read, or there is no such image.
        """
        references = self.references
        captions, images = references.read(captions, images)
        pairs = references.pairs(images)
        likeness = np.zeros(len(pairs.captions))
        for level, reference_norms in zip(references.matches(captions, images), self._norms, strict=True):
            weights = self._weights[np.minimum(level.numbers, references.table.size)]
            norms = np.sqrt(np.bincount(level.captions, (level.times * weights) ** 2, minlength=len(images)))
            both = np.minimum(level.times[level.entries], level.reference_times) * level.reference_times
            products = np.bincount(level.pairs, weights[level.entries] ** 2 * both, minlength=len(likeness))
            lengths = norms[pairs.captions] * reference_norms[pairs.references]
            likeness += np.divide(products, lengths, out=np.zeros(len(products)), where=lengths > 0)
        apart = captions.lengths[pairs.captions] - references.lengths[pairs.references]
        likeness *= np.exp(-(apart**2) / (2 * self.sigma**2))
        sums = np.bincount(pairs.captions, likeness, minlength=len(images))
        return 10.0 / LONGEST * sums / pairs.counts
