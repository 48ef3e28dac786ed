"""Captions that are no complete sentences, or that repeat themselves, by the rules of `search_options`."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.search.search_options import SearchOptions

#: Faults of incomplete captions.
CUT, UNKNOWN_WORD, NO_WORD = "cut at the maximum length", "unknown word", "no word"
FUNCTION_WORD = "function word at the end"
#: Faults of repetitive captions.
TWICE_IN_A_ROW, THREE_TIMES, REPEATED = "word twice in a row", "word three times", "words repeated"

_INCOMPLETE = (CUT, UNKNOWN_WORD, NO_WORD, FUNCTION_WORD)
_REPETITIVE = (TWICE_IN_A_ROW, THREE_TIMES, REPEATED)
_UNKNOWN = "<unk>"


def token_faults(token_ids: Sequence[int], end_id: int, unknown_id: int | None) -> tuple[str, ...]:
    """Faults of a caption that its text does not show: it has no end, or an unknown word, which is left out.

    Args:
        token_ids: [T] of words, not of digits.
        end_id: of the token that ends a caption.
        unknown_id: of the unknown word, or None.

    Examples:
        >>> token_faults([7, 3, 8], end_id=2, unknown_id=3)
        ('cut at the maximum length', 'unknown word')
    """
    ids = list(token_ids)
    cut = end_id not in ids
    words = ids if cut else ids[: ids.index(end_id)]
    return (CUT,) * cut + (UNKNOWN_WORD,) * (unknown_id in words)


def text_faults(caption: str, rules: SearchOptions | None = None) -> tuple[str, ...]:
    """Faults of a caption that its text shows; case and punctuation are ignored.

    Args:
        caption: a generated caption.
        rules: the function words, and the length of n-grams that are not repeated; by default English and 3.

    Returns:
        What the caption breaks of the rules that are described at `SearchOptions`.

    Examples:
        >>> text_faults("a dog on a dog with a dog on")
        ('function word at the end', 'word three times', 'words repeated')
        >>> text_faults("a man on a bench near a man on a bench")
        ('words repeated',)
    """
    rules = rules or SearchOptions()
    words, size, functions = light_tokenize(caption).split(), rules.no_repeat_ngram, set(rules.function_words)
    if not words:
        return (NO_WORD,)
    found = {UNKNOWN_WORD: _UNKNOWN in words, FUNCTION_WORD: words[-1] in functions}
    if size:
        ngrams = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
        found[TWICE_IN_A_ROW] = any(one == two for one, two in pairwise(words))
        found[THREE_TIMES] = bool(functions) and any(words.count(one) > 2 for one in set(words) - functions)
        found[REPEATED] = len(set(ngrams)) < len(ngrams)
    return tuple(name for name, broken in found.items() if broken)


def fault_statistics(faults: Iterable[Sequence[str]]) -> dict[str, float | dict[str, int]]:
    """Shares of captions with faults.

    Args:
        faults: of each caption, at least one; empty for a caption without faults.

    Returns:
        `incomplete` and `repetitive`: shares of the captions, 0 to 1; `faults`: number of captions with each
        fault, most frequent first.

    Examples:
        >>> fault_statistics([(), ("word three times", "words repeated"), (), ("no word",)])["repetitive"]
        0.25
    """
    of_captions = [set(found) for found in faults]
    counts = {name: sum(name in found for found in of_captions) for name in (*_INCOMPLETE, *_REPETITIVE)}
    return {
        "incomplete": sum(not found.isdisjoint(_INCOMPLETE) for found in of_captions) / len(of_captions),
        "repetitive": sum(not found.isdisjoint(_REPETITIVE) for found in of_captions) / len(of_captions),
        "faults": {
            name: counts[name] for name in sorted(counts, key=lambda name: -counts[name]) if counts[name]
        },
    }
