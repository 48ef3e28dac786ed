"""What every source of pictures and captions gives: records, and the list of what was left out and why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from tfsparsecap.errors import InputError

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

OnBadRecord = Literal["skip", "fail"]

# Letters of a name in a message.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Record:
    """One picture and everything people said about it.

    `image_id` is the picture's name in its data set, `image` the file, `split` one of `SPLITS`.
    """

    image_id: str
    image: Path
    captions: tuple[str, ...]
    split: str


@dataclass(frozen=True)
class Skipped:
    """A bad record that was left out: `where` it is and `why` it cannot be used."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True)
class CaptionData:
    """A whole data set: its name, its records in all splits, what was left out, and remarks for the person.

    Example:
        >>> data = CaptionData("two", [Record("a.jpg", Path("a.jpg"), ("a dog",), "train")])
        >>> len(data.split("train")), len(data.split("test"))
        (1, 0)
    """

    name: str
    records: list[Record]
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def split(self, name: str) -> list[Record]:
        """The records of one split.

        Raises:
            InputError: there is no split of this name.
        """
        if name not in SPLITS:
            raise InputError(f"there is no split {name!r}: choose one of {', '.join(SPLITS)}")
        return [record for record in self.records if record.split == name]

    def summary(self) -> str:
        """One line: images and captions a split, and how many records were left out."""
        parts = []
        for name in SPLITS:
            records = self.split(name)
            captions = sum(len(record.captions) for record in records)
            parts.append(f"{name} {len(records)} images, {captions} captions")
        left_out = f"; {len(self.skipped)} bad records left out" if self.skipped else ""
        return f"{self.name}: {'; '.join(parts)}{left_out}"


#: What is said behind a bad record that ends a training.
REMEDY = "; mend it, or set on_bad_record=skip to go on without it"


class BadRecords:
    """Collects what a source cannot use, or raises at the first one where `on_bad_record` is `"fail"`."""

    def __init__(self, on_bad_record: OnBadRecord = "skip"):
        if on_bad_record not in ("skip", "fail"):
            raise InputError(f"on_bad_record is {on_bad_record!r}: set it to skip or fail")
        self.on_bad_record = on_bad_record
        self.skipped: list[Skipped] = []

    def add(self, where: str, why: str) -> None:
        """Notes one bad record.

        Raises:
            InputError: `on_bad_record` is `"fail"`.
        """
        if self.on_bad_record == "fail":
            raise InputError(f"{where}: {why}{REMEDY}")
        self.skipped.append(Skipped(where, why))


def clean_caption(text: str) -> str:
    """A caption on one line, without NUL or broken Unicode, its runs of white space made one space.

    Example:
        >>> clean_caption('  a dog,\\n "running" ')
        'a dog, "running"'
    """
    # Half of a surrogate pair (JSON may spell one) cannot be encoded and would stop TensorFlow.
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return " ".join(text.split())


def seeded_splits(
    image_ids: Iterable[str], seed: int = 0, fractions: Sequence[float] = (0.90, 0.05, 0.05)
) -> dict[str, str]:
    """Deals images to train, validation and test: equal for equal ids and seed, whatever their order.

    Args:
        image_ids: names of the images; each goes to one split with all its captions.
        seed: of the shuffle.
        fractions: shares of train, validation and test; they add up to 1.

    Returns:
        `image_id -> split`. Validation and test get at least one image each where there are three or more.

    Raises:
        InputError: the fractions are no shares.

    Example:
        >>> sorted(seeded_splits(["a", "b", "c"]).values())
        ['test', 'train', 'validation']
    """
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise InputError(
            f"split fractions {tuple(fractions)} are not three shares that add up to 1: "
            "give train, validation and test, such as (0.90, 0.05, 0.05)"
        )
    ids = sorted(set(image_ids))
    order = np.random.default_rng(seed).permutation(len(ids))
    sizes = [round(share * len(ids)) for share in fractions[1:]]
    if len(ids) >= 3:
        sizes = [max(1, size) if share else 0 for size, share in zip(sizes, fractions[1:], strict=True)]
    validation, test = sizes
    splits = {}
    for place, index in enumerate(order):
        splits[ids[index]] = (
            "validation" if place < validation else "test" if place < validation + test else "train"
        )
    return splits


def shown(names: Iterable[str], limit: int = 3) -> str:
    """The first names of a long list, for a message: `a, b, c and 4 more`.

    What cannot be printed in a name is replaced, a very long one cut.
    """
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(_printable, names[:limit])) + more


def _printable(name: str) -> str:
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}\u2026"
    return "".join(letter if letter.isprintable() else "?" for letter in name) or '""'
