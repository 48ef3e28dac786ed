"""How captions are read before they are scored: as ids of words, or as texts whose words are given ids."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.rewards.ngrams import LIMIT, Captions

#: A text, its words parted by spaces; or the ids of its words, without start, end and padding.
Caption = str | Sequence[int] | np.ndarray


class CaptionWords:
    """What ids mean in captions, and ids for the words of texts.

    Args:
        vocabulary: the words in the order of their ids, for captions that are texts: the words of a text that
            are not in it get ids of their own behind it. None where all captions are ids, or all are texts.
        unknown_id: of the token that stands for words outside the vocabulary. Where a caption that is scored
            has it, it counts as a word that no reference has, as an unknown word is no right answer. None
            where there is none.
        end_id: of the end token, where it counts as the last word of captions; None where it does not.

    Example:
        >>> words = CaptionWords(["<pad>", "a", "dog"]).knowing(["a red dog"])
        >>> words.read(["a dog", "a red cat"]).words.tolist()
        [1, 2, 1, 3, 4]
        >>> words.read([[1, 2]]).words.tolist()
        [1, 2]
    """

    def __init__(
        self,
        vocabulary: Sequence[str] | None = None,
        *,
        unknown_id: int | None = None,
        end_id: int | None = None,
    ):
        for name, value in (("unknown_id", unknown_id), ("end_id", end_id)):
            if value is not None and not 0 <= value < LIMIT:
                raise InputError(f"{name} is {value}: ids of words are from 0 to {LIMIT - 1}")
        self.vocabulary = None if vocabulary is None else tuple(vocabulary)
        self.unknown_id, self.end_id = unknown_id, end_id
        #: Words of texts that are not in the vocabulary, in the order of their ids; None without texts.
        self.further: tuple[str, ...] | None = None
        self._ids: dict[str, int] = {}
        for number, word in enumerate(self.vocabulary or ()):
            self._ids.setdefault(word, number)
        special = [value + 1 for value in (unknown_id, end_id) if value is not None]
        self._first = max([len(self.vocabulary or ()), *special])

    @property
    def _has_texts(self) -> bool:
        return self.vocabulary is not None or self.further is not None

    def knowing(self, texts: Sequence[str]) -> "CaptionWords":
        """The same with ids for all words of texts."""
        new = dict.fromkeys(word for text in texts for word in text.split() if word not in self._ids)
        return self.with_further((*(self.further or ()), *new))

    def with_further(self, further: Sequence[str]) -> "CaptionWords":
        """The same with ids for these words, in their order, behind the vocabulary."""
        result = CaptionWords(self.vocabulary, unknown_id=self.unknown_id, end_id=self.end_id)
        result.further = tuple(further)
        for number, word in enumerate(result.further, result._first):
            result._ids.setdefault(word, number)
        return result

    def read(self, captions: Sequence[Caption]) -> Captions:
        """Captions to score as ids; a word of a text that has no id gets one that is nothing else's.

        Raises:
            InputError: texts and ids are mixed, or an id is out of range.
        """
        captions = list(captions)
        if any(issubclass(kind, str) for kind in set(map(type, captions))):
            return self._read_texts(captions)
        try:
            lengths = np.fromiter(map(len, captions), np.int64, len(captions))
        except TypeError as error:
            raise InputError(
                f"a caption is no text and no list of ids of words ({error}): give one of these for each"
            ) from error
        try:
            words = np.array(list(chain.from_iterable(captions)))
        except ValueError:  # lists in lists, of several lengths
            words = np.array([None])
        if not words.size:
            words = words.astype(np.int64)
        if words.ndim != 1 or words.dtype.kind not in "iu":
            raise InputError(
                "a caption holds something that is no id of a word: give a list of whole numbers for each "
                "caption, or a text for each"
            )
        return Captions(self._checked(words), lengths)

    def _read_texts(self, captions: list) -> Captions:
        if not self._has_texts:
            raise InputError(
                "captions are texts, but the references are ids: make the references with CaptionWords of "
                "the vocabulary, or give ids for all"
            )
        others = [caption for caption in captions if not isinstance(caption, str)]
        if others:
            raise InputError(
                f"some captions are texts and some are not, such as {others[0]!r:.60}: give all in one form"
            )
        new: dict[str, int] = {}
        first = self._first + len(self.further or ())
        ids = [
            self._ids[word] if word in self._ids else new.setdefault(word, first + len(new))
            for text in captions
            for word in text.split()
        ]
        lengths = [len(text.split()) for text in captions]
        return Captions(np.array(ids, np.int64), np.array(lengths, np.int64))

    def read_references(self, captions: Sequence[Caption]) -> tuple[Captions, "CaptionWords"]:
        """References as ids, with the end token behind each where it counts; and this with ids for all words.

        Raises:
            InputError: as `read`.
        """
        texts = [caption for caption in captions if isinstance(caption, str)]
        words = self.knowing(texts) if texts else self
        read = words.read(captions)
        if self.end_id is None:
            return read, words
        return Captions(np.insert(read.words, np.cumsum(read.lengths), self.end_id), read.lengths + 1), words

    def read_tokens(
        self, tokens: np.ndarray, *, end_id: int, pad_id: int, start_id: int | None = None
    ) -> Captions:
        """Captions as sampling and beam search give them.

        Args:
            tokens: integers [captions, T]. All behind the first `end_id` is left out, and the end token
                where it does not count as a word; `pad_id` and `start_id` are left out wherever they stand.

        Raises:
            InputError: these are no integers of this shape, or an id is out of range.
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            raise InputError(
                f"tokens are {tokens.dtype} {list(tokens.shape)}: give integers [captions, tokens of each]"
            )
        ends = tokens == end_id
        behind = np.cumsum(ends, axis=1)
        kept = (behind == 0) & (tokens != pad_id)
        if start_id is not None:
            kept &= tokens != start_id
        if self.end_id is not None:
            if self.end_id != end_id:
                raise InputError(
                    f"captions end with {end_id} and references with {self.end_id}: give both the same end_id"
                )
            kept |= ends & (behind == 1)
        return Captions(self._checked(tokens[kept]), kept.sum(axis=1, dtype=np.int64))

    def _checked(self, words: np.ndarray) -> np.ndarray:
        """Ids as int64 [N]. Raises InputError for one that is none."""
        limit = self._first if self._has_texts else LIMIT
        wrong = words[(words < 0) | (words >= limit)]
        if not len(wrong):
            return words.astype(np.int64)
        if not limit:
            raise InputError(
                "captions are ids, but the references are texts: make the references with CaptionWords of "
                "the vocabulary, or give texts for all"
            )
        raise InputError(
            f"a caption holds the id {wrong[0]}: ids of words are from 0 to {limit - 1}, "
            "so give captions of the vocabulary that the references have"
        )
