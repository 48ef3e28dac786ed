"""Scores of generated captions (BLEU, CIDEr and others), and the files that captions are in."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfsparsecap.captioning.data.records import clean_caption, listed
from tfsparsecap.captioning.inference.confidence import LIKELY, NOT_SURE, is_good, reliability
from tfsparsecap.captioning.metrics.caption_statistics import (
    caption_statistics,
    fault_statistics,
    text_faults,
)
from tfsparsecap.captioning.metrics.named_objects import Labelled, object_scores
from tfsparsecap.captioning.metrics.scores import METRICS, QUICK_METRICS, compute_scores, exact_match
from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.search.search_options import SearchOptions
from tfsparsecap.core.text import normalised, spaced
from tfsparsecap.errors import InputError

# Ids that every programming language can read as an integer.
_INTEGER = re.compile(r"0|[1-9][0-9]{0,14}")


@dataclass(frozen=True)
class ImageCaption:
    """An entry of `captions_SPLIT.json`: the best caption of an image, as in COCO's result files.

    `score` is the sum of the log-probabilities of its tokens, `token_faults` is what its text does not show
    (see `metrics.caption_statistics`), `confidence` is the probability that it is good (see `confidence`), or
    None; `labels` are the names of the objects in the image, or None; `objects` are those that the captioner
    finds likely, see `confidence.likely_objects`, or None if it predicts none.
    """

    image_id: str
    caption: str
    score: float
    references: tuple[str, ...]
    token_faults: tuple[str, ...] = ()
    confidence: float | None = None
    labels: tuple[str, ...] | None = None
    objects: tuple[str, ...] | None = None

    def faults(self, rules: SearchOptions | None = None) -> tuple[str, ...]:
        """Why it is incomplete or repetitive, see `metrics.caption_statistics`."""
        return (*self.token_faults, *text_faults(self.caption, rules))


def scores_of(captions: Iterable[ImageCaption]) -> dict[str, Any]:
    """Scores of captions against their references, and the share that equals a reference.

    `QUICK_METRICS` need no Java. A score that cannot be computed, such as the CIDEr of a single image, is
    left out. Images without a word in their references are not scored; their ids are in
    `without_references`, if there are any.

    Raises:
        InputError: there are no captions.
    """
    references, texts, without = _by_image(captions)
    scores = {
        **compute_scores(references, texts, QUICK_METRICS, "light").values,
        "exact_match": exact_match(references, texts),
    }
    return {**scores, "without_references": without} if without else scores


def all_scores_of(
    captions: Iterable[ImageCaption],
    metrics: Sequence[str] = METRICS,
    *,
    training_captions: Iterable[str] | None = (),
    rules: SearchOptions | None = None,
    spice_folder: Path | None = None,
    fetch_spice: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Scores as papers report them, and statistics of the captions.

    Args:
        captions: of a split.
        metrics: any of `metrics.METRICS`.
        training_captions: of the images that the captioner was trained on; `uniqueness` needs them.
        rules: of complete sentences in the language of the captions; English by default.
        spice_folder: see `metrics.scores.compute_scores`.
        fetch_spice: see `metrics.scores.compute_scores`.
        progress: see `metrics.scores.compute_scores`.

    Returns:
        The scores, `exact_match`, the `caption_statistics`, the `fault_statistics` of incomplete and
        repetitive captions, `confidence` (its `reliability`, if the captions have one), `empty_captions`
        (the number of captions without a word; they score 0), `without_references` (ids of the images that
        are not scored because no reference has a word), `tokenizer` (`"ptb"` as for published scores, or
        `"light"` without Java), `not_computed` (missing score -> reason) and `seconds` (duration of each
        score).

    Raises:
        InputError: there are no captions, or there is no such metric.
    """
    captions = list(captions)
    references, texts, without = _by_image(captions)
    scores = compute_scores(
        references, texts, metrics, spice_folder=spice_folder, fetch_spice=fetch_spice, progress=progress
    )
    statistics: dict[str, Any] = caption_statistics(texts.values(), training_captions)
    rated = [(caption.confidence, caption) for caption in captions if caption.confidence is not None]
    if rated:
        words = (rules or SearchOptions()).function_words
        good = [is_good(caption.caption, caption.references, words) for _, caption in rated]
        statistics["confidence"] = reliability([confidence for confidence, _ in rated], good)
    not_computed = dict(scores.not_computed)
    if "uniqueness" not in statistics:
        not_computed["uniqueness"] = "there are no training captions to compare with"
    return {
        **scores.values,
        "exact_match": exact_match(references, texts),
        **statistics,
        **fault_statistics([caption.faults(rules) for caption in captions]),
        "empty_captions": sum(not light_tokenize(text) for text in texts.values()),
        "without_references": without,
        "tokenizer": scores.tokenizer,
        "not_computed": not_computed,
        "seconds": scores.seconds,
    }


def object_scores_of(
    captions: Iterable[ImageCaption], names: Collection[str], predicted: Collection[str] = ()
) -> dict[str, float]:
    """Object recall and hallucination, see `metrics.named_objects.object_scores`; empty without labels.

    With `predicted`, also `objects_precision` and `objects_recall` of the objects that the captioner finds
    likely, counted over all images; one without any object to divide by is left out.

    Args:
        captions: those of images without known labels are left out.
        names: of all objects that are labelled in the data set.
        predicted: names of all objects that the captioner predicts.
    """
    if not names:
        return {}
    labelled = [(caption, caption.labels) for caption in captions if caption.labels is not None]
    scores = object_scores(
        (Labelled(caption.caption, labels, caption.references) for caption, labels in labelled), names
    )
    common = set(names) & set(predicted)
    pairs = [(common & set(caption.objects or ()), common & set(labels)) for caption, labels in labelled]
    right = sum(len(objects & labels) for objects, labels in pairs)
    predicted_count = sum(len(objects) for objects, _ in pairs)
    labelled_count = sum(len(labels) for _, labels in pairs)
    if predicted_count:
        scores["objects_precision"] = right / predicted_count
    if labelled_count:
        scores["objects_recall"] = right / labelled_count
    return scores


def _by_image(
    captions: Iterable[ImageCaption],
) -> tuple[dict[str, Sequence[str]], dict[str, str], list[str]]:
    """References and captions of the images with a word in a reference, and the ids of the others.

    Both are normalised as the vocabulary is, and have spaces between characters of scripts without spaces:
    the PTB tokenizer does neither.
    """
    references: dict[str, Sequence[str]] = {}
    texts: dict[str, str] = {}
    without: list[str] = []
    for caption in captions:
        if any(map(light_tokenize, caption.references)):
            references[caption.image_id] = [spaced(normalised(text)) for text in caption.references]
            texts[caption.image_id] = spaced(normalised(caption.caption))
        else:
            without.append(caption.image_id)
    if not texts:
        reason = f"none of the {len(without)} images has a reference with a word in it" if without else ""
        raise InputError(
            f"{reason or 'there are no images to score'}: give captions of images with references"
        )
    return references, texts, without


_NEW = "new captions, not in training"


def scores_table(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of scores for a table on the terminal."""
    beam = f", beam {scores['beam']}" if scores["beam"] else ""
    rows = [("captions", f"{scores['split']}, {scores['images']} images{beam}{_remarks(scores)}")]
    names = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "ROUGE-1", "CIDEr", "SPICE")
    rows += [(name, f"{scores[name]:.3f}") for name in names if name in scores]
    rows += _object_rows(scores)
    for name, reason in scores.get("not_computed", {}).items():
        rows.append((_NEW if name == "uniqueness" else name, f"not computed: {reason}"))
    rows.append(("exact matches", f"{scores['exact_match']:.1%}"))
    if "uniqueness" in scores:
        rows.append((_NEW, f"{scores['uniqueness']:.1%}"))
    if "distinct" in scores:
        words = f"{scores['mean_length']:.1f} per caption, {scores['vocabulary_used']} different ones"
        if "vocabulary_share" in scores:
            words += f", {scores['vocabulary_share']:.1%} of the training vocabulary"
        same = scores["distinct"] * scores["images"] < 1.5 < scores["images"]
        distinct = "none: all images have the same caption" if same else f"{scores['distinct']:.1%}"
        rows += [("distinct captions", distinct), ("words", words)]
    if "faults" in scores:
        shares = f"{scores['incomplete']:.1%} incomplete, {scores['repetitive']:.1%} repetitive"
        counts = ", ".join(f"{name}: {count}" for name, count in scores["faults"].items())
        rows.append(("faulty captions", shares + f" ({counts})" * bool(counts)))
    if "confidence" in scores:
        confidence = scores["confidence"]
        rows.append(
            (
                "confidence",
                f"calibration error {confidence['error']:.3f} ({confidence['chance']:.3f} by chance);"
                f" {confidence['good']:.1%} of the captions are good,"
                f" {confidence['sure']:.1%} have a confidence of at least {NOT_SURE:.0%}",
            )
        )
        pairs = ", ".join(f"{mean:.0%} {share:.0%}" for mean, share, _ in confidence["table"])
        rows.append(("confidence, share of good captions", pairs))
    if "weights" in scores:
        nonzero = f"{scores['nonzero_weights']:,} of {scores['weights']:,}"
        rows.append(("sparsity", f"{scores['sparsity']:.2%}, {nonzero} weights are not zero"))
    if "ms_per_image" in scores:
        threads = f", on one of {scores['threads']} threads" if scores.get("threads", 1) > 1 else ""
        rows.append(("latency", f"{scores['ms_per_image']:.1f} ms per image on this machine{threads}"))
    if "images_per_second" in scores:
        rows.append(("throughput", f"{scores['images_per_second']:.1f} images/s, including reading them"))
    if "seconds" in scores:
        seconds = ", ".join(f"{name} {taken:.1f}" for name, taken in scores["seconds"].items())
        rows.append(("seconds of scoring", seconds))
    return rows


_QUALITY = ("precision", "recall")


def _object_rows(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Object recall and hallucination, and the quality of the predicted objects."""
    rows, name = [], "object hallucination"
    if "object_recall" in scores:
        text = f"{scores['object_recall']:.1%} of the captions name a labelled object"
        rows.append(("object recall", f"{text} ({scores['object_images']} images with known labels)"))
    if "object_hallucination" in scores:
        text = f"{scores['object_hallucination']:.1%} of the captions name an object that is not labelled"
        united = f"CHAIR_s {scores['CHAIR_s']:.1%}"
        if "CHAIR_i" in scores:
            text += f", as are {scores['object_hallucination_mentions']:.1%} of the objects named"
            united += f", CHAIR_i {scores['CHAIR_i']:.1%}"
        rows += [(name, text), (f"{name}, with references", united)]
    shares = [f"{what} {scores[f'objects_{what}']:.1%}" for what in _QUALITY if f"objects_{what}" in scores]
    if shares:
        rows.append((f"objects with a probability of at least {LIKELY:.0%}", ", ".join(shares)))
    return rows


def _remarks(scores: dict[str, Any]) -> str:
    """What to know about the images behind the scores."""
    remarks = []
    for name, reason in (("left_out", "cannot be read"), ("without_references", "no word in a reference")):
        if scores.get(name):
            remarks.append(f"{len(scores[name])} left out, {reason} ({listed(scores[name])})")
    if scores.get("empty_captions"):
        remarks.append(f"{scores['empty_captions']} captions without a word, which score 0")
    if scores.get("references_without_caption"):
        remarks.append(f"{scores['references_without_caption']} images have references but no caption")
    return "".join(f"; {remark}" for remark in remarks)


def as_rows(captions: Iterable[ImageCaption]) -> list[dict[str, Any]]:
    """The content of `captions_SPLIT.json`: a COCO result file, with references and scores.

    Ids are written as numbers if all of them are numbers, as in MS-COCO.
    """
    rows = [asdict(caption) for caption in captions]
    if all(_INTEGER.fullmatch(row["image_id"]) for row in rows):
        rows = [{**row, "image_id": int(row["image_id"])} for row in rows]
    return rows


def from_rows(rows: Any) -> list[ImageCaption]:
    """The inverse of `as_rows`.

    Raises:
        ValueError, KeyError, TypeError: the rows have another form.
    """
    return [
        ImageCaption(str(row["image_id"]), row["caption"], float(row["score"]), tuple(row["references"]))
        for row in rows
    ]


def coco_results(results: Any, references: Any) -> tuple[list[ImageCaption], int]:
    """Joins captions and references in COCO's formats.

    Args:
        results: `[{"image_id": …, "caption": …}, …]`.
        references: `{"annotations": [{"image_id": …, "caption": …}, …]}` or only the list; an entry with a
            list `references`, as in `captions_SPLIT.json`, counts with that; one with `labels`, a list of the
            objects in the image or null, gives the image these labels.

    Returns:
        The captions, and the number of images with references but no caption. Results for a part of a data
        set are scored on that part, as is usual for MS-COCO.

    Raises:
        InputError: one of the two has another form, an image has two captions or no reference, or the two
            have no image in common.
    """
    by_image: dict[str, list[str]] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for image_id, row in _rows(references, "the references"):
        texts = row.get("references", [row.get("caption")])
        by_image.setdefault(image_id, []).extend(_texts(texts, image_id, "the references"))
        if row.get("labels") is not None:
            labels[image_id] = _labels(row["labels"], image_id)
    captions: dict[str, str] = {}
    repeated = []
    for image_id, row in _rows(results, "the results"):
        if image_id in captions:
            repeated.append(image_id)
        (captions[image_id],) = _texts([row.get("caption")], image_id, "the results")
    if repeated:
        raise InputError(f"the results have more than one caption of {_images(repeated)}: keep one of each")
    unknown = [image_id for image_id in captions if image_id not in by_image]
    if unknown and len(unknown) == len(captions):
        raise InputError(
            f"the references are of another data set: none of the {len(captions)} images of the results"
            f" (such as {listed(unknown[:1])}) is among their {len(by_image)}"
            + (f" (such as {listed([next(iter(by_image))])})" if by_image else "")
        )
    if unknown:
        raise InputError(
            f"the references lack {_images(unknown)} of the results: remove these results, or give the"
            " references of the same data set"
        )
    joined = [
        ImageCaption(image, text, 0.0, tuple(by_image[image]), labels=labels.get(image))
        for image, text in captions.items()
    ]
    return joined, len(by_image) - len(captions)


def caption_texts(captions: Any) -> list[str]:
    """All captions of a file in COCO's format, such as the training captions.

    Raises:
        InputError: it has another form.
    """
    name = "the training captions"
    return [
        text
        for image_id, row in _rows(captions, name)
        for text in _texts([row.get("caption")], image_id, name)
    ]


def _rows(content: Any, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Image ids and entries of a file in COCO's format."""
    rows = content.get("annotations") if isinstance(content, Mapping) else content
    if not isinstance(rows, list):
        raise InputError(f"{name} are not a list of image_id and caption: give a file in COCO's format")
    for number, row in enumerate(rows, 1):
        image_id = row.get("image_id") if isinstance(row, Mapping) else None
        if not isinstance(image_id, int | str) or isinstance(image_id, bool):
            raise InputError(
                f"entry {number} of {name} has no image_id that is an integer or a string: give COCO's format"
            )
        # The same image may be 42 in one file and "42" in another. Lone surrogates cannot be written.
        yield str(image_id).encode("utf-8", "replace").decode("utf-8"), row


def _texts(texts: Any, image_id: str, name: str) -> list[str]:
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"image {listed([image_id])} of {name} has no caption string: give COCO's format")
    return [clean_caption(text) for text in texts]


def _labels(labels: Any, image_id: str) -> tuple[str, ...]:
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(
            f"the labels of image {listed([image_id])} of the references are not a list of strings: give one,"
            " or null"
        )
    return tuple(map(clean_caption, labels))


def _images(image_ids: list[str]) -> str:
    return f"{len(image_ids)} image{'s' if len(image_ids) > 1 else ''} ({listed(image_ids)})"
