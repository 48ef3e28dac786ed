"""python -m benchmarks.everyday: one table with Flickr8k and everyday photographs, to train on both.

Writes two tables and links to the images, which data.kind=table reads: all splits of Flickr8k and of the
photographs, with their captions and labels. Training images also get captions that were found or
written for them. They are saved in everyday_captions.jsonl.xz, and can be made anew:
  --encoder  photographs with fewer than two captions get those captions of other photographs that fit best
             to what they show and to their labels
  --teacher  all training images get captions that a captioner with a larger encoder writes
No such caption names one of MS-COCO's 80 categories that the photograph is not labelled with.

FOLDER/all_captions.jsonl has all of them. FOLDER/captions.jsonl has those of teachers, and by people where a
photograph of the others has two or more. For Flickr8k, --flickr8k-teacher is a second teacher.

examples:
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --photographs COCO_EVERYDAY
      photographs, some with captions (captions.jsonl), others without (photographs_without_captions.jsonl)
  python -m benchmarks.everyday everyday --flickr8k FLICKR8K --coco COCO
      MS-COCO's official files (docs/data.md), whose photographs all have captions
  python -m benchmarks.everyday ranked --flickr8k FLICKR8K --photographs COCO_EVERYDAY --encoder DINOV2.onnx
      ranks captions (text/coco_captions.jsonl.gz), and writes features for the teacher into ranked/features
  python -m tfsparsecap.train --config configs/everyday_teacher.yaml data.folder=ranked
  python -m benchmarks.everyday ranked --flickr8k FLICKR8K --photographs COCO_EVERYDAY \\
      --encoder DINOV2.onnx --teacher runs/everyday_teacher \\
      --flickr8k-teacher runs/flickr8k_good/model.tflite --save benchmarks/everyday_captions.jsonl.xz
      lets teachers write captions, too, and saves all that were found or written
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

from tqdm import tqdm

import tfsparsecap as sc
from benchmarks.ranked_captions import fits_labels, pooled_features, ranked_captions, write_feature_maps
from tfsparsecap import data as sources
from tfsparsecap.command import parser, run
from tfsparsecap.data.records import Record
from tfsparsecap.errors import InputError
from tfsparsecap.files import DAMAGE, atomic_write, make_folder, read_text

#: Captions that were found or written, by image.
SAVED = Path(__file__).with_name("everyday_captions.jsonl.xz")
# Width of the teacher's beam search, and how many of its captions are used: those that name no wrong object.
_BEAM, _WRITTEN = 8, 5
# How many of them are those of Flickr8k's own teacher, for Flickr8k.
_OWN = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the mixture.

    Raises:
        InputError: a folder or file is missing or damaged, or a photograph is in two splits.
    """
    options = parser(__doc__)
    options.add_argument("folder", type=Path, help="where to write")
    options.add_argument("--flickr8k", type=Path, required=True, metavar="FOLDER", help="Flickr8k")
    options.add_argument("--photographs", type=Path, metavar="FOLDER", help="everyday photographs")
    options.add_argument("--coco", type=Path, metavar="FOLDER", help="MS-COCO, instead of --photographs")
    options.add_argument(
        "--encoder",
        type=Path,
        metavar="FILE.onnx",
        help="a network from images [N, 3, 224, 224], normalised as for ImageNet, to a map of features: ranks"
        " captions by its features",
    )
    options.add_argument("--teacher", metavar="runs/NAME", help="a captioner of these features")
    options.add_argument("--flickr8k-teacher", metavar="FILE.tflite", help="a captioner of Flickr8k's images")
    options.add_argument("--save", type=Path, metavar="FILE.jsonl.xz", help="where to save the captions")
    given = options.parse_args(argv)
    if (given.photographs is None) == (given.coco is None):
        raise InputError("give the everyday photographs, either as --photographs or as --coco")
    if given.encoder is None and (given.teacher or given.flickr8k_teacher or given.save):
        raise InputError("teachers and --save are for captions that are made anew: give --encoder, too")
    if given.flickr8k_teacher and not given.teacher:
        raise InputError("--flickr8k-teacher writes captions beside those of --teacher: give both")
    if given.encoder is not None and given.coco is not None:
        raise InputError("all photographs of --coco have captions: leave --encoder out")
    flickr = _part("flickr8k", sources.load("flickr", given.flickr8k).records)
    if given.coco is not None:
        photographs = _part("photographs", sources.load("coco", given.coco).records)
    else:
        photographs = _part("photographs", _photographs(given.photographs))
    before = [*photographs, *flickr]
    if given.encoder is None:
        found, taught = read_captions(SAVED)
        if given.coco is not None:
            found = {name: captions for name, captions in found.items() if name.startswith("flickr8k/")}
    else:
        texts = given.photographs / "text" / "coco_captions.jsonl.gz"
        found, taught = _made_anew(photographs, flickr, texts, given)
        if given.save:
            save_captions(given.save, found, taught)
    write_table(given.folder, with_captions(before, found), "all_captions.jsonl")
    write_table(given.folder, taught_only(before, found, taught))
    print(sources.load("table", given.folder, "all_captions.jsonl").summary())
    return 0


Written = dict[str, list[str]]


def _made_anew(
    photographs: list[Record], flickr: list[Record], texts: Path, given: argparse.Namespace
) -> tuple[Written, Written]:
    """Captions that are found and written now, and those of Flickr8k's two teachers."""
    features = given.folder / "features"
    before, taught = [*photographs, *flickr], {}
    write_feature_maps(before, given.encoder, features)
    pooled = functools.partial(pooled_features, folder=features)
    after = [*ranked_captions(photographs, texts, pooled), *flickr]
    found = {
        new.image_id: [*new.captions[len(old.captions) :]] for old, new in zip(before, after, strict=True)
    }
    if given.teacher:
        written = written_captions(after, given.teacher, features)
        found = {name: [*captions, *written.get(name, ())] for name, captions in found.items()}
        if given.flickr8k_teacher:
            own = written_captions(flickr, given.flickr8k_teacher)
            taught = {name: of_two_teachers(captions, written[name]) for name, captions in own.items()}
    return {name: captions for name, captions in found.items() if captions}, taught


def of_two_teachers(own: Sequence[str], others: Sequence[str]) -> list[str]:
    """The first captions of one teacher, then different ones of the other, then more of both."""
    rest = _WRITTEN - _OWN
    return [*dict.fromkeys([*own[:_OWN], *others[:rest], *own[_OWN:], *others[rest:]])][:_WRITTEN]


def taught_only(records: Sequence[Record], found: Written, taught: Written) -> list[Record]:
    """The records with captions of teachers, and by people where a photograph not of Flickr8k has several."""
    result = []
    for record in records:
        written = found.get(record.image_id, [])[-_WRITTEN:]
        if record.image_id in taught:
            record = replace(record, captions=tuple(taught[record.image_id]))
        elif written and (len(record.captions) < 2 or record.image_id.startswith("flickr8k/")):
            record = replace(record, captions=tuple(written))
        else:
            record = replace(record, captions=(*record.captions, *written))
        result.append(record)
    return result


def written_captions(records: Sequence[Record], teacher: str, features: Path | None = None) -> Written:
    """Captions that a captioner writes for the images of the training split.

    Args:
        records: the images.
        teacher: its run folder or file.
        features: folder of the region features that it takes; None if it takes images.
    """
    captioner, written = sc.load(teacher), {}
    train = [record for record in records if record.split == "train"]
    if features is None:
        found = captioner.stream([record.image for record in train])
    else:
        found = captioner.stream([record.image_id for record in train], beam=_BEAM, features=features)
    for record, captions in zip(train, tqdm(found, total=len(train), unit="image"), strict=True):
        if captions.error is not None:
            raise captions.error
        texts = [caption.text for caption in captions]
        written[record.image_id] = [text for text in texts if fits_labels(text, record.labels)][:_WRITTEN]
    return written


def with_captions(records: Sequence[Record], more: Mapping[str, Sequence[str]]) -> list[Record]:
    """The records with more captions of some images."""
    return [
        replace(record, captions=(*record.captions, *more.get(record.image_id, ()))) for record in records
    ]


def read_captions(path: Path) -> tuple[Written, Written]:
    """What `save_captions` saved.

    Raises:
        InputError: the file is damaged.
    """
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        found = {row["image"]: row["captions"] for row in rows}
        return found, {row["image"]: row["taught"] for row in rows if "taught" in row}
    except (*DAMAGE, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): restore it with git") from error


def save_captions(path: Path, found: Written, taught: Written) -> None:
    """Saves captions by image: those that were found or written, and those of Flickr8k's two teachers."""
    rows = [
        {"image": name, "captions": captions, **({"taught": taught[name]} if name in taught else {})}
        for name, captions in found.items()
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    atomic_write(path, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def write_table(folder: Path, records: Sequence[Record], name: str = "captions.jsonl") -> None:
    """Writes a table, and in `images/` a link to the folder of each part's images.

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
    atomic_write(folder / name, "".join(lines))


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
