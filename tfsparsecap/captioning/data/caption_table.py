"""A folder of images with a table of captions, CSV or JSONL: the format for your own data."""

import contextlib
import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tfsparsecap.captioning.data.image_files import ImageFiles
from tfsparsecap.captioning.data.records import (
    FRACTIONS,
    IMAGE_SUFFIXES,
    SPLIT_NAMES,
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

TABLES = ("captions.csv", "captions.jsonl", "metadata.csv", "metadata.jsonl")

# The line by which Excel knows the delimiter.
_SEPARATOR = re.compile(r"sep=([,;\t|])\s*", re.IGNORECASE)
# Longer than any caption: Python's default stops at 131072 characters.
_LONGEST_FIELD = 1 << 24
_STRAY_QUOTATION_MARK = 'it has a quotation mark (") without its partner: remove it, or write it twice'
_LABELS = "labels"
_ADVICE = "set data.image_column, data.caption_column or data.split_column"
_SPLIT = "split"
# Names of the split column that need not be there.
_NO_COLUMN = ("", _SPLIT)


def load(
    folder: str | os.PathLike,
    table: str | os.PathLike | None = None,
    *,
    image_column: str = "image",
    caption_column: str = "caption",
    split_column: str = _SPLIT,
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
    on_bad_record: OnBadRecord = "skip",
    images: Literal["need", "ignore"] = "need",
) -> CaptionData:
    """Reads images and captions from a folder and a table.

    A row of the table contains an image's path, one caption, and optionally its split (`train`, `validation`
    or `test`; also `val`, `dev` and `restval`). An image may have any number of rows. In JSONL every line is
    an object, or the file is one list of objects; `captions` may contain a list instead of `caption`.
    `labels`, if it is there, names the objects in the image: in JSONL a list of strings, or null if they are
    unknown; in CSV names with `|` between them, `|` alone if there are none, or nothing if they are unknown.
    An image has the labels of all its rows. If there is no column `split`, or the split column is empty, the
    images are split at random by `fractions` and `seed`, and `notes` mentions it.

    Args:
        folder: paths in the table are relative to it, or to `Images/` or `images/` in it.
        table: the file, relative to `folder` or to the working directory; None takes the one of `TABLES` in
            `folder`.
        image_column, caption_column, split_column: names of the columns (in JSONL, of the keys).
        seed: seed of the random split.
        fractions: fractions of train, validation and test in the random split.
        on_bad_record: what to do with rows without image or caption, with a missing image or an unknown
            split, and with images without captions: `"skip"` (they are listed in `skipped`) or `"fail"`.
        images: `"need"`: a row whose image file is missing is bad. `"ignore"`, for training from features:
            image files may be missing.

    Raises:
        InputError: folder or table are missing, empty or have another format; a column is missing; no row can
            be used; an image is in two splits; labels are no names, or the table has splits and no training
            image has a label of the others.

    Examples:
        >>> data = load("my_photos", "captions.csv", caption_column="text")  # doctest: +SKIP
    """
    folder = Path(folder)
    check_folder(folder, "images and captions.csv")
    table = _table(folder, table)
    bad = BadRecords(on_bad_record)
    columns = (image_column, caption_column, split_column)
    image_files = ImageFiles(folder)
    read = _json_rows if table.suffix.lower() in (".jsonl", ".json", ".ndjson") else csv_rows
    captions: dict[str, list[str]] = {}
    paths: dict[str, Path] = {}
    splits: dict[str, str] = {}
    names: dict[str, str] = {}
    labels: dict[str, dict[str, None]] = {}
    for where, name, texts, split, row_labels in read(table, columns, bad):
        path = paths.get(name) or image_files.find(name) or (folder / name if images == "ignore" else None)
        if path is None:
            bad.add(where, f"the image {listed([name])} is missing")
            continue
        # Another spelling of a path is not another image, which could be in another split.
        name = names.setdefault(os.path.abspath(path), name)
        if split and split.lower() not in SPLIT_NAMES:
            bad.add(where, f"the split {split!r:.60} is not train, validation or test")
            continue
        split = SPLIT_NAMES.get(split.lower(), "")
        before = splits.get(name, "")
        if split and before and split != before:
            raise InputError(
                f"{where}: {name} is in split {split} here and in {before} before: put an image into one"
                " split"
            )
        splits[name] = before or split
        paths[name] = path
        if row_labels is not None:
            labels.setdefault(name, {}).update(dict.fromkeys(row_labels))
        usable_captions = _usable_texts(texts)
        if usable_captions:
            captions.setdefault(name, []).extend(usable_captions)
        else:
            bad.add(where, f"the caption of {listed([name])} has no word")
    if not captions:
        first = f"; the first: {bad.skipped[0]}" if bad.skipped else ""
        raise InputError(f"{table} has no row with an image of {folder} and a caption: correct it{first}")
    notes = []
    has_splits = any(splits[name] for name in captions)
    if not has_splits:
        files = {name: paths[name] for name in captions}
        splits, note = seeded_splits(captions, seed, table.name, fractions, files)
        notes.append(note)
    records = []
    for name, texts in captions.items():
        if splits[name]:
            image_labels = tuple(labels[name]) if name in labels else None
            records.append(Record(name, paths[name], tuple(texts), splits[name], image_labels))
        else:
            bad.add(name, f"it has no split in {table.name} while other images have one")
    if has_splits:
        _check_labels(table, records)
    return CaptionData(folder.resolve().name, records, bad.skipped, notes)


def _check_labels(table: Path, records: list[Record]) -> None:
    """Misspelt labels, and labels of another set, show in labels that no training image has."""
    of_split: dict[str, set[str]] = {}
    for record in records:
        of_split.setdefault(record.split, set()).update(record.labels or ())
    training_labels = of_split.pop("train", set())
    for split, names in of_split.items():
        if training_labels and (unknown := sorted(names - training_labels)):
            raise InputError(
                f"{table} has labels in the {split} split that no training image has ({listed(unknown)}): use"
                " the same names in all splits"
            )


def _table(folder: Path, table: str | os.PathLike | None) -> Path:
    places = [folder / name for name in TABLES] if table is None else [folder / table, Path(table)]
    for place in places:
        if place.is_file():
            return place
    if table is None:
        raise InputError(f"there is no table of captions in {folder}: put one of {', '.join(TABLES)} there")
    raise InputError(
        f"there is no table {table}, neither in {folder} nor in the working directory: check data.table"
    )


def _usable_texts(texts: Iterable[str]) -> list[str]:
    """Captions or labels on one line each, without those that have no word."""
    return [text for text in map(clean_caption, texts) if has_words(text)]


class CaptionRow(NamedTuple):
    """Where a row of a table is, its image, captions and split, and the labels of its image."""

    where: str
    image: str
    captions: list[str]
    split: str
    labels: list[str] | None = None


def csv_rows(
    table: Path, columns: tuple[str, str, str], bad: BadRecords, advice: str = _ADVICE
) -> Iterator[CaptionRow]:
    """Rows of a CSV file, whose fields are separated by commas, semicolons or tabs.

    Args:
        table: the file.
        columns: names of the columns of images, captions and splits; case does not matter.
        bad: rows that cannot be used are added to it.
        advice: end of the message if a column is missing.

    Raises:
        InputError: the file cannot be read, or has no column of images or captions, or of splits if that has
            another name than the default.
    """
    image_column, caption_column, split_column = columns
    csv.field_size_limit(_LONGEST_FIELD)
    lines = [f"{line}\n" for line in read_text(table).split("\n")]
    first = lines[0]
    if separator := _SEPARATOR.fullmatch(first):
        first = "".join(lines[1:2])
        lines[0] = "\n"
    delimiter = separator[1] if separator else max(",;\t", key=first.count)
    # Where the header has spaces after its commas, quotation marks after spaces enclose fields.
    records = _csv_records(lines, {"delimiter": delimiter, "skipinitialspace": f"{delimiter} " in first})
    _, header, problem = next(records, (0, [], ""))
    if problem:
        raise InputError(f"{table} is not CSV ({problem}): save it as CSV or JSONL")
    spelled = {column.casefold(): column for column in (*columns, _LABELS) if column not in header}
    header = [spelled.get(name.strip().casefold(), name) for name in header]
    if not header:
        raise InputError(f"{table} is empty: give a table with images and captions")
    needed = columns if split_column not in _NO_COLUMN else columns[:2]
    for column in needed:
        if column not in header:
            if _is_image(header[0]):
                names = ",".join(filter(None, columns))
                advice = f"its first line must contain the names of its columns, {names}"
            raise InputError(f"{table} has no column {column!r} but {_listed_columns(header)}: {advice}")
    for number, fields, problem in records:
        where = f"{table} line {number}"
        if problem:
            bad.add(where, problem)
            continue
        row = dict.fromkeys(header, "") | dict(zip(header, fields, strict=False))
        # Several columns of the same name have a caption each.
        texts = [text for column, text in zip(header, fields, strict=False) if column == caption_column]
        name = row[image_column].strip()
        if not name:
            bad.add(where, "it has no image name")
            continue
        surplus = fields[len(header) :]
        if surplus and caption_column == header[-1]:
            # A caption with commas but without quotes is still the rest of its line.
            texts[-1] = delimiter.join([texts[-1], *surplus])
        elif surplus:
            bad.add(where, f"it has more fields than columns: put the caption of {name} in quotes")
            continue
        label_field = row.get(_LABELS, "").strip()
        labels = _usable_texts(label_field.split("|")) if label_field else None
        yield CaptionRow(where, name, texts, row.get(split_column, "").strip(), labels)


def _listed_columns(names: Iterable[str]) -> str:
    return f"{', '.join(map(repr, names)):.200}"


def _csv_records(lines: Sequence[str], format: dict[str, Any]) -> Iterator[tuple[int, list[str], str]]:
    """Line numbers and fields of the records of a CSV file that are not empty, and what is wrong with them.

    A quotation mark without its partner would make a field of all lines up to the next one. Such a line is
    wrong; the lines after it are read.
    """
    position = 0

    def remaining_lines() -> Iterator[str]:
        nonlocal position
        while position < len(lines):
            position += 1
            yield lines[position - 1]

    reader = csv.reader(remaining_lines(), **format)
    while True:
        start, problem = position, ""
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            fields, problem = [], f"it is not CSV ({error})"
        if position > start + 1 and _runs_on(lines[start:position], format):
            position = start + 1
            reader = csv.reader(remaining_lines(), **format)
            fields, problem = [], _STRAY_QUOTATION_MARK
        if fields or problem:
            yield start + 1, fields, problem


def _runs_on(lines: Sequence[str], format: dict[str, Any]) -> bool:
    """Whether a field that extends over these lines has been closed by mistake, or not at all."""
    try:
        list(csv.reader(lines, strict=True, **format))
    except csv.Error:
        return True
    return any(_is_image(field) for line in lines[1:] for field in line.split(format["delimiter"])[:-1])


def _is_image(field: str) -> bool:
    return Path(field.strip()).suffix.lower() in IMAGE_SUFFIXES


def _json_rows(table: Path, columns: tuple[str, str, str], bad: BadRecords) -> Iterator[CaptionRow]:
    image_column, caption_column, split_column = columns
    records = list(_json_records(table))
    keys = dict.fromkeys(key for _, row, _ in records if isinstance(row, dict) for key in row)
    needed = [image_column, *([] if "captions" in keys else [caption_column])]
    needed += [] if split_column in _NO_COLUMN else [split_column]
    for column in needed:
        if keys and column not in keys:
            raise InputError(f"{table} has no key {column!r} but {_listed_columns(keys)}: {_ADVICE}")
    for where, row, problem in records:
        if problem:
            bad.add(where, problem)
            continue
        if not isinstance(row, dict) or not isinstance(row.get(image_column), str):
            bad.add(where, f"it has no {image_column!r} with the name of an image")
            continue
        texts: Any = row.get(caption_column, row.get("captions", []))
        texts = [texts] if isinstance(texts, str) else texts
        split, labels = row.get(split_column) or "", row.get(_LABELS)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            bad.add(
                where,
                f"{caption_column!r} of {listed([row[image_column]])} is not a string or a list of strings",
            )
        elif not isinstance(split, str):
            bad.add(where, f"{split_column!r} of {listed([row[image_column]])} is not a string")
        else:
            names = _json_labels(labels, f"{where}: {_LABELS!r} of {listed([row[image_column]])}")
            yield CaptionRow(where, row[image_column].strip(), texts, split.strip(), names)


def _json_labels(labels: Any, where: str) -> list[str] | None:
    if labels is None:
        return None
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        labels = list(map(clean_caption, labels))
        if all(map(has_words, labels)):
            return labels
    raise InputError(
        f'{where} is not a list of names: write one, such as ["dog", "person"], or null if they are unknown'
    )


def _json_records(table: Path) -> Iterator[tuple[str, Any, str]]:
    """Where a value is, the value, and what is wrong with it: each on a line, or all in one list."""
    text = read_text(table)
    if text.lstrip().startswith("["):
        rows = None
        with contextlib.suppress(ValueError, RecursionError):
            rows = json.loads(text)
        if rows is not None:
            yield from ((f"{table} item {number}", row, "") for number, row in enumerate(rows, 1))
            return
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{table} line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield where, None, f"it is not a JSON object ({error})"
        else:
            yield where, row, ""
