"""Flickr8k and Flickr30k as people download them: photographs, a file of captions, perhaps split files."""

import csv
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tfsparsecap.data.records import (
    BadRecords,
    CaptionData,
    OnBadRecord,
    Record,
    Skipped,
    clean_caption,
    seeded_splits,
    shown,
)
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
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}

_COMMENT_NUMBER = re.compile(r"\d+")


def load(
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    on_bad_record: OnBadRecord = "skip",
    absent_images: OnBadRecord = "fail",
) -> CaptionData:
    """Reads a Flickr8k or Flickr30k folder.

    Photographs lie in one of `IMAGE_FOLDERS` (or in a folder of the same name inside it, or in `folder`
    itself); captions are `captions.txt` (CSV, header `image,caption`), a `.token` file
    (`name.jpg#0<tab>caption`) or Flickr30k's `results.csv` (`image_name| comment_number| comment`); the
    splits are the official Flickr8k files or `train.txt`, `val.txt`, `test.txt` with a name a line.
    Without split files 90, 5 and 5 % of the photographs are dealt to train, validation and test by
    `seed`, and `notes` says so.

    Args:
        folder: as downloaded and unpacked.
        seed: of the split, where there are no split files.
        on_bad_record: what to do with a line that is no caption, a caption of an absent photograph and a
            photograph without captions: `"skip"` (they are named in `skipped`) or `"fail"`.
        absent_images: what to do where split files name photographs that are absent, which mostly means
            that a download is not complete or that the files are of another data set: `"fail"` or
            `"skip"`.

    Raises:
        InputError: the folder is missing, empty or of another form; split files name absent photographs.

    Example:
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
            "or read the folder as a table"
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
            f"none of the images that {captions_file} names lies in {folder}: "
            "unpack images and captions of the same data set there"
        )
    for name, count in absent.items():
        bad.add(name, f"{captions_file.name} has {count} captions of it but the image is absent")

    splits, notes = _splits(folder, images, seed, absent_images, bad)
    records = []
    for name, split in splits.items():
        if captions[name]:
            records.append(Record(name, images[name], tuple(captions[name]), split))
        else:
            bad.add(name, f"it has no caption in {captions_file.name}")
    return CaptionData(folder.resolve().name, records, bad.skipped, notes)


def check_folder(folder: Path, expected: str) -> None:
    """Raises InputError where a data folder is missing or empty; `expected` says what belongs there."""
    if not folder.exists():
        raise InputError(f"there is no data folder {folder}: set the path to a folder with {expected}")
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} is a file: set the path to a folder with {expected}")
    try:
        empty = next(folder.iterdir(), None) is None
    except PermissionError as error:
        raise InputError(f"the data folder {folder} may not be read: give it read permission") from error
    if empty:
        raise InputError(f"the data folder {folder} is empty: put {expected} there")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without their ends.

    Raises:
        InputError: the file cannot be read or is no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no UTF-8 text at byte {error.start}: save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error


def _images(folder: Path) -> dict[str, Path]:
    places = [folder / name / inner for name in IMAGE_FOLDERS for inner in (name, "")]
    for place in [*places, folder]:
        if place.is_dir():
            found = {
                # Archives made on a Mac spell accents in two code points, the caption files in one.
                unicodedata.normalize("NFC", path.name): path
                for path in sorted(place.iterdir())
                if path.suffix.lower() in SUFFIXES
            }
            if found:
                return found
    raise InputError(f"there are no images in {folder}: put them in {folder / IMAGE_FOLDERS[0]}")


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    for place in TEXT_FOLDERS:
        for name in names:
            if (folder / place / name).is_file():
                return folder / place / name
    return None


def _captions(path: Path, bad: BadRecords) -> Iterator[tuple[str, str]]:
    lines = read_lines(path)
    if path.name == "results.csv":
        rows = _bar_rows(lines)
    elif path.suffix == ".token" or path.name.endswith(".token.txt"):
        rows = _token_rows(lines)
    else:
        rows = _csv_rows(lines, path)
    for number, row in rows:
        if row is None:
            bad.add(f"{path} line {number}", "it holds no image name and caption")
            continue
        name, caption = unicodedata.normalize("NFC", row[0].strip()), clean_caption(row[1])
        if caption:
            yield name, caption
        else:
            bad.add(f"{path} line {number}", f"the caption of {name} is empty")


def _csv_rows(lines: list[str], path: Path) -> Iterator[tuple[int, tuple[str, str] | None]]:
    reader = csv.reader(f"{line}\n" for line in lines)
    header = next(reader, [])
    if [column.strip().lower() for column in header] != ["image", "caption"]:
        raise InputError(
            f"{path} begins with {','.join(header)!r}: its first line must be image,caption (CSV); "
            "read files of another form as a table"
        )
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield reader.line_num, None
            continue
        if row:
            # A caption with commas that nobody quoted is still the rest of its line.
            yield reader.line_num, (row[0], ",".join(row[1:])) if len(row) >= 2 and row[0].strip() else None


def _token_rows(lines: list[str]) -> Iterator[tuple[int, tuple[str, str] | None]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            head, tab, caption = line.partition("\t")
            name, _, comment = head.rpartition("#")
            yield number, (name, caption) if tab and name and comment.strip().isdigit() else None


def _bar_rows(lines: list[str]) -> Iterator[tuple[int, tuple[str, str] | None]]:
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            # The published file has one row with a bar missing: `name| 4   A dog runs across the grass .`
            name, _, rest = line.partition("|")
            comment = _COMMENT_NUMBER.match(rest.strip())
            caption = rest.strip()[comment.end() :].lstrip().removeprefix("|") if comment else ""
            yield number, (name, caption) if comment and name.strip() else None


def _splits(
    folder: Path, images: dict[str, Path], seed: int, absent_images: OnBadRecord, bad: BadRecords
) -> tuple[dict[str, str], list[str]]:
    files = {split: _first_file(folder, names) for split, names in SPLIT_FILES.items()}
    present = [path.name for path in files.values() if path]
    if not present:
        return seeded_splits(images, seed), [
            f"{folder} has no split files: the images were dealt 90/5/5 to train, validation and test "
            f"with seed {seed}"
        ]
    if len(present) < len(files):
        missing = [SPLIT_FILES[split][0] for split, path in files.items() if path is None]
        raise InputError(
            f"{folder} has {', '.join(present)} but not {', '.join(missing)}: "
            "add it, or remove all split files to get a seeded split"
        )
    splits: dict[str, str] = {}
    for split, path in files.items():
        names = [unicodedata.normalize("NFC", line.strip()) for line in read_lines(path) if line.strip()]
        names = [name if name in images or Path(name).suffix else f"{name}.jpg" for name in names]
        absent = [name for name in names if name not in images]
        if absent and absent_images == "fail":
            raise InputError(
                f"{path} names {len(absent)} images that are not in {folder} ({shown(absent)}): "
                "complete the download, or set absent_images=skip to go on without them"
            )
        bad.skipped.extend(Skipped(name, f"{path.name} names it but the image is absent") for name in absent)
        for name in names:
            if splits.get(name, split) != split:
                raise InputError(
                    f"{name} is in the {splits[name]} and in the {split} split of {folder}: keep it in one"
                )
            if name in images:
                splits[name] = split
    rest = [name for name in images if name not in splits]
    notes = [f"{len(rest)} images are in no split file and are not used ({shown(rest)})"] if rest else []
    return splits, notes
