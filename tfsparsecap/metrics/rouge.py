"""ROUGE-1: how far a caption has the words of a reference."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def rouge_1(references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str]) -> float:
    """Mean over the images of the F-measure of single words against the reference that fits best.

    Of a caption with `c` words and a reference with `r` words that share `m` (a word counts as often as both
    have it): precision `m / c`, recall `m / r`, and their harmonic mean `2 m / (c + r)`. The largest over an
    image's references counts.

    Args:
        references: image -> its references, words parted by spaces; at least one word in each.
        captions: the same images -> the caption, likewise; an empty one has 0.

    Reference:
        Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, sections 2 (ROUGE-N with n = 1,
        here as an F-measure with equal weights) and 2.1 (the maximum over references).

    Example:
        >>> rouge_1({1: ["a dog runs", "the dog"]}, {1: "a dog"})
        0.8
    """
    total = 0.0
    for image, caption in captions.items():
        words = Counter(caption.split())
        total += max(_f_measure(words, Counter(reference.split())) for reference in references[image])
    return total / len(captions)


def _f_measure(caption: Counter, reference: Counter) -> float:
    return 2 * (caption & reference).total() / (caption.total() + reference.total())
