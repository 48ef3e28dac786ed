"""The reward of self-critical sequence training, from token ids: a weighted sum of CIDEr-D and BLEU-4."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.captioning.rewards.references import Captions, References, hash_captions
from tfsparsecap.captioning.rewards.similarity import cider_d, sentence_bleu
from tfsparsecap.errors import InputError

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

    def _read(self, tokens: np.ndarray) -> Captions:
        """Hashed words of rows of token ids, up to the first end token."""
        words = self._words
        ids = self._tokenizer.to_words(tf.constant(tokens)).numpy()
        if self._hashes is None:
            return hash_captions(
                _text(words, row, _UNKNOWN) + f" {_END}" * (self.count_end and words.end_id in row)
                for row in ids.tolist()
            )
        ends = np.cumsum(ids == words.end_id, axis=1)
        kept = (ends == 0) & (ids != words.pad_id) & (ids != words.start_id)
        if self.count_end:
            kept |= (ids == words.end_id) & (ends == 1)
        return Captions(self._hashes[ids[kept]], kept.sum(axis=1, dtype=np.int64))


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
