"""Scores of captions: pycocoevalcap's BLEU, METEOR, ROUGE-L, CIDEr and SPICE, ROUGE-1 and exact matches."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from tfsparsecap.captioning.metrics import METRICS
from tfsparsecap.captioning.metrics.java import find_java, meteor, ptb_tokenize
from tfsparsecap.captioning.metrics.spice import spice, spice_jars
from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.errors import InputError, unknown_name


@dataclass(frozen=True)
class Scores:
    """Scores, and the reasons why others could not be computed.

    Attributes:
        values: name -> score: `BLEU-1` to `BLEU-4`, `METEOR`, `ROUGE-L`, `ROUGE-1` and `SPICE` from 0 to 1,
            `CIDEr` from 0 to 10.
        not_computed: metric -> reason; also `PTB tokenizer` if the light one was used in its place.
        tokenizer: `"ptb"` or `"light"`.
        seconds: duration of the tokenizer and of each computed metric.
    """

    values: dict[str, float]
    not_computed: dict[str, str]
    tokenizer: str
    seconds: dict[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class _Input:
    """Tokenised references and captions by image, in the same order, and options of SPICE."""

    references: dict[Any, list[str]]
    captions: dict[Any, str]
    jars: Path | None = None
    fetch: bool = False
    progress: bool = False

    def scores(self, scorer: Any, **options: Any) -> Any:
        """The overall score, and those of the images, by one of pycocoevalcap's scorers."""
        captions = {image: [caption] for image, caption in self.captions.items()}
        return scorer.compute_score(self.references, captions, **options)


def _bleu(inputs: _Input) -> dict[str, float]:
    scores, _ = inputs.scores(Bleu(4), verbose=0)
    return {f"BLEU-{size}": float(value) for size, value in enumerate(scores, start=1)}


def _ciders(inputs: _Input) -> np.ndarray:
    """The CIDEr of each image; their mean is the CIDEr."""
    first, *others = map(_ngrams, inputs.references.values())
    if all(ngrams == first for ngrams in others):
        raise InputError(
            "CIDEr weights n-grams by how few images have them in their references, and here all images"
            f" ({len(inputs.references)}) have the same n-grams: score more images together"
        )
    return inputs.scores(Cider())[1]


def _ngrams(references: Sequence[str]) -> set[tuple[str, ...]]:
    """All n-grams of 1 to 4 words."""
    return {
        tuple(words[start : start + size])
        for words in map(str.split, references)
        for size in range(1, 5)
        for start in range(len(words) - size + 1)
    }


def _spice(inputs: _Input) -> dict[str, float]:
    find_java()  # before a large download
    jars = spice_jars(inputs.jars, fetch=inputs.fetch)
    return {"SPICE": spice(inputs.references, inputs.captions, jars, inputs.progress)}


_METRICS: dict[str, Callable[[_Input], dict[str, float]]] = {
    "BLEU": _bleu,
    "METEOR": lambda inputs: {"METEOR": meteor(inputs.references, inputs.captions, inputs.progress)},
    "ROUGE-L": lambda inputs: {"ROUGE-L": float(inputs.scores(Rouge())[0])},
    "ROUGE-1": lambda inputs: {"ROUGE-1": rouge_1(inputs.references, inputs.captions)},
    "CIDEr": lambda inputs: {"CIDEr": float(np.mean(_ciders(inputs)))},
    "SPICE": _spice,
}
_TOKENIZERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "light": lambda captions: [light_tokenize(caption) for caption in captions],
    "ptb": ptb_tokenize,
}
#: Metrics that are fast and do not need Java.
QUICK_METRICS = ("BLEU", "CIDEr")


def compute_scores(
    references: Mapping[Any, Sequence[str]],
    captions: Mapping[Any, str],
    metrics: Sequence[str] = METRICS,
    tokenizer: str | None = None,
    *,
    spice_folder: Path | None = None,
    fetch_spice: bool = False,
    progress: bool = False,
) -> Scores:
    """Scores one caption per image against the image's references.

    Args:
        references: image id -> its reference captions, at least one with a word in it. CIDEr's document
            frequencies come from them, so that scores of different sets of images are not comparable.
        captions: the same image ids -> the caption to score; an empty one scores 0.
        metrics: any of `METRICS`; `"BLEU"` gives BLEU-1 to BLEU-4. METEOR and SPICE require Java, SPICE
            further archives.
        tokenizer: `"ptb"`, as in published scores (requires Java), or `"light"`; None is `"ptb"` if Java is
            installed, else `"light"`.
        spice_folder: where SPICE's archives are; None is the cache, see `spice_jars`.
        fetch_spice: download missing archives.
        progress: show the progress of slow metrics.

    Raises:
        InputError: a metric or tokenizer is unknown, there are no captions, image ids do not match, an image
            has no reference, or the PTB tokenizer was requested but is not available.

    Examples:
        >>> scores = compute_scores({1: ["a dog runs"]}, {1: "a dog"}, ["ROUGE-1", "CIDEr"], "light")
        >>> scores.values, list(scores.not_computed)
        ({'ROUGE-1': 0.8}, ['CIDEr'])
    """
    check_metrics(metrics)
    values, not_computed, seconds = {}, {}, {}
    start = time.perf_counter()
    words = _tokenize(references, captions, tokenizer or "light")
    if tokenizer is None:
        tokenizer = "light"
        # After the light one, so that unusable captions are not mistaken for a failure of Java.
        try:
            words, tokenizer = _tokenize(references, captions, "ptb"), "ptb"
        except InputError as error:
            not_computed["PTB tokenizer"] = str(error)
    seconds["tokenizer"] = time.perf_counter() - start
    inputs = _Input(*words, spice_folder, fetch_spice, progress)
    for name in dict.fromkeys(metrics):
        start = time.perf_counter()
        try:
            values.update(_METRICS[name](inputs))
            seconds[name] = time.perf_counter() - start
        except InputError as error:
            not_computed[name] = str(error)
    return Scores(values, not_computed, tokenizer, seconds)


def cider_of_images(references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str]) -> np.ndarray:
    """The CIDEr of each image, with the light tokenizer.

    Args:
        references, captions: see `compute_scores`.

    Returns:
        float64 [images], in the order of `references`.

    Raises:
        InputError: see `compute_scores`; or there is no CIDEr, as for a single image.

    Examples:
        >>> references = {1: ["a dog runs"], 2: ["a cat"]}
        >>> cider_of_images(references, {1: "a dog runs", 2: "no"}).round(2)
        array([7.5, 0. ])
    """
    return _ciders(_Input(*_tokenize(references, captions, "light")))


def check_metrics(metrics: Sequence[str]) -> None:
    """Raises InputError if one of them is not in `METRICS`."""
    for name in metrics:
        if name not in _METRICS:
            raise unknown_name("metric", name, _METRICS)


def exact_match(references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str]) -> float:
    """Share of the captions, 0 to 1, that equal one of their image's references word by word.

    Case and punctuation are ignored. Arguments and errors are those of `compute_scores`.

    Examples:
        >>> exact_match({1: ["A red ball."], 2: ["a cat"]}, {1: "a red ball", 2: "a dog"})
        0.5
    """
    references, captions = _tokenize(references, captions, "light")
    return sum(caption in references[image] for image, caption in captions.items()) / len(captions)


def rouge_1(references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str]) -> float:
    """Mean over the images of the F-measure of single words against the best reference.

    For a caption with `c` words and a reference with `r` words that share `m` (repeated words as often as
    both have them): precision `m / c`, recall `m / r`, and their harmonic mean `2 m / (c + r)`.

    Args:
        references: image -> its references, words separated by spaces; at least one word in each.
        captions: the same images -> the caption; an empty one scores 0.

    Reference:
        Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004, sections 2 (ROUGE-N with n = 1,
        here as an F-measure with equal weights) and 2.1 (the maximum over references).

    Examples:
        >>> rouge_1({1: ["a dog runs", "the dog"]}, {1: "a dog"})
        0.8
    """
    total = 0.0
    for image, caption in captions.items():
        words = Counter(caption.split())
        others = [Counter(reference.split()) for reference in references[image]]
        total += max(2 * (words & other).total() / (words.total() + other.total()) for other in others)
    return total / len(captions)


def _tokenize(references, captions, tokenizer: str) -> tuple[dict[Any, list[str]], dict[Any, str]]:
    """Tokenised references without empty ones and tokenised captions, in the order of the references."""
    if tokenizer not in _TOKENIZERS:
        raise unknown_name("tokenizer", tokenizer, _TOKENIZERS)
    if not captions:
        raise InputError("there are no captions to score: give at least one")
    for missing, what, others in (
        ([image for image in references if image not in captions], "a caption", "references"),
        ([image for image in captions if image not in references], "references", "captions"),
    ):
        if missing:
            raise InputError(
                f"{_named(missing)} in the {others} without {what}: use the same image ids, of the same type"
            )
    texts = [text for image in references for text in references[image]]
    # All at once, because starting Java takes longer than tokenising.
    words = iter(_TOKENIZERS[tokenizer](texts + [captions[image] for image in references]))
    tokenized = {image: [next(words) for _ in texts] for image, texts in references.items()}
    tokenized = {image: [text for text in texts if text] for image, texts in tokenized.items()}
    empty = [image for image, texts in tokenized.items() if not texts]
    if empty:
        raise InputError(f"{_named(empty)} without a reference with a word in it: add one or leave it out")
    return tokenized, {image: next(words) for image in references}


def _named(images: list) -> str:
    return f"{len(images)} image{'s' if len(images) > 1 else ''} (such as {images[0]!r})"
