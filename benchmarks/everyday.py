"""python -m benchmarks.everyday: one table with Flickr8k and everyday photographs, to train on both.

Writes FOLDER/captions.jsonl and links to the images, which data.kind=table reads: all splits of Flickr8k and
of the photographs. Validation and test images have people's captions. A training image has five: the best of
people's and of those that captioners with larger encoders wrote, by their CIDEr-D with people's, or, if it
has fewer than two by people, those that agree most with all others. Photographs have their labels, training
images of Flickr8k the objects that people's captions name. Also writes the encoder of the captioner "small",
FOLDER/efficientnet_lite0.safetensors, which everyday_small.yaml begins with.

The captions of training images are saved in everyday_captions.jsonl.xz. They can be made anew:
  --encoder  training images have people's captions; photographs with fewer than two also those captions of
             other photographs that fit best to what they show and to their labels
  --teacher  then a captioner of these features writes captions, and the best ones are taken instead
No such caption names one of MS-COCO's 80 categories that the photograph is not labelled with.

examples:
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --photographs COCO_EVERYDAY
      photographs, some with captions (captions.jsonl), others without (photographs_without_captions.jsonl)
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --coco COCO
      MS-COCO's official files (docs/data.md), whose photographs all have captions by people
  python -m benchmarks.everyday ranked --flickr8k FLICKR8K --photographs COCO_EVERYDAY --encoder DINOV2.onnx
      ranks captions (text/coco_captions.jsonl.gz), and writes features for the teacher into ranked/features
  python -m tfsparsecap.train --config everyday_teacher data.folder=ranked
  python -m benchmarks.everyday ranked --flickr8k FLICKR8K --photographs COCO_EVERYDAY \\
      --encoder DINOV2.onnx --teacher runs/everyday_teacher \\
      --flickr8k-teacher runs/flickr8k_good/model.tflite --save benchmarks/everyday_captions.jsonl.xz
      lets teachers write captions, and saves the best ones
  python -m benchmarks.distil --help
      trains encoders, and a captioner that writes captions; then --written FILE.jsonl in place of --teacher
"""

import argparse
import contextlib
import functools
import json
import lzma
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save
from tqdm import tqdm

import tfsparsecap as sc
from benchmarks.best_captions import best_captions
from benchmarks.file_encoder import encoder_weights
from benchmarks.ranked_captions import pooled_features, ranked_captions, write_feature_maps
from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.metrics.named_objects import named_objects
from tfsparsecap.command import parser, run
from tfsparsecap.core.files import DAMAGE, atomic_write, make_folder, read_text
from tfsparsecap.errors import InputError

#: The captions of training images, best first.
SAVED = Path(__file__).with_name("everyday_captions.jsonl.xz")
# What a teacher writes for an image: captions found by a beam search, and others that are sampled.
_BEAM, _SAMPLES, _TEMPERATURE = 8, 20, 0.6

Written = dict[str, dict[str, float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the mixture.

    Raises:
        InputError: a folder or file is missing or damaged, or a photograph is in two splits.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, help="where to write")
    command.add_argument("--flickr8k", type=Path, required=True, metavar="FOLDER", help="Flickr8k")
    command.add_argument("--photographs", type=Path, metavar="FOLDER", help="everyday photographs")
    command.add_argument("--coco", type=Path, metavar="FOLDER", help="MS-COCO, instead of --photographs")
    command.add_argument(
        "--encoder",
        type=Path,
        metavar="FILE.onnx",
        help="a network from images [N, 3, 224, 224], normalised as for ImageNet, to a map of features: ranks"
        " captions by its features",
    )
    command.add_argument("--teacher", metavar="runs/NAME", help="a captioner of these features")
    command.add_argument("--written", type=Path, metavar="FILE.jsonl", help="captions of benchmarks.distil")
    command.add_argument("--flickr8k-teacher", metavar="FILE.tflite", help="a captioner of Flickr8k's images")
    command.add_argument("--save", type=Path, metavar="FILE.jsonl.xz", help="where to save the captions")
    options = command.parse_args(argv)
    if (options.photographs is None) == (options.coco is None):
        raise InputError("give the everyday photographs, either as --photographs or as --coco")
    writers = options.teacher or options.written
    if options.encoder is None and (writers or options.flickr8k_teacher or options.save):
        raise InputError("teachers and --save are for captions that are made anew: give --encoder, too")
    if options.flickr8k_teacher and not writers:
        raise InputError("--flickr8k-teacher adds to --teacher or --written: give one of them, too")
    if options.encoder is not None and options.coco is not None:
        raise InputError("all photographs of --coco have captions: leave --encoder out")
    flickr = _part("flickr8k", sources.load("flickr", options.flickr8k).records)
    if options.coco is not None:
        photographs = _part("photographs", sources.load("coco", options.coco).records)
    else:
        photographs = _part("photographs", _photographs(options.photographs))
    before = [*photographs, *flickr]
    if options.encoder is None:
        best = read_captions(SAVED)
        if options.coco is not None:
            best = {name: captions for name, captions in best.items() if name.startswith("flickr8k/")}
        records = with_captions(before, best)
    else:
        records = _made_anew(photographs, flickr, options)
        if options.save:
            train = [record for record in records if record.split == "train"]
            save_captions(options.save, {record.image_id: record.captions for record in train})
    write_table(options.folder, with_objects(records, before))
    encoder = save(encoder_weights(captioner_path("small"), 0))
    atomic_write(options.folder / "efficientnet_lite0.safetensors", encoder)
    print(sources.load("table", options.folder).summary())
    return 0


def _made_anew(photographs: list[Record], flickr: list[Record], options: argparse.Namespace) -> list[Record]:
    """The images with captions that are found, or written and chosen, now."""
    features = options.folder / "features"
    write_feature_maps([*photographs, *flickr], options.encoder, features)
    texts = options.photographs / "text" / "coco_captions.jsonl.gz"
    ranked = ranked_captions(photographs, texts, functools.partial(pooled_features, folder=features))
    if not (options.teacher or options.written):
        return [*ranked, *flickr]
    others = {
        old.image_id: new.captions[len(old.captions) :] for old, new in zip(photographs, ranked, strict=True)
    }
    written: Written = read_written(options.written) if options.written else {}
    if options.teacher:
        for name, captions in written_captions([*photographs, *flickr], options.teacher, features).items():
            written[name] = captions | written.get(name, {})
    if options.flickr8k_teacher:
        for name, captions in written_captions(flickr, options.flickr8k_teacher).items():
            written[name] = captions | written.get(name, {})
    best = {}
    for part in (photographs, flickr):
        best |= best_captions([record for record in part if record.split == "train"], written, others)
    return with_captions([*ranked, *flickr], best)


def written_captions(records: Sequence[Record], teacher: str, features: Path | None = None) -> Written:
    """Captions that a captioner writes for the images of the training split, with their log-probabilities.

    Args:
        records: the images.
        teacher: its run folder or file.
        features: folder of the region features that it takes; None if it takes images, and is a file, which
            cannot sample.
    """
    captioner, written = sc.load(teacher), {}
    train = [record for record in records if record.split == "train"]
    names = [record.image_id for record in train]
    if features is None:
        searches = [captioner.stream([record.image for record in train])]
    else:
        searches = [
            captioner.stream(names, beam=_BEAM, features=features),
            captioner.stream(names, samples=_SAMPLES, temperature=_TEMPERATURE, features=features),
        ]
    for search in searches:
        for name, captions in zip(names, tqdm(search, total=len(names), unit="image"), strict=True):
            if captions.error is not None:
                raise captions.error
            texts = written.setdefault(name, {})
            for caption in captions:
                texts.setdefault(caption.text, caption.score)
    return written


def read_written(path: Path) -> Written:
    """The captions that `benchmarks.distil` wrote.

    Raises:
        InputError: the file is damaged.
    """
    try:
        rows = [json.loads(line) for line in read_text(path).splitlines()]
        return {row["image"]: dict(zip(row["captions"], row["scores"], strict=True)) for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} has no captions with scores ({error}): write it again") from error


def with_captions(records: Sequence[Record], better: Mapping[str, Sequence[str]]) -> list[Record]:
    """The records with other captions of some images."""
    return [
        replace(record, captions=tuple(better.get(record.image_id) or record.captions)) for record in records
    ]


def with_objects(records: Sequence[Record], before: Sequence[Record]) -> list[Record]:
    """The records; training images of Flickr8k get the objects that people's captions name as labels.

    Args:
        records: all images.
        before: the same with people's captions.
    """
    return [
        replace(record, labels=tuple(sorted(set().union(*map(named_objects, people.captions)))))
        if record.split == "train" and record.image_id.startswith("flickr8k/")
        else record
        for record, people in zip(records, before, strict=True)
    ]


def read_captions(path: Path) -> dict[str, list[str]]:
    """What `save_captions` saved.

    Raises:
        InputError: the file is damaged.
    """
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            return {row["image"]: row["captions"] for row in map(json.loads, lines)}
    except (*DAMAGE, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): restore it with git") from error


def save_captions(path: Path, captions: Mapping[str, Sequence[str]]) -> None:
    """Saves captions by image."""
    rows = [{"image": name, "captions": texts} for name, texts in captions.items()]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    atomic_write(path, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def write_table(folder: Path, records: Sequence[Record]) -> None:
    """Writes `captions.jsonl`, and in `images/` a link to the folder of each part's images.

    Args:
        folder: created if missing.
        records: with ids `PART/FILE`.
    """
    lines, linked = [], set()
    for record in records:
        part, _, file = record.image_id.partition("/")
        if part not in linked:
            linked.add(part)
            link = folder / "images" / part
            make_folder(link.parent)
            with contextlib.suppress(FileNotFoundError):
                link.unlink()
            link.symlink_to(record.image.absolute().parents[file.count("/")], target_is_directory=True)
        row = {"image": record.image_id, "captions": record.captions, "split": record.split}
        lines.append(json.dumps({**row, "labels": record.labels}, ensure_ascii=False) + "\n")
    atomic_write(folder / "captions.jsonl", "".join(lines))


def _part(part: str, records: Sequence[Record]) -> list[Record]:
    """Records whose ids begin with the name of their part of the mixture."""
    root = Path(os.path.commonpath([record.image.absolute().parent for record in records]))
    return [
        replace(record, image_id=f"{part}/{record.image.absolute().relative_to(root).as_posix()}")
        for record in records
    ]


def _photographs(folder: Path) -> list[Record]:
    """All photographs; those without captions are in the training split."""
    without = folder / "photographs_without_captions.jsonl"
    records = []
    for number, line in enumerate(read_text(without).splitlines(), 1):
        try:
            row = json.loads(line)
            labels = None if row["labels"] is None else tuple(row["labels"])
            records.append(Record(row["image"], folder / row["image"], (), "train", labels))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{without} line {number} is no photograph with labels: copy the file again"
            ) from error
    return [*sources.load("table", folder).records, *records]


if __name__ == "__main__":
    run(main)
