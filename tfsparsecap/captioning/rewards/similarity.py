"""CIDEr-D and BLEU of single captions, equal to pycocoevalcap's and fast enough for every training step."""

from collections.abc import Sequence

import numpy as np

from tfsparsecap.captioning.rewards.references import LONGEST, Captions, References

# What the COCO evaluation adds to numerators and denominators of BLEU to avoid dividing by 0.
_TINY, _SMALL = 1e-15, 1e-9
# Standard deviation of CIDEr-D's length penalty, in words.
_SIGMA = 6.0


def cider_d(
    references: References, captions: Captions | Sequence[str], images: Sequence[int] | np.ndarray
) -> np.ndarray:
    """CIDEr-D: the similarity of a caption to the references of its image; rare n-grams count most.

    For n-grams of n words that occur `c` times in the caption and `r` times in a reference, with the weight
    `w = log(images) - log(max(1, images with a reference that contains it))`:

        10 exp(-(l_c - l_r)² / (2 · 6²)) sum(w² min(c, r) r) / (sqrt(sum (w c)²) sqrt(sum (w r)²))

    averaged over n from 1 to 4 and over the references; `l_c` and `l_r` are lengths in words, and 0 / 0 is 0.
    A caption that equals its only reference scores 10 if it has n-grams of all four sizes that some other
    image lacks. If there is only one image, all scores are 0.

    Args:
        references: what captions are compared with; they also give the document frequencies.
        captions: texts or hashed words.
        images: int [captions], index of the image of each.

    Returns:
        float64 [captions], from 0 to 10.

    Reference:
        Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation",
        https://arxiv.org/abs/1411.5726, section 6 (CIDEr-D).

    Examples:
        >>> references = References([["a dog runs on grass"], ["two cats sit down"]])
        >>> cider_d(references, ["a dog runs on grass", "a dog", "two cats"], [0, 0, 1]).round(3).tolist()
        [10.0, 2.498, 3.038]
    """
    pairs = references.compare(captions, images)
    lengths, reference_lengths = pairs.captions.lengths, pairs.references.lengths
    similarity = np.zeros(len(pairs.pair_captions))
    for ngrams in pairs.matches():
        frequencies = np.maximum(references.document_frequency(ngrams.distinct), 1)
        weights = np.log(references.documents) - np.log(frequencies)
        norms, reference_norms = (
            np.sqrt(np.bincount(counts.owners, (counts.times * weights[counts.ranks]) ** 2, minlength=total))
            for counts, total in (
                (ngrams.captions, len(lengths)),
                (ngrams.references, len(reference_lengths)),
            )
        )
        weight = weights[ngrams.captions.ranks[ngrams.entries]]
        shared = np.minimum(ngrams.captions.times[ngrams.entries], ngrams.times) * ngrams.times
        products = np.bincount(ngrams.pairs, weight**2 * shared, minlength=len(similarity))
        scale = norms[pairs.pair_captions] * reference_norms[pairs.pair_references]
        similarity += np.divide(products, scale, out=np.zeros(len(scale)), where=scale > 0)
    difference = lengths[pairs.pair_captions] - reference_lengths[pairs.pair_references]
    similarity *= np.exp(-(difference**2) / (2 * _SIGMA**2))
    sums = np.bincount(pairs.pair_captions, similarity, minlength=len(lengths))
    return 10 / LONGEST * sums / pairs.pairs_per_caption


def sentence_bleu(
    references: References, captions: Captions | Sequence[str], images: Sequence[int] | np.ndarray
) -> np.ndarray:
    """BLEU-1 to BLEU-4 of single captions.

    BLEU-n is the geometric mean of the fractions of the caption's n-grams of 1 to n words that a reference
    contains (counted at most as often as in the reference that contains it most often), times
    `exp(1 - r / c)` if the caption has `c` words and the reference of the closest length `r > c` (the shorter
    one of two).

    Args:
        references, captions, images: see `cider_d`.

    Returns:
        float64 [captions, 4], from 0 to 1.

    Reference:
        Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation", ACL 2002.

    Examples:
        >>> references = References([["a dog runs on grass", "the dog is running"]])
        >>> sentence_bleu(references, ["a dog is running on grass"], [0]).round(3).tolist()
        [[1.0, 0.894, 0.585, 0.0]]
    """
    pairs = references.compare(captions, images)
    lengths = pairs.captions.lengths
    product, scores = np.ones(len(lengths)), []
    for size, ngrams in enumerate(pairs.matches(), 1):
        most = np.zeros(len(ngrams.captions.owners), np.int64)
        np.maximum.at(most, ngrams.entries, ngrams.times)
        right = np.bincount(
            ngrams.captions.owners, np.minimum(most, ngrams.captions.times), minlength=len(lengths)
        )
        product *= (right + _TINY) / (np.maximum(lengths - size + 1, 0) + _SMALL)
        scores.append(product ** (1 / size))

    reference_lengths = pairs.references.lengths[pairs.pair_references]
    difference = np.abs(reference_lengths - lengths[pairs.pair_captions])
    # The first pair of each caption in this order has the closest reference, the shorter one of two.
    order = np.lexsort((reference_lengths, difference, pairs.pair_captions))
    closest = reference_lengths[order][pairs.first_pair]
    brevity = np.exp(np.minimum(1 - (closest + _SMALL) / (lengths + _TINY), 0))
    return np.stack(scores, axis=1) * brevity[:, None]
