"""The reward of drawn captions that self-critical training maximises: CIDEr-D and BLEU, weighted."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.cider_d import CiderD
from tfsparsecap.rewards.ngrams import LONGEST, Captions
from tfsparsecap.rewards.references import References
from tfsparsecap.rewards.sentence_bleu import SentenceBleu


class CaptionReward:
    """Rewards of token ids as sampling, greedy and beam search give them.

    The original implementation of the sparse captioners scores words without the end token, by frequencies
    that were counted once over the training split. Others count the end token as a word, which punishes
    captions that break off: give `end_id` to the references' `CaptionWords` for that.

    Args:
        references: what captions are compared with. Their ids of words are those that `to_words` gives.
        end_id, pad_id, start_id: of the words; the last two are left out of captions wherever they stand.
        to_words: from token ids, int [captions, T], to ids of words, int [captions, T'], in which captions
            end with `end_id`: `RadixTokenizer.to_words` where tokens are digits. It may give a list of texts
            instead, where tokens are pieces of words. None where tokens are words.
        cider_d: weight of CIDEr-D, which goes from 0 to 10.
        bleu: weights of BLEU-1 to BLEU-4, which go from 0 to 1.

    Raises:
        InputError: the weights are no numbers of this kind, or all 0.

    Reference:
        Rennie et al., "Self-critical Sequence Training for Image Captioning", https://arxiv.org/abs/1612.00563.

    Example:
        >>> references = References([[[4, 5, 6, 7]], [[8, 9, 10]]])
        >>> reward = CaptionReward(references, end_id=2, pad_id=0, start_id=1)
        >>> tokens = np.array([[[4, 5, 6, 7, 2], [4, 5, 2, 0, 0]], [[8, 9, 10, 2, 0], [2, 0, 0, 0, 0]]])
        >>> reward(tokens, images=[0, 1]).round(2).tolist()
        [[10.0, 3.04], [7.5, 0.0]]
    """

    def __init__(
        self,
        references: References,
        *,
        end_id: int,
        pad_id: int,
        start_id: int | None = None,
        to_words: Callable[[np.ndarray], Any] | None = None,
        cider_d: float = 1.0,
        bleu: Sequence[float] = (0.0,) * LONGEST,
    ):
        self.weights = np.array([cider_d, *bleu], np.float64)
        if len(self.weights) != 1 + LONGEST or not np.isfinite(self.weights).all() or not self.weights.any():
            raise InputError(
                f"the reward weighs CIDEr-D {cider_d} and BLEU {list(bleu)}: give a number for CIDEr-D and "
                "four for BLEU-1 to BLEU-4, not all 0"
            )
        self.references, self.to_words = references, to_words
        self.end_id, self.pad_id, self.start_id = end_id, pad_id, start_id
        self._cider_d, self._bleu = CiderD(references), SentenceBleu(references)

    def __call__(self, tokens: Any, images: Sequence[int] | np.ndarray) -> np.ndarray:
        """Rewards of captions.

        Args:
            tokens: int [B, T], or [B, samples, T]: an array or a tensor.
            images: int [B], whose references the captions are scored against, from 0.

        Returns:
            float64 [B], or [B, samples].

        Raises:
            InputError: tokens are no such array, hold what is no id, or there is no such image.
        """
        tokens, images = np.asarray(tokens), np.asarray(images)
        if tokens.ndim not in (2, 3) or images.shape != tokens.shape[:1]:
            raise InputError(
                f"tokens are {list(tokens.shape)} and images {list(images.shape)}: give [B, T] or "
                "[B, samples, T], and [B]"
            )
        shape = tokens.shape[:-1]
        captions = self._read(tokens.reshape(math.prod(shape), tokens.shape[-1]))
        images = np.repeat(images, math.prod(shape[1:]))
        rewards = np.zeros(len(captions.lengths))
        if self.weights[0]:
            rewards += self.weights[0] * self._cider_d.score(captions, images)
        if self.weights[1:].any():
            rewards += self._bleu.score(captions, images) @ self.weights[1:]
        return rewards.reshape(shape)

    def _read(self, tokens: np.ndarray) -> Captions:
        """Rows of tokens as captions: where digits become words."""
        words = self.references.words
        given = tokens if self.to_words is None else self.to_words(tokens)
        if isinstance(given, list):
            if words.end_id is not None:
                raise InputError(
                    "to_words gives texts, which do not show whether captions have ended: make the "
                    "references without end_id, or give ids"
                )
            return words.read(given)
        return words.read_tokens(given, end_id=self.end_id, pad_id=self.pad_id, start_id=self.start_id)
