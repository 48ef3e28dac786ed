"""Captions of whole splits and how good they are: by real decoding, as on the phone."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from tfsparsecap.data.images import read_image
from tfsparsecap.data.pipeline import unwrap_input_errors
from tfsparsecap.data.records import Record, clean_caption, shown
from tfsparsecap.data.region_features import RegionFeatures
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import TFLiteCaptioner
from tfsparsecap.metrics.caption_statistics import caption_statistics
from tfsparsecap.metrics.scores import METRICS, QUICK_METRICS, every_score, exact_match, score
from tfsparsecap.metrics.tokenize import light_tokenize

# Ids that programs in any language read as the number that they are.
_WHOLE_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")


@dataclass(frozen=True)
class ImageCaption:
    """One line of `captions_SPLIT.json`: the best caption of an image, as COCO's result files have it.

    `score` is the sum of the log-probabilities, `references` what people said.
    """

    image_id: str
    caption: str
    score: float
    references: tuple[str, ...]


def caption_records(
    decoder: Decoder,
    records: Sequence[Record],
    batches: tf.data.Dataset,
    tokenizer: Tokenizer,
    *,
    progress: bool = False,
) -> tuple[list[ImageCaption], float]:
    """The best caption of each image, and the milliseconds that an image took.

    Reading the images is in the milliseconds, as far as the search waits for it; making the graph of the
    search is not.

    Args:
        decoder: of a captioner.
        records: what `batches` were made of.
        batches: see `data.pipeline.image_batches`; images that cannot be read are missing there, and here.
        tokenizer: ids to words.
        progress: show a progress bar.
    """
    captions, timed, seconds, batch = [], 0, 0.0, None
    began = time.perf_counter()
    with tqdm(total=len(records), unit="image", desc="captioning", disable=not progress) as bar:
        for batch in _readable(batches):
            traces = decoder.traces
            token_ids, scores = decoder(batch)
            best = zip(batch["index"].numpy(), token_ids[:, 0].numpy(), scores[:, 0].numpy(), strict=True)
            for index, words, total in best:
                record = records[index]
                captions.append(
                    ImageCaption(record.image_id, tokenizer.decode(words), float(total), record.captions)
                )
            bar.update(len(token_ids))
            now = time.perf_counter()
            if decoder.traces == traces:
                timed, seconds = timed + len(token_ids), seconds + now - began
            began = now
        if not timed and batch is not None:
            timed, began = len(batch["index"]), time.perf_counter()
            decoder(batch)[0].numpy()
            seconds = time.perf_counter() - began
    return captions, 1000 * seconds / max(1, timed)


def _readable(batches: tf.data.Dataset) -> Iterator[dict]:
    iterator = iter(batches)
    while True:
        with unwrap_input_errors():
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def caption_with_file(
    captioners: Sequence[TFLiteCaptioner],
    records: Sequence[Record],
    features: RegionFeatures | None = None,
    *,
    progress: bool = False,
) -> tuple[list[ImageCaption], float, float]:
    """The best caption of each image by an exported file, and how fast they came.

    Images that cannot be read are left out.

    Args:
        captioners: the same file, loaded once for each thread that is to caption.
        records: the images, at least one.
        features: of the records, for a file that takes features.
        progress: show a progress bar.

    Returns:
        The captions; the milliseconds that one took its thread, without reading the image; and the images
        that all threads captioned in a second, with it.
    """
    free: SimpleQueue[TFLiteCaptioner] = SimpleQueue()

    def caption(index: int, captioner: TFLiteCaptioner) -> tuple[ImageCaption, float] | None:
        record = records[index]
        try:
            if features is None:
                given = {"image": read_image(record.image, captioner.image_size)}
            else:
                given = features.one(index)
        except InputError:
            return None
        given = {name: given[name] for name in captioner.input_names if name in given}
        began = time.perf_counter()
        text, total = captioner.caption(**given)[0]
        seconds = time.perf_counter() - began
        return ImageCaption(record.image_id, text, total, record.captions), seconds

    def next_caption(index: int) -> tuple[ImageCaption, float] | None:
        captioner = free.get()
        try:
            return caption(index, captioner)
        finally:
            free.put(captioner)

    for captioner in captioners:
        # The first one prepares the runtime's memory.
        caption(0, captioner)
        free.put(captioner)
    threads = ThreadPoolExecutor(len(captioners))
    try:
        began = time.perf_counter()
        results = threads.map(next_caption, range(len(records)))
        bar = tqdm(results, total=len(records), unit="image", desc="captioning", disable=not progress)
        done = [result for result in bar if result is not None]
        seconds = time.perf_counter() - began
    finally:
        # Who stops it in the middle does not wait for the rest.
        threads.shutdown(cancel_futures=True)
    milliseconds = 1000 * sum(taken for _, taken in done) / max(1, len(done))
    return [said for said, _ in done], milliseconds, len(done) / seconds


def scores_of(captions: Iterable[ImageCaption], metrics: Sequence[str] = QUICK_METRICS) -> dict[str, Any]:
    """Scores of captions against their references, and the share that equals a reference word by word.

    No Java is needed for `QUICK_METRICS`. A score that cannot be computed, such as the CIDEr of one image, is
    absent. Images without a word in their references do not count: where there are some,
    `without_references` holds their ids.

    Raises:
        InputError: there are no captions.
    """
    references, said, without = _by_image(captions)
    scores = {**score(references, said, metrics), "exact_match": exact_match(references, said)}
    return {**scores, "without_references": without} if without else scores


def every_score_of(
    captions: Iterable[ImageCaption],
    metrics: Sequence[str] = METRICS,
    *,
    training_captions: Iterable[str] = (),
    spice_folder: Path | None = None,
    fetch_spice: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """All that can be said of captions: scores as papers have them, and what the captions are like.

    Args:
        captions: of a split.
        metrics: any of `metrics.scores.METRICS`.
        training_captions: what the captioner has learnt from; without them it is not known what is new.
        spice_folder, fetch_spice, progress: see `metrics.scores.every_score`.

    Returns:
        The scores, `exact_match`, what `caption_statistics` gives, `empty_captions` (how many have no word;
        they score 0), `without_references` (ids of the images that do not count because no reference has a
        word), `tokenizer` (`"ptb"` as for published scores, `"light"` where there is no Java),
        `not_computed`: what is absent -> the reason, and `seconds`: what each score took.

    Raises:
        InputError: there are no captions, or there is no such metric.
    """
    references, said, without = _by_image(captions)
    found = every_score(
        references,
        said,
        metrics,
        spice_folder=spice_folder,
        fetch_spice=fetch_spice,
        progress=progress,
    )
    figures = caption_statistics(said.values(), training_captions)
    not_computed = dict(found.not_computed)
    if "uniqueness" not in figures:
        not_computed["uniqueness"] = "there are no training captions to compare with"
    return {
        **found.values,
        "exact_match": exact_match(references, said),
        **figures,
        "empty_captions": sum(not light_tokenize(caption) for caption in said.values()),
        "without_references": without,
        "tokenizer": found.tokenizer,
        "not_computed": not_computed,
        "seconds": found.seconds,
    }


def _by_image(
    captions: Iterable[ImageCaption],
) -> tuple[dict[str, Sequence[str]], dict[str, str], list[str]]:
    """References and captions of the images with a word in a reference, and the ids of the others."""
    references, said, without = {}, {}, []
    for one in captions:
        if any(map(light_tokenize, one.references)):
            references[one.image_id], said[one.image_id] = one.references, one.caption
        else:
            without.append(one.image_id)
    if without and not said:
        raise InputError(
            f"none of the {len(without)} images has a reference with a word in it: give references of them"
        )
    if not said:
        raise InputError("there is no image to score: give a split, or results, with some")
    return references, said, without


def as_rows(captions: Iterable[ImageCaption]) -> list[dict[str, Any]]:
    """What `captions_SPLIT.json` holds: a COCO result file with the references beside the captions.

    Ids that are all numbers, as MS-COCO's, are written as numbers.
    """
    rows = [asdict(caption) for caption in captions]
    if all(_WHOLE_NUMBER.fullmatch(row["image_id"]) for row in rows):
        rows = [{**row, "image_id": int(row["image_id"])} for row in rows]
    return rows


def from_rows(rows: Any) -> list[ImageCaption]:
    """What `as_rows` gave.

    Raises:
        ValueError, KeyError, TypeError: these are no such rows.
    """
    return [
        ImageCaption(str(row["image_id"]), row["caption"], float(row["score"]), tuple(row["references"]))
        for row in rows
    ]


def coco_results(results: Any, references: Any) -> tuple[list[ImageCaption], int]:
    """Captions and references as COCO's files have them, brought together.

    Args:
        results: `[{"image_id": …, "caption": …}, …]`.
        references: `{"annotations": [{"image_id": …, "caption": …}, …]}`, or such a list itself; of entries
            with a list `references`, as `captions_SPLIT.json` has them, that is taken.

    Returns:
        The captions, and how many images with references have none: results of a part of a data set are
        scored by themselves, as is usual with MS-COCO's.

    Raises:
        InputError: one of them has another form, an image is captioned twice or has no reference, or the
            two files have no image in common.
    """
    people: dict[str, list[str]] = {}
    for image_id, row in _rows(references, "the references"):
        texts = row.get("references", [row.get("caption")])
        people.setdefault(image_id, []).extend(_texts(texts, image_id, "the references"))
    said: dict[str, str] = {}
    twice = []
    for image_id, row in _rows(results, "the results"):
        if image_id in said:
            twice.append(image_id)
        (said[image_id],) = _texts([row.get("caption")], image_id, "the results")
    if twice:
        raise InputError(f"the results caption {_images(twice)} more than once: keep one caption of each")
    unknown = [image_id for image_id in said if image_id not in people]
    if unknown and len(unknown) == len(said):
        raise InputError(
            f"the references are of another data set: none of the {len(said)} images of the results"
            f" (such as {shown(unknown[:1])}) is among their {len(people)}"
            + (f" (such as {shown([next(iter(people))])})" if people else "")
        )
    if unknown:
        raise InputError(
            f"{_images(unknown)} of the results {_are(unknown)} not among the references: take them out, or"
            " give the references of the same set"
        )
    captions = [ImageCaption(image, text, 0.0, tuple(people[image])) for image, text in said.items()]
    return captions, len(people) - len(said)


def caption_texts(captions: Any) -> list[str]:
    """All captions of a file in COCO's format, such as those that a captioner was trained on.

    Raises:
        InputError: it has another form.
    """
    what = "the training captions"
    return [
        text
        for image_id, row in _rows(captions, what)
        for text in _texts([row.get("caption")], image_id, what)
    ]


def _rows(content: Any, what: str) -> Iterator[tuple[str, Mapping]]:
    """Image ids and entries of a file in COCO's format."""
    rows = content.get("annotations") if isinstance(content, Mapping) else content
    if not isinstance(rows, list):
        raise InputError(f"{what} are no list of image_id and caption: give a file in COCO's format")
    for number, row in enumerate(rows, 1):
        image_id = row.get("image_id") if isinstance(row, Mapping) else None
        if not isinstance(image_id, int | str) or isinstance(image_id, bool):
            raise InputError(
                f"entry {number} of {what} has no image_id, a number or a text: give COCO's format"
            )
        # The same image may be 42 in one file and "42" in the other. Half a surrogate cannot be written.
        yield str(image_id).encode("utf-8", "replace").decode("utf-8"), row


def _texts(texts: Any, image_id: str, what: str) -> list[str]:
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"image {shown([image_id])} of {what} has no caption that is a text: give COCO's format"
        )
    return [clean_caption(text) for text in texts]


def _images(image_ids: list[str]) -> str:
    return f"{len(image_ids)} image{'s' if len(image_ids) > 1 else ''} ({shown(image_ids)})"


def _are(image_ids: list[str]) -> str:
    return "are" if len(image_ids) > 1 else "is"
