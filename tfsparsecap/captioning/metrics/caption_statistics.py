"""Statistics of captions that need no images: how new, diverse and long they are, and their faults.

Faulty captions are no complete sentences or repeat themselves, by the rules of `search_options`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.errors import InputError


def caption_statistics(
    captions: Iterable[str], training_captions: Iterable[str] | None = None
) -> dict[str, float]:
    """Statistics of generated captions, one per image.

    Captions are compared word by word; case and punctuation are ignored (see `light_tokenize`).

    Args:
        captions: at least one.
        training_captions: those that the captioner was trained on; None if unknown.

    Returns:
        - `uniqueness`: share of the captions, 0 to 1, that are not among the training captions;
        - `distinct`: number of different captions divided by the number of captions;
        - `mean_length`: words per caption;
        - `vocabulary_used`: number of different words in all captions;
        - `vocabulary_share`: share of the different words of the training captions that are used, 0 to 1.

        Without training captions `uniqueness` and `vocabulary_share` are absent.

    Raises:
        InputError: there are no captions.

    Examples:
        >>> statistics = caption_statistics(["a dog", "A dog.", "a cat runs"], ["a cat runs", "a cat sits"])
        >>> names = ("uniqueness", "distinct", "mean_length", "vocabulary_share")
        >>> [round(statistics[name], 3) for name in names]
        [0.667, 0.667, 2.333, 0.75]
    """
    texts = [light_tokenize(caption) for caption in captions]
    if not texts:
        raise InputError("there are no captions to compute statistics of: give at least one")
    words = {word for text in texts for word in text.split()}
    statistics = {
        "distinct": len(set(texts)) / len(texts),
        "mean_length": sum(len(text.split()) for text in texts) / len(texts),
        "vocabulary_used": len(words),
    }
    training_texts = {light_tokenize(caption) for caption in training_captions or ()}
    training_words = {word for text in training_texts for word in text.split()}
    if not training_words:
        return statistics
    return {
        "uniqueness": sum(text not in training_texts for text in texts) / len(texts),
        **statistics,
        "vocabulary_share": len(words & training_words) / len(training_words),
    }


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
    words = light_tokenize(caption).split()
    if not words:
        return (NO_WORD,)
    rules = rules or SearchOptions()
    size, functions = rules.no_repeat_ngram, set(rules.function_words)
    faults = {UNKNOWN_WORD: _UNKNOWN in words, FUNCTION_WORD: words[-1] in functions}
    if size:
        ngrams = [tuple(words[start : start + size]) for start in range(len(words) - size + 1)]
        faults[TWICE_IN_A_ROW] = any(first == second for first, second in pairwise(words))
        faults[THREE_TIMES] = bool(functions) and any(
            words.count(word) > 2 for word in set(words) - functions
        )
        faults[REPEATED] = len(set(ngrams)) < len(ngrams)
    return tuple(name for name, is_present in faults.items() if is_present)


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
    fault_sets = [set(names) for names in faults]
    counts = Counter({name: sum(name in names for names in fault_sets) for name in _INCOMPLETE + _REPETITIVE})
    return {
        "incomplete": sum(not names.isdisjoint(_INCOMPLETE) for names in fault_sets) / len(fault_sets),
        "repetitive": sum(not names.isdisjoint(_REPETITIVE) for names in fault_sets) / len(fault_sets),
        "faults": {name: count for name, count in counts.most_common() if count},
    }
