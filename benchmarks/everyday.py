"""python -m benchmarks.everyday: one table with Flickr8k and everyday photographs, to train on both.

Writes FOLDER/captions.jsonl and links to the images, which data.kind=table reads: all splits of Flickr8k and
of the photographs, with their captions and labels. Photographs without captions, and training photographs
with only one, get captions of other photographs: those that fit best to what the photograph shows and to its
labels, and that name none of the 80 categories that it is not labelled with.

examples:
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --photographs COCO_EVERYDAY --encoder DINOV2.onnx
      photographs of which some have captions, and captions of others:
      captions.jsonl, photographs_without_captions.jsonl and text/coco_captions.jsonl.gz
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --coco COCO
      MS-COCO's official files (docs/data.md), whose photographs all have captions
"""

import contextlib
import gzip
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.caption_ranking import CaptionRanker, Photographs
from tfsparsecap import data as sources
from tfsparsecap.command import parser, print_table, run
from tfsparsecap.data.images import read_image
from tfsparsecap.data.records import Record
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.metrics.objects import named_objects
from tfsparsecap.metrics.scores import compute_scores

_CAPTIONS = 5
# Captions among which those are looked for that name no wrong object.
_CANDIDATES = 60
# Weight of the similarity of labels (Jaccard index), chosen on the validation split.
_LABEL_WEIGHT = 0.4
_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_BATCH = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the mixture.

    Raises:
        InputError: a folder or file is missing or damaged, or a photograph is in two splits.
    """
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help="where to write")
    options.add_argument(
        "--flickr8k", type=Path, required=True, metavar="FOLDER", help="Flickr8k, see docs/data.md"
    )
    options.add_argument(
        "--photographs", type=Path, metavar="FOLDER", help="a table with labels, and more files"
    )
    options.add_argument("--coco", type=Path, metavar="FOLDER", help="MS-COCO, instead of --photographs")
    options.add_argument(
        "--encoder",
        type=Path,
        metavar="FILE.onnx",
        help="a network from images [N, 3, 224, 224], normalised as for ImageNet, to a map of features, whose"
        " mean and maximum the ranking of captions uses; the better, the better the captions",
    )
    given = options.parse_args(argv)
    if (given.photographs is None) == (given.coco is None):
        raise InputError("give the everyday photographs, either as --photographs or as --coco")
    if given.photographs is not None and given.encoder is None:
        raise InputError(
            "--photographs needs --encoder, a network that describes them, such as DINOv2 as .onnx"
        )
    flickr = sources.load("flickr", given.flickr8k)
    if given.coco is not None:
        everyday = sources.load("coco", given.coco).records
    else:
        everyday = with_ranked_captions(given.photographs, given.encoder, given.folder)
    write_table(given.folder, {"photographs": everyday, "flickr8k": flickr.records})
    mixture = sources.load("table", given.folder)
    print(mixture.summary())
    return 0


def write_table(folder: Path, parts: dict[str, Sequence[Record]]) -> None:
    """Writes `captions.jsonl` and, in `images/`, a link to the images of each part.

    Args:
        folder: created if missing.
        parts: records by the name of the link.
    """
    lines = []
    for name, records in parts.items():
        root = Path(os.path.commonpath([record.image.absolute().parent for record in records]))
        link = folder / "images" / name
        make_folder(link.parent)
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(root, target_is_directory=True)
        for record in records:
            row = {
                "image": f"{name}/{record.image.absolute().relative_to(root).as_posix()}",
                "captions": record.captions,
                "split": record.split,
                "labels": record.labels,
            }
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    atomic_write(folder / "captions.jsonl", "".join(lines))


def with_ranked_captions(photographs: Path, encoder: Path, cache: Path) -> list[Record]:
    """The records of all photographs; those that lack captions get the best ones of other photographs.

    Args:
        photographs: folder of `captions.jsonl`, `photographs_without_captions.jsonl` and
            `text/coco_captions.jsonl.gz`.
        encoder: ONNX file of the network that computes the features.
        cache: folder in which features are kept.
    """
    captioned = sources.load("table", photographs)
    without = [
        Record(row["image"], photographs / row["image"], (), "train", _labels(row))
        for row in map(json.loads, read_text(photographs / "photographs_without_captions.jsonl").splitlines())
    ]
    text = _Text(photographs / "text" / "coco_captions.jsonl.gz")
    train, validation = captioned.split("train"), captioned.split("validation")
    wanting = [record for record in train if len(record.captions) == 1] + without
    features = _features([*captioned.records, *without], encoder, cache)

    def described(records: Sequence[Record]) -> Photographs:
        rows = np.stack([features[record.image_id] for record in records])
        return Photographs(rows, text.indicators([record.labels or () for record in records]))

    ranker = CaptionRanker(described(train), [record.captions for record in train], text.captions)
    print_table(
        "captions of other photographs, CIDEr", _quality(validation, described(validation), ranker, text)
    )
    ranked = dict(
        zip(
            (record.image_id for record in wanting),
            _best(wanting, described(wanting), ranker, text),
            strict=True,
        )
    )
    return [
        replace(record, captions=(*record.captions, *ranked.get(record.image_id, ()))[:_CAPTIONS])
        for record in [*captioned.records, *without]
    ]


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
        found = np.zeros((len(labels), len(self._column)), np.float32)
        for row, names in zip(found, labels, strict=True):
            row[[self._column[name] for name in names if name in self._column]] = 1
        return found

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
            found = dict.fromkeys(text.captions[i] for i in others)
            fitting = (caption for caption in found if _fits(caption, record.labels))
            yield list(itertools.islice(fitting, _CAPTIONS)) or list(found)[:_CAPTIONS]


def _fits(caption: str, labels: Sequence[str] | None) -> bool:
    return labels is None or set(named_objects(caption)) <= set(labels)


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
    return [
        (
            name,
            f"{compute_scores(references, dict(enumerate(found)), ['CIDEr'], 'light').values['CIDEr']:.3f}",
        )
        for name, found in (
            ("one with the most similar labels, at random", alike),
            ("the first ranked", ranked),
        )
    ]


def _labels(row: dict[str, Any]) -> tuple[str, ...] | None:
    return None if row["labels"] is None else tuple(row["labels"])


def _features(records: Sequence[Record], encoder: Path, cache: Path) -> dict[str, np.ndarray]:
    """Mean and maximum of each photograph's feature map, float32 [2 D], kept in `features.npz`."""
    import onnxruntime

    make_folder(cache)
    kept, names = cache / "features.npz", [record.image_id for record in records]
    if kept.is_file():
        with np.load(kept) as arrays:
            if arrays["names"].tolist() == names and str(arrays["encoder"]) == encoder.name:
                return dict(zip(names, arrays["features"], strict=True))
    if not encoder.is_file():
        raise InputError(f"there is no file {encoder}: give the network as --encoder FILE.onnx")
    session = onnxruntime.InferenceSession(str(encoder))
    rows = []
    for start in tqdm(range(0, len(records), _BATCH), desc="describing photographs", unit="16 photographs"):
        images = np.stack([read_image(record.image, 224) for record in records[start : start + _BATCH]])
        scaled = ((images - np.array(_MEAN)) / np.array(_DEVIATION)).astype(np.float32)
        (maps,) = session.run(None, {session.get_inputs()[0].name: scaled.transpose(0, 3, 1, 2)})
        cells = maps.reshape(len(maps), -1, maps.shape[-1])
        rows.append(np.concatenate([cells.mean(1), cells.max(1)], axis=1))
    found = np.concatenate(rows)
    with atomic_path(kept) as temporary, temporary.open("wb") as file:
        np.savez(file, names=names, encoder=encoder.name, features=found)
    return dict(zip(names, found, strict=True))


if __name__ == "__main__":
    run(main)
