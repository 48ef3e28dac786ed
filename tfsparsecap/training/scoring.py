"""Captions of whole splits and how good they are: by real decoding, as on the phone."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from tfsparsecap.bundle import TFLiteCaptioner
from tfsparsecap.data.images import read_image
from tfsparsecap.data.pipeline import reading_errors
from tfsparsecap.data.records import Record
from tfsparsecap.data.region_features import RegionFeatures
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.metrics.scores import exact_match, score


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
) -> list[ImageCaption]:
    """The best caption of each image.

    Args:
        decoder: of a captioner.
        records: what `batches` were made of.
        batches: see `data.pipeline.image_batches`; images that cannot be read are missing there, and here.
        tokenizer: ids to words.
        progress: show a progress bar.
    """
    captions = []
    with tqdm(total=len(records), unit="image", desc="captioning", disable=not progress) as bar:
        for batch in _readable(batches):
            token_ids, scores = decoder(batch)
            best = zip(batch["index"].numpy(), token_ids[:, 0].numpy(), scores[:, 0].numpy(), strict=True)
            for index, words, total in best:
                record = records[index]
                captions.append(
                    ImageCaption(record.image_id, tokenizer.decode(words), float(total), record.captions)
                )
            bar.update(len(token_ids))
    return captions


def _readable(batches: tf.data.Dataset) -> Iterator[dict]:
    iterator = iter(batches)
    while True:
        with reading_errors():
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def caption_with_file(
    captioner: TFLiteCaptioner,
    records: Sequence[Record],
    features: RegionFeatures | None = None,
    *,
    progress: bool = False,
) -> tuple[list[ImageCaption], float]:
    """The best caption of each image by an exported file, and the milliseconds that an image took it.

    Images that cannot be read are left out; reading them is not counted in the milliseconds.

    Args:
        captioner: the file.
        records: the images.
        features: of the records, for a file that takes features.
        progress: show a progress bar.
    """
    captions, seconds = [], 0.0
    for index, record in enumerate(tqdm(records, unit="image", desc="captioning", disable=not progress)):
        try:
            if features is None:
                given = {"image": read_image(record.image, captioner.image_size)}
            else:
                given = features.one(index)
        except InputError:
            continue
        given = {name: given[name] for name in captioner.input_names if name in given}
        began = time.perf_counter()
        text, total = captioner.caption(**given)[0]
        seconds += time.perf_counter() - began
        captions.append(ImageCaption(record.image_id, text, total, record.captions))
    return captions, 1000 * seconds / max(1, len(captions))


def scores_of(
    captions: Iterable[ImageCaption], metrics: Sequence[str] = ("BLEU", "CIDEr")
) -> dict[str, float]:
    """Scores of captions against their references, and the share that equals a reference word by word.

    Raises:
        InputError: there are no captions.
    """
    captions = list(captions)
    if not captions:
        raise InputError("there is no image to score: give a split that has some")
    references = {caption.image_id: caption.references for caption in captions}
    said = {caption.image_id: caption.caption for caption in captions}
    return {**score(references, said, metrics), "exact_match": exact_match(references, said)}


def as_rows(captions: Iterable[ImageCaption]) -> list[dict[str, Any]]:
    """What `captions_SPLIT.json` holds: a COCO result file with the references beside the captions.

    Ids that are all numbers, as MS-COCO's, are written as numbers.
    """
    rows = [asdict(caption) for caption in captions]
    if all(row["image_id"].isdecimal() and str(int(row["image_id"])) == row["image_id"] for row in rows):
        rows = [{**row, "image_id": int(row["image_id"])} for row in rows]
    return rows


def coco_results(results: Any, references: Any) -> list[ImageCaption]:
    """Captions and references as COCO's files have them, brought together.

    Args:
        results: `[{"image_id": …, "caption": …}, …]`.
        references: `{"annotations": [{"image_id": …, "caption": …}, …]}`, or such a list itself.

    Raises:
        InputError: one of them has another form, an image is captioned twice or has no reference.
    """
    listed = references.get("annotations") if isinstance(references, Mapping) else references
    people: dict[str, list[str]] = {}
    for image_id, caption in _pairs(listed, "the references"):
        people.setdefault(image_id, []).append(caption)
    captions: dict[str, ImageCaption] = {}
    for image_id, caption in _pairs(results, "the results"):
        if image_id in captions:
            raise InputError(f"the results caption image {image_id} twice: keep one of them")
        if image_id not in people:
            raise InputError(
                f"image {image_id} of the results is not among the references: give both of one set"
            )
        captions[image_id] = ImageCaption(image_id, caption, 0.0, tuple(people[image_id]))
    return list(captions.values())


def _pairs(rows: Any, what: str) -> Iterable[tuple[str, str]]:
    if not isinstance(rows, list):
        raise InputError(f"{what} are no list of image_id and caption: give a file in COCO's format")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping) or "image_id" not in row or not isinstance(row.get("caption"), str):
            raise InputError(f"entry {number} of {what} has no image_id and caption: give COCO's format")
        # The same image may be 42 in one file and "42" in the other.
        yield str(row["image_id"]), row["caption"]
