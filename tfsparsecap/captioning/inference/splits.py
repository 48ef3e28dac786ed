"""Captions of all images of a split, by a run or by an exported file, and their evaluation."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.captioning.inference.bundle import NO_CAPTION, TFLiteCaptioner
from tfsparsecap.captioning.inference.confidence import likely_objects
from tfsparsecap.captioning.inference.generate import Caption, Captions
from tfsparsecap.captioning.inference.scoring import ImageCaption, object_scores_of
from tfsparsecap.captioning.metrics.caption_statistics import token_faults
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

    from tfsparsecap.captioning.data.tokenizers import Tokenizer
    from tfsparsecap.captioning.search.beam_search import Decoder


def records_of(data: CaptionData, split: str) -> list[Record]:
    """The records of a split. Raises InputError if it has none."""
    records = data.split(split)
    if not records:
        raise InputError(f"the {split} split of {data.name} has no images: choose another with --split")
    return records


def caption_records(
    decoder: "Decoder",
    records: Sequence[Record],
    batches: "tf.data.Dataset",
    tokenizer: "Tokenizer",
    *,
    progress: bool = False,
) -> tuple[list[ImageCaption], float]:
    """The best caption of each image, and the milliseconds per image.

    The time includes waiting for images to be read, but not tracing the graph of the search.

    Args:
        decoder: of a captioner.
        records: what `batches` were made of.
        batches: see `data.pipeline.image_batches`; images that cannot be read are left out of the result.
        tokenizer: turns token ids into text.
        progress: show a progress bar.
    """
    captions, timed, seconds, batch = [], 0, 0.0, None
    began = time.perf_counter()
    with tqdm(total=len(records), unit="image", desc="captioning", disable=not progress) as bar:
        for batch in readable_batches(batches):
            traces, indices = decoder.traces, batch["index"].numpy()
            of_images = captions_of_batch(decoder, tokenizer, batch)
            for index, of_image in zip(indices, of_images, strict=True):
                captions.append(_image_caption(records[index], of_image, decoder.captioner.objects))
            bar.update(len(indices))
            now = time.perf_counter()
            if decoder.traces == traces:
                timed, seconds = timed + len(indices), seconds + now - began
            began = now
        if not timed and batch is not None:  # every batch was traced: time the last one again
            timed, began = len(batch["index"]), time.perf_counter()
            decoder(batch)[0].numpy()
            seconds = time.perf_counter() - began
    return captions, 1000 * seconds / max(1, timed)


def captions_of_batch(decoder: "Decoder", tokenizer: "Tokenizer", batch: dict[str, Any]) -> list[Captions]:
    """The captions of each image of a batch, best first, and its likely objects."""
    token_ids, scores, probabilities = decoder.with_objects(batch)
    words, word_ids = tokenizer.words, tokenizer.to_words(token_ids)
    captions = [
        Captions(
            Caption(words.decode(ids), float(score), token_faults(ids, words.end_id, words.unknown_id))
            for ids, score in zip(*rows, strict=True)
            if math.isfinite(score)
        )
        for rows in zip(word_ids.numpy(), scores.numpy(), strict=True)
    ]
    if probabilities is not None:
        for of_image, row in zip(captions, probabilities.numpy(), strict=True):
            of_image.objects = likely_objects(decoder.captioner.objects, row)
    return captions


def _image_caption(record: Record, captions: Captions, objects: Sequence[str]) -> ImageCaption:
    """The best caption of an image; an empty one if there is none."""
    text, score, faults, confidence = captions[0] if captions else Caption("", NO_CAPTION)
    names = tuple(name for name, _ in captions.objects) if objects else None
    about = (record.image_id, text, score, record.captions, faults, confidence)
    return ImageCaption(*about, labels=record.labels, objects=names)


def readable_batches(batches: "tf.data.Dataset") -> Iterator[dict[str, Any]]:
    """The batches of a data set. Raises InputError if an image cannot be read."""
    from tfsparsecap.captioning.data.pipeline import unwrap_input_errors

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
    """The best caption of each image by an exported file, and the speed.

    Images that cannot be read are left out.

    Args:
        captioners: the same file, loaded once for each thread.
        records: the images, at least one.
        features: of the records, for a file that takes region features.
        progress: show a progress bar.

    Returns:
        The captions; the milliseconds per image on one thread, without reading it; and the images per second
        on all threads, with reading.
    """
    free: SimpleQueue[TFLiteCaptioner] = SimpleQueue()

    def caption(index: int, captioner: TFLiteCaptioner) -> tuple[ImageCaption, float] | None:
        record = records[index]
        try:
            if features is not None:
                inputs = features.one(index)
            else:
                inputs = {"image": read_image(record.image, captioner.image_size or 0)}
        except InputError:
            return None
        inputs = {name: inputs[name] for name in captioner.input_names if name in inputs}
        began = time.perf_counter()
        of_image = captioner.caption(**inputs)
        seconds = time.perf_counter() - began
        if not of_image:  # an empty caption counts
            confidence = None if captioner.calibration is None else 0.0
            of_image.append(Caption("", NO_CAPTION, confidence=confidence))
        return _image_caption(record, of_image, captioner.objects), seconds

    def next_caption(index: int) -> tuple[ImageCaption, float] | None:
        captioner = free.get()
        try:
            return caption(index, captioner)
        finally:
            free.put(captioner)

    for captioner in captioners:
        caption(0, captioner)  # the first call allocates the runtime's memory
        free.put(captioner)
    threads = ThreadPoolExecutor(len(captioners))
    try:
        began = time.perf_counter()
        results = threads.map(next_caption, range(len(records)))
        bar = tqdm(results, total=len(records), unit="image", desc="captioning", disable=not progress)
        done = [result for result in bar if result is not None]
        seconds = time.perf_counter() - began
    finally:
        threads.shutdown(cancel_futures=True)  # an error or Ctrl-C does not wait for the rest
    milliseconds = 1000 * sum(taken for _, taken in done) / max(1, len(done))
    return [caption for caption, _ in done], milliseconds, len(done) / seconds


def evaluate_file(
    captioner: TFLiteCaptioner,
    data: CaptionData,
    split: str = "test",
    *,
    features: Callable[[Sequence[Record]], RegionFeatures] | None = None,
    threads: int = 1,
    progress: bool = False,
    scorer: Callable[[list[ImageCaption]], dict[str, Any]],
) -> tuple[dict[str, Any], list[ImageCaption]]:
    """Captions every image of a split with an exported file and scores the captions.

    Args:
        captioner: the file.
        data, split, progress, scorer: as of `FinishedRun.evaluate`.
        features: finds the region features of records, for a file that takes them.
        threads: images that are captioned at the same time, each on one thread.

    Returns:
        As `FinishedRun.evaluate`, with `images_per_second`, `threads` and `bytes` (of the file) instead of
        counts of weights; and the captions.

    Raises:
        InputError: the split is empty or cannot be read.
    """
    records = records_of(data, split)
    index = features(records) if features is not None and captioner.features_shape is not None else None
    threads = min(threads, len(records))
    captioners = [captioner, *(TFLiteCaptioner(captioner.path, trust=True) for _ in range(threads - 1))]
    captions, milliseconds, speed = caption_with_file(captioners, records, index, progress=progress)
    scores = {
        **split_scores(data, split, captions, captioner.metadata.get("beam"), captioner.objects, scorer),
        "ms_per_image": milliseconds,
        "images_per_second": speed,
        "threads": threads,
        "bytes": captioner.path.stat().st_size,
    }
    return scores, captions


def split_scores(
    data: CaptionData,
    split: str,
    captions: list[ImageCaption],
    beam: int | None,
    objects: Sequence[str],
    scorer: Callable[[list[ImageCaption]], dict[str, Any]],
) -> dict[str, Any]:
    """Scores of the captions of a split, and the ids of images without one, which could not be read."""
    captioned = {caption.image_id for caption in captions}
    return {
        "split": split,
        "images": len(captions),
        "left_out": [record.image_id for record in data.split(split) if record.image_id not in captioned],
        "beam": beam,
        **scorer(captions),
        **object_scores_of(captions, data.label_names(), objects),
    }
