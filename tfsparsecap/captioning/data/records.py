"""What every data source returns: images with their captions and splits, and records that cannot be used.

Also here: helpers for sources, and the search for photographs that are in two splits.
"""

import contextlib
import hashlib
import json
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from tqdm import tqdm

from tfsparsecap.errors import InputError, short_line, unknown_name

SPLITS = ("train", "validation", "test")
#: Names that published data sets use for the three splits.
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "restval": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}

#: Suffixes of images, in lower case: those that can be read, and formats that must be converted first.
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif", ".tiff", ".jp2", ".ppm")
)
OTHER_IMAGE_SUFFIXES = frozenset((".heic", ".heif", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".nef", ".arw"))

#: Fractions of train, validation and test if a data set has no splits.
FRACTIONS = (0.90, 0.05, 0.05)

OnBadRecord = Literal["skip", "fail"]
T = TypeVar("T")

# Maximum number of characters of a name in a message.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Record:
    """An image and its captions.

    Attributes:
        image_id: name of the image in its data set.
        image: path of the file.
        captions: its reference captions.
        split: one of `SPLITS`.
        labels: names of the objects in the image; None if they are unknown.
    """

    image_id: str
    image: Path
    captions: tuple[str, ...]
    split: str
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Skipped:
    """A bad record that was skipped: `where` it is and `why` it cannot be used."""

    where: str
    why: str

    def __str__(self) -> str:
        return short_line(f"{self.where}: {self.why}")


@dataclass(frozen=True)
class CaptionData:
    """A data set: its name, its records in all splits, bad records that were skipped, and notes for the user.

    With `reads_images=False`, its image files are not read and may change: a captioner takes features.

    Examples:
        >>> data = CaptionData("two", [Record("a.jpg", Path("a.jpg"), ("a dog",), "train")])
        >>> len(data.split("train")), len(data.split("test"))
        (1, 0)
    """

    name: str
    records: list[Record]
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reads_images: bool = True

    def split(self, name: str) -> list[Record]:
        """The records of one split.

        Raises:
            InputError: there is no split of this name.
        """
        if name not in SPLITS:
            raise unknown_name("split", name, SPLITS)
        return [record for record in self.records if record.split == name]

    def label_names(self) -> set[str]:
        """The names of all labels."""
        return {name for record in self.records for name in record.labels or ()}

    def summary(self) -> str:
        """One line: images and captions of each split, and the number of skipped records."""
        parts = []
        for name in SPLITS:
            records = self.split(name)
            captions = sum(len(record.captions) for record in records)
            parts.append(f"{name} {len(records)} images, {captions} captions")
        skipped = f"; {len(self.skipped)} bad records skipped" if self.skipped else ""
        return f"{self.name}: {'; '.join(parts)}{skipped}"

    def digest(self) -> str:
        """Of the images' names, captions, splits, labels and, if they are read, file sizes: equal for a copy
        of the data set.
        """
        return self._digest(self.reads_images)

    def digests(self) -> tuple[str, ...]:
        """`digest`, and that of an earlier version, which counted the sizes of all image files."""
        return (self.digest(),) if self.reads_images else (self.digest(), self._digest(with_sizes=True))

    def _digest(self, with_sizes: bool) -> str:
        digest = hashlib.sha256()
        for record in self.records:
            size = None
            if with_sizes:
                with contextlib.suppress(OSError):
                    size = record.image.stat().st_size
            about: list = [record.image_id, record.captions, record.split, size]
            # Not a null: runs on data without labels keep their digests.
            about += [] if record.labels is None else [record.labels]
            digest.update(json.dumps(about).encode())
        return digest.hexdigest()


#: End of the message about a bad record that stops training.
REMEDY = "; correct it, or set on_bad_record=skip to train without it"


class BadRecords:
    """Collects bad records, or raises at the first one if `on_bad_record` is `"fail"`."""

    def __init__(self, on_bad_record: OnBadRecord = "skip"):
        self.on_bad_record = on_bad_record
        self.skipped: list[Skipped] = []

    def add(self, where: str, why: str) -> None:
        """Adds a bad record.

        Raises:
            InputError: `on_bad_record` is `"fail"`.
        """
        if self.on_bad_record == "fail":
            raise InputError(f"{where}: {why}{REMEDY}")
        self.skipped.append(Skipped(where, why))


def clean_caption(text: str) -> str:
    """A caption on one line without NUL and broken Unicode; white space becomes single spaces.

    Examples:
        >>> clean_caption('  a dog,\\n "running" ')
        'a dog, "running"'
    """
    # Half of a surrogate pair, which JSON may contain, cannot be encoded and would stop TensorFlow.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return " ".join(text.split())


def has_words(caption: str) -> bool:
    """Whether a caption has a letter, a digit or an emoji: "-" stands for none in many data sets.

    Examples:
        >>> has_words("2 dogs"), has_words("- .")
        (True, False)
    """
    return any(category[0] in "LMN" or category == "So" for category in map(unicodedata.category, caption))


def seeded_splits(
    image_ids: Iterable[str],
    seed: int,
    source: str,
    fractions: Sequence[float] = FRACTIONS,
    files: Mapping[str, Path] | None = None,
) -> tuple[dict[str, str], str]:
    """Assigns images to train, validation and test at random, copies of the same photograph to one of them.

    The result depends on the ids, the seed and the copies only, not on the order of the ids; another image
    changes the split of at most one other image for validation and one for test. Validation and test get at
    least one image each if there are three or more without copies.

    Args:
        image_ids: names of the images.
        seed: another seed gives other splits.
        source: file or folder without splits, for the note.
        fractions: fractions of train, validation and test.
        files: of the images; None does not look for copies.

    Returns:
        `image_id -> split`, and a note for the user.

    Raises:
        InputError: the fractions are not three numbers that add up to 1.

    Examples:
        >>> splits, note = seeded_splits(["a", "b", "c"], 0, "captions.csv")
        >>> sorted(splits.values())
        ['test', 'train', 'validation']
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise InputError(
            f"fractions {tuple(fractions)} are not three numbers that add up to 1: give those of train, "
            "validation and test, such as (0.90, 0.05, 0.05)"
        )

    def rank(name: str) -> bytes:
        # File names may have bytes that are not UTF-8, which Python reads as halves of surrogate pairs.
        return hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()

    ids = sorted(set(image_ids), key=rank)
    least = 1 if len(ids) >= 3 else 0
    validation, test = (max(least, round(share * len(ids))) if share else 0 for share in fractions[1:])
    test = min(test, len(ids) - validation)  # both may have been rounded up
    names = ["validation"] * validation + ["train"] * (len(ids) - validation - test) + ["test"] * test
    shares = "/".join(f"{100 * share:g}" for share in fractions)
    note = f"{source} has no splits: {len(ids)} images were split {shares} at random with seed {seed}"
    splits = dict(zip(ids, names, strict=True))
    moved = 0
    for group in _across_splits(Record(name, file, (), splits[name]) for name, file in (files or {}).items()):
        # The first name is a random choice, too, so that the fractions stay.
        split = min(group, key=lambda record: record.image_id).split
        moved += sum(record.split != split for record in group)
        splits |= {record.image_id: split for record in group}
    if moved:
        note += f"; {moved} copies were put into the splits of their originals"
    return splits, note


def with_progress(results: Iterable[T], total: int, what: str, shown: bool) -> Iterable[T]:
    """The results for images, one after the other, with a progress bar that appears after three seconds."""
    return tqdm(results, total=total, desc=what, unit="image", delay=3, leave=False, disable=not shown)


def check_folder(folder: Path, expected: str) -> None:
    """Raises InputError if a data folder is missing or empty; `expected` describes what it should contain."""
    if not folder.exists():
        where = "" if folder.is_absolute() else f" in {Path.cwd()}"
        raise InputError(
            f"there is no data folder {folder}{where}: give the path of a folder with {expected}"
        )
    if not folder.is_dir():
        raise InputError(f"the data folder {folder} is a file: set the path to a folder with {expected}")
    try:
        empty = next(folder.iterdir(), None) is None
    except PermissionError as error:
        raise InputError(f"the data folder {folder} cannot be read: give it read permission") from error
    if empty:
        raise InputError(f"the data folder {folder} is empty: put {expected} there")


def images_in(folder: Path) -> list[Path]:
    """The image files in a folder, sorted, without hidden ones, such as those that macOS adds to copies.

    Those in formats that cannot be read are among them, so that messages can say why.
    """
    suffixes = IMAGE_SUFFIXES | OTHER_IMAGE_SUFFIXES
    files = (file for file in folder.iterdir() if file.suffix.lower() in suffixes)
    return sorted(file for file in files if not file.name.startswith("."))


def listed(names: Iterable[str], limit: int = 3) -> str:
    """The first names of a list, for a message: `a, b, c and 4 more`.

    Unprintable characters are replaced, and very long names are truncated.
    """
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(_printable, names[:limit])) + more


def _printable(name: str) -> str:
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}\u2026"
    return "".join(letter if letter.isprintable() else "?" for letter in name) or '""'


# The end of a file tells photographs of equal size apart: headers are often equal.
_TAIL = 4096


def copies_across_splits(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Pairs of records in different splits whose image files have the same bytes, one for each photograph.

    Reads the sizes of all files, the ends of those of equal size, and all of those with equal ends. Files
    that are missing or empty are left out.
    """
    return [
        (group[0], next(record for record in group if record.split != group[0].split))
        for group in _across_splits(records)
    ]


def _across_splits(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each photograph that is in different splits."""
    groups = [list(records)]
    for key in (os.path.getsize, _tail, _digest):
        groups = [part for group in groups for part in _parts(group, key)]
    return groups


def describe_copies(data: CaptionData, pairs: list[tuple[Record, Record]]) -> str:
    """Which photographs of a data set are in two splits, for a message."""
    names = (
        f"{first.image_id} ({first.split}) is {second.image_id} ({second.split})" for first, second in pairs
    )
    count = f"{len(pairs)} photograph{'s' if len(pairs) > 1 else ''}"
    return f"{data.name} has {count} in two splits, {listed(names)}"


def _parts(group: list[Record], key: Callable[[Path], Any]) -> list[list[Record]]:
    """The records with equal keys, where they are in more than one split."""
    parts: dict[Any, list[Record]] = {}
    for record in group:
        try:
            value = key(record.image)
        except (OSError, ValueError):  # names from a table may be such that no file can have them
            continue
        if value:
            parts.setdefault(value, []).append(record)
    return [part for part in parts.values() if any(record.split != part[0].split for record in part)]


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        return hashlib.sha256(file.read()).digest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
