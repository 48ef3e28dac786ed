"""Flickr8k and Flickr30k as downloaded: images, a caption file and optional split files."""

import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tfsparsecap.captioning.data.caption_table import CaptionRow, csv_rows
from tfsparsecap.captioning.data.records import (
    IMAGE_SUFFIXES,
    BadRecords,
    CaptionData,
    OnBadRecord,
    Record,
    check_folder,
    clean_caption,
    has_words,
    listed,
    seeded_splits,
)
from tfsparsecap.core.files import read_text
from tfsparsecap.errors import InputError

IMAGE_FOLDERS = (
    "Images",
    "images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    "flickr30k_images",
    "flickr30k-images",
)
TEXT_FOLDERS = ("", "Flickr8k_text", "flickr30k_images", "annotations")
CAPTION_FILES = (
    "captions.txt",
    "Flickr8k.token.txt",
    "captions.token",
    "results_20130124.token",
    "results.csv",
)
SPLIT_FILES = {
    "train": ("Flickr_8k.trainImages.txt", "train.txt"),
    "validation": ("Flickr_8k.devImages.txt", "val.txt", "dev.txt"),
    "test": ("Flickr_8k.testImages.txt", "test.txt"),
}

# The lines of .token files, and of results.csv, which has a row with a bar missing: `name| 4   A dog runs .`
_TOKENS = re.compile(r"([^\t]+)#\s*\d+\s*\t(.*)")
_BARS = re.compile(r"([^|]+)\|\s*\d+\s*\|?(.*)")


def load(
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    on_bad_record: OnBadRecord = "skip",
) -> CaptionData:
    """Reads a Flickr8k or Flickr30k folder.

    Images are in one of `IMAGE_FOLDERS` (or in a folder of the same name inside it, or in `folder` itself);
    captions in `captions.txt` (CSV, header `image,caption`), a `.token` file (`name.jpg#0<tab>caption`) or
    Flickr30k's `results.csv` (`image_name| comment_number| comment`); splits in the official Flickr8k files
    or `train.txt`, `val.txt` and `test.txt`, one name per line. Without split files the images are split
    90/5/5 at random by `seed`, and `notes` mentions it.

    Args:
        folder: as downloaded and unpacked.
        seed: seed of the random split.
        on_bad_record: what to do with lines without a caption, captions of missing images and images without
            captions: `"skip"` (they are listed in `skipped`) or `"fail"`.

    Raises:
        InputError: the folder is missing, empty or has another format; split files list missing images.

    Examples:
        >>> data = load("data/flickr8k")  # doctest: +SKIP
        >>> len(data.split("test"))  # doctest: +SKIP
        1000
    """
    folder = Path(folder)
    check_folder(folder, "captions.txt and Images/")
    images = _images(folder)
    captions_file = _first_file(folder, CAPTION_FILES)
    if captions_file is None:
        raise InputError(
            f"there are no captions in {folder}: put one of {', '.join(CAPTION_FILES)} there, "
            "or use data.kind=table"
        )
    bad = BadRecords(on_bad_record)
    captions: dict[str, list[str]] = {name: [] for name in images}
    absent: dict[str, int] = {}
    for name, caption in _captions(captions_file, bad):
        if name in captions:
            captions[name].append(caption)
        else:
            absent[name] = absent.get(name, 0) + 1
    if not any(captions.values()):
        raise InputError(
            f"none of the images of {captions_file} is in {folder}: put images and captions of the same data"
            " set there"
        )
    for name, count in absent.items():
        bad.add(name, f"{captions_file.name} has {count} captions of it but the image is missing")

    splits, notes = _splits(folder, images, {name for name in images if captions[name]}, seed)
    records = []
    for name, split in splits.items():
        if captions[name]:
            records.append(Record(name, images[name], tuple(captions[name]), split))
        else:
            bad.add(name, f"it has no caption in {captions_file.name}")
    return CaptionData(folder.resolve().name, records, bad.skipped, notes)


def _images(folder: Path) -> dict[str, Path]:
    places = [folder / name / inner for name in IMAGE_FOLDERS for inner in (name, "")]
    for place in [*places, folder]:
        if place.is_dir():
            images = {
                # Archives made on a Mac spell accents in two code points, the caption files in one.
                unicodedata.normalize("NFC", path.name): path
                for path in sorted(place.iterdir())
                if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
            }
            if images:
                return images
    raise InputError(f"there are no images in {folder}: put them in {folder / IMAGE_FOLDERS[0]}")


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    for place in TEXT_FOLDERS:
        for name in names:
            if (folder / place / name).is_file():
                return folder / place / name
    return None


def _captions(path: Path, bad: BadRecords) -> Iterator[tuple[str, str]]:
    """Names of images and captions; an image has several."""
    if path.name == "results.csv":
        rows = _matching_rows(path, _BARS, 2, bad)
    elif path.suffix == ".token" or path.name.endswith(".token.txt"):
        rows = _matching_rows(path, _TOKENS, 1, bad)
    else:
        advice = "its first line must be image,caption (CSV); for other formats use data.kind=table"
        rows = csv_rows(path, ("image", "caption", ""), bad, advice)
    for row in rows:
        name = unicodedata.normalize("NFC", row.image.strip())
        for caption in map(clean_caption, row.captions or [""]):
            if has_words(caption):
                yield name, caption
            else:
                bad.add(row.where, f"the caption of {name} has no word")


def _matching_rows(path: Path, pattern: re.Pattern, first: int, bad: BadRecords) -> Iterator[CaptionRow]:
    """Rows of a file in which each line, from the `first` one on, matches a pattern."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if number < first or not line.strip():
            continue
        match = pattern.fullmatch(line)
        if match and match[1].strip():
            yield CaptionRow(f"{path} line {number}", match[1], [match[2]], "")
        else:
            bad.add(f"{path} line {number}", "it has no image name and caption")


def _splits(
    folder: Path, images: dict[str, Path], captioned: set[str], seed: int
) -> tuple[dict[str, str], list[str]]:
    """Splits of the official files, or random ones of the captioned images ("" for others); and notes."""
    paths = {split: _first_file(folder, names) for split, names in SPLIT_FILES.items()}
    files = {split: path for split, path in paths.items() if path is not None}
    if not files:
        files_of = {name: path for name, path in images.items() if name in captioned}
        random_splits, note = seeded_splits(files_of, seed, str(folder), files=files_of)
        return random_splits | {name: "" for name in images if name not in captioned}, [note]
    missing = [SPLIT_FILES[split][0] for split, path in paths.items() if path is None]
    if missing:
        raise InputError(
            f"{folder} has {', '.join(path.name for path in files.values())} but not {', '.join(missing)}: "
            "add them, or remove all split files to get a random split"
        )
    splits: dict[str, str] = {}
    for split, path in files.items():
        names = [name.strip() for name in unicodedata.normalize("NFC", read_text(path)).split("\n")]
        names = [name if name in images or Path(name).suffix else f"{name}.jpg" for name in names if name]
        absent = [name for name in names if name not in images]
        if absent:
            raise InputError(
                f"{path} lists {len(absent)} images that are not in {folder} ({listed(absent)}): "
                "complete the download, or remove these names to train without them"
            )
        for name in names:
            if splits.get(name, split) != split:
                raise InputError(
                    f"{name} is in the {splits[name]} and in the {split} split of {folder}: put it into one"
                )
            splits[name] = split
    unused_names = [name for name in images if name not in splits]
    notes = []
    if unused_names:
        notes.append(
            f"{len(unused_names)} images are in no split file and are not used ({listed(unused_names)})"
        )
    return splits, notes
