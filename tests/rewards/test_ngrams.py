"""N-grams as numbers against tuples of words in a dictionary."""

from itertools import chain

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.rewards import ngrams
from tfsparsecap.rewards.ngrams import LIMIT, LONGEST, Captions, NgramTable


def captions_of(lists):
    words = np.array(list(chain.from_iterable(lists)), np.int64)
    return Captions(words, np.array([len(one) for one in lists], np.int64))


def drawn(random, captions, words):
    return [random.choice(words, random.integers(0, 9)).tolist() for _ in range(captions)]


def numbers_of(table, lists):
    """By hand: of each n-gram as a tuple, the set of its numbers; and what the table became."""
    found, table = table.number(captions_of(lists))
    assert len(found) == LONGEST
    numbers = {}
    for size, (owners, values) in enumerate(found, 1):
        places = [
            (owner, tuple(words[first : first + size]))
            for owner, words in enumerate(lists)
            for first in range(len(words) - size + 1)
        ]
        assert owners.tolist() == [owner for owner, _ in places]
        for (_, ngram), value in zip(places, values.tolist(), strict=True):
            numbers.setdefault(ngram, set()).add(value)
    return numbers, table


# Words that equal each other in their lowest 15, 16 or 30 bits, and the largest there is.
@pytest.mark.parametrize(
    "words", [[0, 1, 2], [0, 1, 1 << 15, 1 << 16, (1 << 16) + 1, 1 << 30, LIMIT - 2, LIMIT - 1]]
)
def test_equal_ngrams_have_one_number_and_different_ones_never_the_same(words):
    random = np.random.default_rng(0)
    first, second = drawn(random, 60, words[:-1]), drawn(random, 60, words)
    numbers, table = numbers_of(NgramTable(), first)
    assert all(len(values) == 1 for values in numbers.values())
    assert set().union(*numbers.values()) == set(range(len(numbers))) == set(range(table.size))
    # What was known keeps its number, in a table that grew once and in one that grew twice.
    more, grown = numbers_of(table, second)
    assert set(more) - set(numbers) and set(more) & set(numbers)
    everything = {**more, **numbers}
    assert all(more[ngram] == numbers[ngram] for ngram in set(more) & set(numbers))
    assert set().union(*everything.values()) == set(range(len(everything))) == set(range(grown.size))
    again, same = numbers_of(grown, first + second)
    assert again == everything and same is grown


def test_captions_without_words():
    found, table = NgramTable().number(captions_of([[], []]))
    assert table.size == 0 and all(len(level.numbers) == 0 for level in found)
    assert NgramTable().number(captions_of([]))[1].size == 0


def test_too_many_ngrams_are_refused(monkeypatch):
    monkeypatch.setattr(ngrams, "LIMIT", 5)
    table = NgramTable().number(captions_of([[3, 4, 3]]))[1]
    assert table.size == 5 and table.number(captions_of([[3, 4], [4, 3]]))[1] is table
    with pytest.raises(InputError, match="more than 5 different n-grams"):
        table.number(captions_of([[3, 3]]))
