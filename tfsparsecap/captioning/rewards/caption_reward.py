"""The reward of self-critical sequence training, from token ids: a weighted sum of CIDEr-D and BLEU-4.

Both are equal to pycocoevalcap's, and fast enough for every training step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.captioning.rewards.references import LONGEST, HashedCaptions, References, hash_captions
from tfsparsecap.errors import InputError

# What the COCO evaluation adds to numerators and denominators of BLEU to avoid dividing by 0.
_TINY, _SMALL = 1e-15, 1e-9
# Standard deviation of CIDEr-D's length penalty, in words.
_SIGMA = 6.0


def cider_d(
    references: References, captions: HashedCaptions | Sequence[str], images: Sequence[int] | np.ndarray
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
    references: References, captions: HashedCaptions | Sequence[str], images: Sequence[int] | np.ndarray
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


# Words that no caption contains after normalisation. An unknown word of a sampled caption never equals one of
# a reference.
_END, _UNKNOWN, _UNKNOWN_IN_REFERENCE = "</s>", "<unknown>", "<unknown-in-reference>"


class CaptionReward:
    """Rewards of captions as sampling, greedy search and beam search return them.

    Captions are compared word by word with all kinds of tokens (words, radix digits, SentencePiece pieces).
    Document frequencies are those of the records' captions.

    Args:
        records: the images, in the order of their indices. Captions of an image without references get 0.
        tokenizer: the captioner's.
        cider_d: weight of CIDEr-D (0 to 10).
        bleu_4: weight of BLEU-4 (0 to 1).
        count_end: count the end token as a word, which penalises incomplete captions.

    Raises:
        InputError: no record has a caption.

    Reference:
        Rennie et al., "Self-critical Sequence Training for Image Captioning", https://arxiv.org/abs/1612.00563.

    Examples:
        >>> from pathlib import Path
        >>> texts = ("a dog runs on grass", "two cats sit down")
        >>> records = [Record(text, Path(text), (text,), "train") for text in texts]
        >>> tokenizer = WordTokenizer.from_captions(texts)
        >>> _, tokens = tokenizer.encode_padded(tf.constant(["a dog runs on grass", "two cats"]), 8)
        >>> CaptionReward(records, tokenizer)(tokens, [0, 1]).round(2).tolist()
        [10.0, 3.04]
    """

    def __init__(
        self,
        records: Sequence[Record],
        tokenizer: Tokenizer,
        *,
        cider_d: float = 1.0,
        bleu_4: float = 0.0,
        count_end: bool = False,
    ):
        self.cider_d, self.bleu_4, self.count_end = cider_d, bleu_4, count_end
        self._tokenizer, self._words = tokenizer, tokenizer.words
        captions = [caption for record in records for caption in record.captions]
        if not captions:
            raise InputError("there are no references to compute rewards with: give training captions")
        self._hashes = None
        end = f" {_END}" if count_end else ""
        if isinstance(self._words, WordTokenizer):
            words = list(self._words.vocabulary)
            words[self._words.unknown_id], words[self._words.end_id] = _UNKNOWN, _END
            self._hashes = hash_captions(words).words
            texts = iter([text + end for text in self._words.normalise_all(captions)])
        else:
            rows = self._words.encode(tf.constant(captions, tf.string)).to_list()
            texts = iter([_text(self._words, row, _UNKNOWN_IN_REFERENCE) + end for row in rows])
        self.references = References([[next(texts) for _ in record.captions] for record in records])

    def __call__(self, tokens: Any, images: Any) -> np.ndarray:
        """Rewards of captions.

        Args:
            tokens: int [B, T] or [B, samples, T], array or tensor.
            images: int [B], the index of each caption's image.

        Returns:
            float64 [B] or [B, samples].
        """
        tokens = np.asarray(tokens)
        shape = tokens.shape[:-1]
        captions = self._read(tokens.reshape(-1, tokens.shape[-1]))
        images = np.repeat(np.asarray(images), len(captions.lengths) // max(shape[0], 1))
        rewards = np.zeros(len(images))
        if self.cider_d:
            rewards += self.cider_d * cider_d(self.references, captions, images)
        if self.bleu_4:
            rewards += self.bleu_4 * sentence_bleu(self.references, captions, images)[:, 3]
        return rewards.reshape(shape)

    def _read(self, tokens: np.ndarray) -> HashedCaptions:
        """Hashed words of rows of token ids, up to the first end token."""
        words = self._words
        ids = self._tokenizer.to_words(tf.constant(tokens)).numpy()
        if self._hashes is None:
            return hash_captions(
                _text(words, row, _UNKNOWN) + f" {_END}" * (self.count_end and words.end_id in row)
                for row in ids.tolist()
            )
        ends = np.cumsum(ids == words.end_id, axis=1)
        mask = (ends == 0) & (ids != words.pad_id) & (ids != words.start_id)
        if self.count_end:
            mask |= (ids == words.end_id) & (ends == 1)
        return HashedCaptions(self._hashes[ids[mask]], mask.sum(axis=1, dtype=np.int64))


def _text(tokenizer: Tokenizer, ids: list[int], unknown: str) -> str:
    """The caption of piece ids, with `unknown` for unknown pieces, which `decode` would leave out."""
    ids = ids[: ids.index(tokenizer.end_id)] if tokenizer.end_id in ids else ids
    parts: list[list[int]] = [[]]
    for token in ids:
        if token == tokenizer.unknown_id:
            parts.append([])
        else:
            parts[-1].append(token)
    return f" {unknown} ".join(map(tokenizer.decode, parts))
