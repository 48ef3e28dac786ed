"""Scores of captions by pycocoevalcap and what it brings, and how many captions are exactly right."""

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import find_java
from tfsparsecap.metrics.meteor import meteor
from tfsparsecap.metrics.rouge import rouge_1
from tfsparsecap.metrics.spice import spice
from tfsparsecap.metrics.spice_jars import spice_jars
from tfsparsecap.metrics.tokenize import light_tokenize, ptb_tokenize

# Words of all references and of one caption, by image.
_References = dict[Any, list[str]]
_Captions = dict[Any, list[str]]


@dataclass(frozen=True)
class Scores:
    """What could be computed, and why the rest could not.

    Attributes:
        values: name -> score as a fraction: `BLEU-1` to `BLEU-4`, `METEOR`, `ROUGE-L`, `ROUGE-1` and `SPICE`
            in [0, 1], `CIDEr` in [0, 10].
        not_computed: metric -> reason; `PTB tokenizer` is there where it was wanted and could not be had.
        tokenizer: `"ptb"` or `"light"`: which words were compared.
        seconds: what each metric that was computed took, and `tokenizer` before them.
    """

    values: dict[str, float]
    not_computed: dict[str, str]
    tokenizer: str
    seconds: dict[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class _Work:
    """What a metric is computed of, and how."""

    references: _References
    captions: _Captions
    jars: Path | None
    fetch: bool
    progress: bool

    @property
    def said(self) -> dict[Any, str]:
        return {image: caption for image, (caption,) in self.captions.items()}


def _bleu(work: _Work) -> dict[str, float]:
    scores, _ = Bleu(4).compute_score(work.references, work.captions, verbose=0)
    return {f"BLEU-{size}": float(value) for size, value in enumerate(scores, start=1)}


def _meteor(work: _Work) -> dict[str, float]:
    return {"METEOR": meteor(work.references, work.said, work.progress)}


def _rouge_l(work: _Work) -> dict[str, float]:
    return {"ROUGE-L": float(Rouge().compute_score(work.references, work.captions)[0])}


def _rouge_1(work: _Work) -> dict[str, float]:
    return {"ROUGE-1": rouge_1(work.references, work.said)}


def _cider(work: _Work) -> dict[str, float]:
    images = iter(work.references.values())
    first = _phrases(next(images))
    if all(_phrases(references) == first for references in images):
        raise InputError(
            "CIDEr weighs words by how few images have them in their references, and here all images"
            f" ({len(work.references)}) have the same: score more images together"
        )
    return {"CIDEr": float(Cider().compute_score(work.references, work.captions)[0])}


def _phrases(references: Sequence[str]) -> set[tuple[str, ...]]:
    """All n-grams of 1 to 4 words."""
    split = [reference.split() for reference in references]
    return {
        tuple(words[start : start + size])
        for words in split
        for size in range(1, 5)
        for start in range(len(words) - size + 1)
    }


def _spice(work: _Work) -> dict[str, float]:
    find_java()  # before a large download
    jars = spice_jars(work.jars, fetch=work.fetch, progress=work.progress)
    return {"SPICE": spice(work.references, work.said, jars, work.progress)}


_METRICS: dict[str, Callable[[_Work], dict[str, float]]] = {
    "BLEU": _bleu,
    "METEOR": _meteor,
    "ROUGE-L": _rouge_l,
    "ROUGE-1": _rouge_1,
    "CIDEr": _cider,
    "SPICE": _spice,
}
_TOKENIZERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "light": lambda captions: [light_tokenize(caption) for caption in captions],
    "ptb": ptb_tokenize,
}
#: All metrics, in the order in which papers have them.
METRICS = tuple(_METRICS)
#: Those that take no Java and little time.
QUICK_METRICS = ("BLEU", "CIDEr")


def score(
    references: Mapping[Any, Sequence[str]],
    captions: Mapping[Any, str],
    metrics: Sequence[str] = QUICK_METRICS,
    tokenizer: str = "light",
) -> dict[str, float]:
    """Scores of one caption an image against the image's references: those that can be computed.

    Args:
        references: image id -> its reference captions, at least one with a word in it. They also give CIDEr
            its word frequencies: scores of different sets of images do not compare.
        captions: the same image ids -> the caption to score; an empty one scores 0.
        metrics: any of `METRICS`; `"BLEU"` gives BLEU-1 to BLEU-4.
        tokenizer: `"light"`, which needs no Java, or `"ptb"`, which published scores use.

    Returns:
        Name -> score as a fraction, see `Scores`. A score that cannot be computed, such as the CIDEr of a
        single image, is absent; `every_score` gives the reason.

    Raises:
        InputError: for an unknown metric or tokenizer, no captions, ids that do not match, or an image
            without references.

    Example:
        >>> references = {1: ["a dog runs on grass"], 2: ["two men sit down"]}
        >>> round(score(references, {1: "a dog runs on grass", 2: "two men stand"})["BLEU-1"], 3)
        0.772
    """
    return every_score(references, captions, metrics, tokenizer).values


def every_score(
    references: Mapping[Any, Sequence[str]],
    captions: Mapping[Any, str],
    metrics: Sequence[str] = METRICS,
    tokenizer: str | None = None,
    *,
    spice_folder: Path | None = None,
    fetch_spice: bool = False,
    progress: bool = False,
) -> Scores:
    """Scores as `score` gives them, and for those that cannot be computed the reason.

    Args:
        references, captions: see `score`.
        metrics: any of `METRICS`. METEOR and SPICE take Java, SPICE archives besides.
        tokenizer: see `score`; None is `"ptb"` where there is Java, as in published scores, else `"light"`.
        spice_folder: where the archives lie; None is the cache, see `spice_jars`.
        fetch_spice: fetch the archives if they are not there.
        progress: show progress bars of what takes long.

    Raises:
        InputError: as `score`; of the PTB tokenizer only where it was asked for.

    Example:
        >>> found = every_score({1: ["a dog runs"]}, {1: "a dog"}, ["ROUGE-1", "CIDEr"], "light")
        >>> found.values, list(found.not_computed)
        ({'ROUGE-1': 0.8}, ['CIDEr'])
    """
    check_metrics(metrics)
    values, not_computed, seconds = {}, {}, {}
    began = time.perf_counter()
    words = _tokenized(references, captions, tokenizer or "light")
    if tokenizer is None:
        tokenizer = "light"
        # Behind the light one, so that input that nothing can score is not taken for a Java that fails.
        try:
            words, tokenizer = _tokenized(references, captions, "ptb"), "ptb"
        except InputError as error:
            not_computed["PTB tokenizer"] = str(error)
    seconds["tokenizer"] = time.perf_counter() - began
    work = _Work(*words, spice_folder, fetch_spice, progress)
    for name in dict.fromkeys(metrics):
        began = time.perf_counter()
        try:
            values.update(_METRICS[name](work))
            seconds[name] = time.perf_counter() - began
        except InputError as error:
            not_computed[name] = str(error)
    return Scores(values, not_computed, tokenizer, seconds)


def check_metrics(metrics: Sequence[str]) -> None:
    """Raises InputError where one of them is not of `METRICS`."""
    for name in metrics:
        if name not in _METRICS:
            raise InputError(_unknown("metric", name, _METRICS))


def exact_match(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], tokenizer: str = "light"
) -> float:
    """Share of the captions, 0 to 1, that equal one of their image's references word by word.

    Case and punctuation do not count. Arguments and errors are those of `score`.

    Example:
        >>> exact_match({1: ["A red ball."], 2: ["a cat"]}, {1: "a red ball", 2: "a dog"})
        0.5
    """
    references, captions = _tokenized(references, captions, tokenizer)
    return sum(caption in references[image] for image, (caption,) in captions.items()) / len(captions)


def _tokenized(references, captions, tokenizer: str) -> tuple[_References, _Captions]:
    """References without empty ones and captions, as words, in the order of the references."""
    if tokenizer not in _TOKENIZERS:
        raise InputError(_unknown("tokenizer", tokenizer, _TOKENIZERS))
    if not captions:
        raise InputError("there are no captions to score: give at least one")
    _check_ids(references, captions)
    # All in one go: starting Java takes longer than its work.
    counts = [len(references[image]) for image in references]
    words = iter(
        _TOKENIZERS[tokenizer](
            [text for image in references for text in references[image]]
            + [captions[image] for image in references]
        )
    )
    tokenized = {
        image: [text for text in (next(words) for _ in range(count)) if text]
        for image, count in zip(references, counts, strict=True)
    }
    bare = [image for image, texts in tokenized.items() if not texts]
    if bare:
        raise InputError(
            f"{_named(bare)} without a reference caption that has a word: add one or leave it out"
        )
    return tokenized, {image: [next(words)] for image in references}


def _check_ids(references, captions) -> None:
    for missing, of, others in (
        ([image for image in references if image not in captions], "caption", "references"),
        ([image for image in captions if image not in references], "references", "captions"),
    ):
        if missing:
            raise InputError(
                f"{_named(missing)} in the {others} without {of}: give both the same image ids, of one type"
            )


def _named(images: list) -> str:
    """How many images, and the first of them."""
    return f"{len(images)} image{'s' if len(images) > 1 else ''} (such as {images[0]!r})"


def _unknown(what: str, name: str, known: Mapping[str, Any]) -> str:
    names = {option.lower(): option for option in known}
    close = difflib.get_close_matches(str(name).lower(), names, n=1)
    hint = f'did you mean "{names[close[0]]}"?' if close else f"give one of {', '.join(known)}"
    return f'there is no {what} "{name}": {hint}'
