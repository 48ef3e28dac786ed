"""BLEU and CIDEr of captions, by pycocoevalcap, and how many captions are exactly right."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.tokenize import light_tokenize, ptb_tokenize

# Words of all references and of one caption, by image.
_References = dict[Any, list[str]]
_Captions = dict[Any, list[str]]


def _bleu(references: _References, captions: _Captions) -> dict[str, float]:
    scores, _ = Bleu(4).compute_score(references, captions, verbose=0)
    return {f"BLEU-{size}": float(value) for size, value in enumerate(scores, start=1)}


def _cider(references: _References, captions: _Captions) -> dict[str, float]:
    return {"CIDEr": float(Cider().compute_score(references, captions)[0])}


_METRICS: dict[str, Callable[[_References, _Captions], dict[str, float]]] = {"BLEU": _bleu, "CIDEr": _cider}
_TOKENIZERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "light": lambda captions: [light_tokenize(caption) for caption in captions],
    "ptb": ptb_tokenize,
}


def score(
    references: Mapping[Any, Sequence[str]],
    captions: Mapping[Any, str],
    metrics: Sequence[str] = ("BLEU", "CIDEr"),
    tokenizer: str = "light",
) -> dict[str, float]:
    """Scores of one caption an image against the image's references.

    Args:
        references: image id -> its reference captions, at least one with a word in it. They also give CIDEr
            its word frequencies: scores of different sets of images do not compare, one image has CIDEr 0.
        captions: the same image ids -> the caption to score; an empty one scores 0.
        metrics: any of `"BLEU"` (gives BLEU-1 to BLEU-4) and `"CIDEr"`.
        tokenizer: `"light"`, which needs no Java, or `"ptb"`, which published scores use.

    Returns:
        Name -> score as a fraction: `"BLEU-1"` to `"BLEU-4"` in [0, 1], `"CIDEr"` in [0, 10].

    Raises:
        InputError: for an unknown metric or tokenizer, no captions, ids that do not match, or an image
            without references.

    Example:
        >>> references = {1: ["a dog runs on grass"], 2: ["two men sit down"]}
        >>> round(score(references, {1: "a dog runs on grass", 2: "two men stand"})["BLEU-1"], 3)
        0.772
    """
    unknown = [name for name in metrics if name not in _METRICS]
    if unknown:
        raise InputError(_unknown("metric", unknown[0], _METRICS))
    words = _tokenized(references, captions, tokenizer)
    result = {}
    for name in metrics:
        result.update(_METRICS[name](*words))
    return result


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
