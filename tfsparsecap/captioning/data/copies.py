"""The same photograph in two splits, perhaps under two names."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfsparsecap.captioning.data.records import CaptionData, Record, shown

# The end of a file tells photographs of equal size apart: headers are often equal.
_TAIL = 4096


def copies_across_splits(records: Iterable[Record]) -> list[tuple[Record, Record]]:
    """Pairs of records in different splits whose image files have the same bytes, one for each photograph.

    Reads the sizes of all files, the ends of those of equal size, and all of those with equal ends. Files
    that are missing or empty are left out.
    """
    groups = [list(records)]
    for key in (_size, _tail, _digest):
        groups = [part for group in groups for part in _parts(group, key)]
    return [
        (group[0], next(record for record in group if record.split != group[0].split)) for group in groups
    ]


def described(data: CaptionData, pairs: list[tuple[Record, Record]]) -> str:
    """Which photographs of a data set are in two splits, for a message."""
    names = (f"{one.image_id} ({one.split}) is {two.image_id} ({two.split})" for one, two in pairs)
    count = f"{len(pairs)} photograph{'s' if len(pairs) > 1 else ''}"
    return f"{data.name} has {count} in two splits, {shown(names)}"


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


def _size(path: Path) -> int:
    return os.stat(path).st_size


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        return hashlib.sha256(file.read()).digest()


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
