"""N-grams of word ids as numbers, exactly: no hash, so no two n-grams ever share one."""

from typing import NamedTuple

import numpy as np

from tfsparsecap.errors import InputError

#: N-grams have one to so many words.
LONGEST = 4
#: Both a word's id and an n-gram's number are below this, so that a pair of them fits an int64.
LIMIT = 1 << 31

_BITS = 32


class Captions(NamedTuple):
    """Many captions in two arrays.

    Attributes:
        words: int64 [words of all captions], ids from 0 to `LIMIT - 1`.
        lengths: int64 [captions], words of each.
    """

    words: np.ndarray
    lengths: np.ndarray


class Ngrams(NamedTuple):
    """All n-grams of one size in many captions, caption by caption, each in its place.

    Attributes:
        captions: int64 [n-grams], which caption it stands in.
        numbers: int64 [n-grams], equal for equal n-grams and for no others.
    """

    captions: np.ndarray
    numbers: np.ndarray


class NgramTable:
    """Numbers for n-grams of one to four words, from 0 on.

    An n-gram is looked up as the pair of the number of all its words but the last, and the last word: 63
    bits, whatever the size of the vocabulary.

    Args:
        pieces: for each time that the table grew, the sorted pairs of each size, int64.

    Attributes:
        size: how many n-grams have a number.

    Example:
        >>> table = NgramTable()
        >>> ngrams, table = table.number(Captions(np.array([7, 9, 7, 9]), np.array([2, 2])))
        >>> ngrams[0].numbers.tolist(), ngrams[1].numbers.tolist(), table.size
        ([0, 1, 0, 1], [2, 2], 3)
    """

    def __init__(self, pieces: tuple[tuple[np.ndarray, ...], ...] = ()):
        self.pieces = pieces
        self.size = sum(len(pairs) for piece in pieces for pairs in piece)

    def number(self, captions: Captions) -> tuple[list[Ngrams], "NgramTable"]:
        """Numbers of all n-grams; those that the table does not hold get new ones.

        Returns:
            The n-grams by size, one word first; and the table with the new ones in it. This one stays as it
            is.

        Raises:
            InputError: there are more than 2 ** 31 different n-grams.
        """
        words, lengths = captions
        owners = np.repeat(np.arange(len(lengths)), lengths)
        # Words from each place to the end of its caption.
        left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
        # Of the n-gram that begins at each place, one word shorter each time than the one that is looked up.
        begun = np.zeros(len(words), np.int64)
        first, added, ngrams = self.size, [], []
        for size in range(1, LONGEST + 1):
            places = np.flatnonzero(left >= size)
            pairs = begun[places] << _BITS | words[places + (size - 1)]
            # In ascending order and each once: a large table is searched several times faster then.
            distinct, ranks = np.unique(pairs, return_inverse=True)
            numbers = self._find(distinct, size)
            new = distinct[numbers < 0]
            numbers[numbers < 0] = np.arange(first, first + len(new))
            first += len(new)
            if first > LIMIT:
                raise InputError(
                    f"there are more than {LIMIT} different n-grams: give fewer captions at once"
                )
            added.append(new)
            begun[places] = numbers[ranks]
            ngrams.append(Ngrams(owners[places], begun[places]))
        return ngrams, self if first == self.size else NgramTable((*self.pieces, tuple(added)))

    def _find(self, pairs: np.ndarray, size: int) -> np.ndarray:
        """The number of each pair, int64, -1 where it has none."""
        numbers = np.full(len(pairs), -1, np.int64)
        first = 0
        for piece in self.pieces:
            known = piece[size - 1]
            if len(known):
                places = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
                found = known[places] == pairs
                numbers[found] = places[found] + (first + sum(len(other) for other in piece[: size - 1]))
            first += sum(len(other) for other in piece)
        return numbers
