"""Captions for photographs that have none: captions of other photographs, ranked by how well they fit."""

import gzip
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.caption_ranking import CaptionRanker, Photographs
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.metrics.named_objects import named_objects
from tfsparsecap.captioning.metrics.scores import compute_scores
from tfsparsecap.command import print_table
from tfsparsecap.core.files import atomic_path, make_folder
from tfsparsecap.errors import InputError

#: So many captions has a photograph that gets some.
CAPTIONS = 5
# Captions among which those are looked for that name no wrong object.
_CANDIDATES = 60
# Weight of the similarity of labels (Jaccard index), chosen on the validation split.
_LABEL_WEIGHT = 0.4
_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_BATCH = 16


def ranked_captions(
    records: Sequence[Record], text: Path, features: Callable[[Sequence[Record]], np.ndarray]
) -> list[Record]:
    """Photographs; those of the training split with fewer than two captions get the best ones of others.

    It prints how good the best ones are for the photographs of the validation split.

    Args:
        records: the photographs, some of them without captions.
        text: `.jsonl.gz` file with captions of other photographs, and their `labels` and `id`.
        features: computes features of photographs, float32 [N, D].

    Raises:
        InputError: the text cannot be read.
    """
    texts = _Text(text)
    train = [record for record in records if record.split == "train" and record.captions]
    validation = [record for record in records if record.split == "validation"]
    wanting = [record for record in records if record.split == "train" and len(record.captions) < 2]

    def described(records: Sequence[Record]) -> Photographs:
        labels = texts.indicators([record.labels or () for record in records])
        return Photographs(features(records), labels)

    ranker = CaptionRanker(described(train), [record.captions for record in train], texts.captions)
    quality = _quality(validation, described(validation), ranker, texts)
    print_table("CIDEr of captions of other photographs", quality)
    best = _best(wanting, described(wanting), ranker, texts)
    ranked = {record.image_id: tuple(captions) for record, captions in zip(wanting, best, strict=True)}
    return [
        replace(record, captions=(record.captions + ranked[record.image_id])[:CAPTIONS])
        if record.image_id in ranked
        else record
        for record in records
    ]


def fits_labels(caption: str, labels: Sequence[str] | None) -> bool:
    """Whether all of MS-COCO's objects that a caption names are among the labels, or these are not known."""
    return labels is None or set(named_objects(caption)) <= set(labels)


def write_feature_maps(records: Sequence[Record], encoder: Path, folder: Path) -> None:
    """Writes the feature map of each image that has none yet, as files of region features (docs/data.md).

    Args:
        records: the images.
        encoder: ONNX file of a network from [N, 3, 224, 224], normalised as for ImageNet, to maps of
            features [N, …, D].
        folder: gets `cocobu_att/ID.npy`, float16 [cells, D].

    Raises:
        InputError: there is no such encoder, or an image cannot be read.
    """
    import onnxruntime

    todo = [record for record in records if not _map_file(record, folder).is_file()]
    if not todo:
        return
    if not encoder.is_file():
        raise InputError(f"there is no file {encoder}: give the network as --encoder FILE.onnx")
    session = onnxruntime.InferenceSession(str(encoder))
    with tqdm(total=len(todo), desc="describing images", unit="image") as bar:
        for start in range(0, len(todo), _BATCH):
            part = todo[start : start + _BATCH]
            images = np.stack([read_image(record.image, 224) for record in part])
            scaled = ((images - np.array(_MEAN)) / np.array(_DEVIATION)).astype(np.float32)
            (maps,) = session.run(None, {session.get_inputs()[0].name: scaled.transpose(0, 3, 1, 2)})
            for record, values in zip(part, maps, strict=True):
                file = _map_file(record, folder)
                make_folder(file.parent)
                with atomic_path(file) as temporary, temporary.open("wb") as opened:
                    np.save(opened, values.reshape(-1, values.shape[-1]).astype(np.float16))
            bar.update(len(part))


def pooled_features(records: Sequence[Record], folder: Path) -> np.ndarray:
    """Mean and maximum of each feature map that `write_feature_maps` wrote, float32 [N, 2 D]."""
    rows = []
    for record in records:
        cells = np.load(_map_file(record, folder)).astype(np.float32)
        rows.append(np.concatenate([cells.mean(0), cells.max(0)]))
    return np.stack(rows)


def _map_file(record: Record, folder: Path) -> Path:
    return (folder / "cocobu_att" / record.image_id).with_suffix(".npy")


class _Text:
    """Captions of other photographs, whose labels are known.

    Attributes:
        captions: all captions.
        photograph: index of the photograph of each.
        ids: ids of the photographs.
        labels: indicators of their labels, float32 [photographs, K].
    """

    def __init__(self, path: Path) -> None:
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines]
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} cannot be read ({error}): copy it again") from error
        names = sorted({name for row in rows for name in row["labels"] or ()})
        self._column = {name: column for column, name in enumerate(names)}
        self.captions = [caption for row in rows for caption in row["captions"]]
        self.photograph = np.repeat(np.arange(len(rows)), [len(row["captions"]) for row in rows])
        self.ids = [row["id"] for row in rows]
        self.labels = self.indicators([row["labels"] or () for row in rows])

    def indicators(self, labels: Sequence[Sequence[str]]) -> np.ndarray:
        """1 for each label of each photograph, else 0: float32 [N, K]."""
        indicator_rows = np.zeros((len(labels), len(self._column)), np.float32)
        for row, names in zip(indicator_rows, labels, strict=True):
            row[[self._column[name] for name in names if name in self._column]] = 1
        return indicator_rows

    def overlaps(self, labels: np.ndarray) -> np.ndarray:
        """The Jaccard index of one photograph's labels [K] and those of each caption's photograph [M]."""
        shared = self.labels @ labels
        return (shared / np.maximum(self.labels.sum(1) + labels.sum() - shared, 1))[self.photograph]


def _best(
    records: Sequence[Record], photographs: Photographs, ranker: CaptionRanker, text: _Text
) -> Iterator[list[str]]:
    """For each photograph the captions that fit best, the best first."""
    for start in tqdm(range(0, len(records), 256), desc="ranking captions", unit="256 photographs"):
        part = slice(start, start + 256)
        labels = photographs.labels[part]
        scores = ranker.similarities(Photographs(photographs.features[part], labels))
        for record, row, own in zip(records[part], scores, labels, strict=True):
            row = row + _LABEL_WEIGHT * text.overlaps(own)
            best = np.argpartition(-row, _CANDIDATES)[:_CANDIDATES]
            best = best[np.argsort(-row[best])]
            others = [i for i in best if text.ids[text.photograph[i]] != Path(record.image_id).stem]
            captions = dict.fromkeys(text.captions[i] for i in others)
            fitting = (caption for caption in captions if fits_labels(caption, record.labels))
            yield list(itertools.islice(fitting, CAPTIONS)) or list(captions)[:CAPTIONS]


def _quality(
    records: Sequence[Record], photographs: Photographs, ranker: CaptionRanker, text: _Text
) -> list[tuple[str, str]]:
    """CIDEr of the first ranked caption of photographs with captions, and of one that has the same labels."""
    random = np.random.default_rng(0)
    ranked = [captions[0] for captions in _best(records, photographs, ranker, text)]
    alike = []
    for labels in photographs.labels:
        overlaps = text.overlaps(labels)
        alike.append(text.captions[random.choice(np.flatnonzero(overlaps == overlaps.max()))])
    references = {number: record.captions for number, record in enumerate(records)}
    rows = []
    for name, captions in (("one with the most similar labels", alike), ("the first ranked one", ranked)):
        scores = compute_scores(references, dict(enumerate(captions)), ["CIDEr"], "light").values
        rows.append((name, f"{scores['CIDEr']:.3f}"))
    return rows
