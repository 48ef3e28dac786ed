"""MS-COCO as downloaded: images, Karpathy's `dataset_coco.json` or MS-COCO's caption files, and labels."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypeGuard

from tfsparsecap.captioning.data import flickr
from tfsparsecap.captioning.data.image_files import ImageFiles
from tfsparsecap.captioning.data.records import (
    FRACTIONS,
    SPLIT_NAMES,
    SPLITS,
    BadRecords,
    CaptionData,
    OnBadRecord,
    Record,
    check_folder,
    clean_caption,
    has_words,
    seeded_splits,
)
from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError

KARPATHY_FILE = "dataset_coco.json"
#: Folders with images, in the data folder or in an image folder of it.
YEAR_FOLDERS = tuple(f"{split}{year}" for year in (2014, 2017) for split in ("train", "val", "test"))

# Keys that are read. All others, above all the outlines of objects, are dropped while a file is parsed.
_KEPT = {
    *("images", "annotations", "sentences", "categories"),
    *("cocoid", "filepath", "filename", "split"),
    *("id", "file_name", "image_id", "caption", "name", "category_id"),
}
_YEAR = re.compile(r"(?<!\d)20\d\d(?!\d)")
# MS-COCO 2017 has the images of 2014 under shorter names: 000000391895.jpg.
_PREFIX = re.compile(r"^COCO_(train|val|test)20\d\d_")


def load(
    folder: str | os.PathLike,
    *,
    captions: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    images: Literal["need", "ignore"] = "need",
    restval: Literal["train", "skip"] = "train",
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
    on_bad_record: OnBadRecord = "skip",
) -> CaptionData:
    """Reads an MS-COCO folder, or another data set in one of its two formats.

    Karpathy's format (`dataset_coco.json`, `dataset_flickr8k.json`, `dataset_flickr30k.json`) contains the
    splits. In MS-COCO's own format (`captions_train2014.json`, `captions_val2014.json`) the file name
    contains the split: the word `train`, `val` or `test`. Images without a split are split at random by
    `fractions` and `seed`, and `notes` mentions it.

    The id of an image is its MS-COCO number (`"391895"`), as in the names of bottom-up features, or its file
    name if it has no number. Image files are searched for at the path in the caption file, relative to
    `folder` or to `images/` in it; then in those folders themselves, in `YEAR_FOLDERS` and in
    `flickr.IMAGE_FOLDERS`; also under their names of 2017. The labels of an image are the categories that
    `instances_*.json` has of it, if these files are in `annotations/` or in `folder`.

    Args:
        folder: contains the caption files, and the images if they are needed.
        captions: the caption file or files, relative to `folder`. None takes `dataset_coco.json`, else
            another `dataset_*.json`, else `annotations/captions_*.json`, else `captions_*.json`.
        images: `"need"`: a record whose image file is missing is bad. `"ignore"`, for training from features:
            image files may be missing.
        restval: use the 30 504 images with this split for `"train"`, as usual, or `"skip"` them.
        seed: seed of the random split.
        fractions: fractions of train, validation and test in the random split.
        on_bad_record: what to do with malformed or duplicate entries, entries without captions, with an
            unknown split or with a missing image, and captions that have no word or belong to no image:
            `"skip"` (they are listed in `skipped`) or `"fail"`.

    Raises:
        InputError: the folder or a file is missing or has another format; the choice of caption files is
            ambiguous; no image can be used.

    Examples:
        >>> data = load("data/coco", images="ignore")  # doctest: +SKIP
        >>> [len(data.split(name)) for name in ("train", "validation", "test")]  # doctest: +SKIP
        [113287, 5000, 5000]
    """
    folder = Path(folder)
    check_folder(folder, f"{KARPATHY_FILE} or annotations/captions_*.json")
    files = _caption_files(folder, captions)
    bad = BadRecords(on_bad_record)
    image_files = _image_files(folder)
    entries: dict[str, tuple[_Entry, Path]] = {}
    source: dict[str, Path] = {}
    absent, not_used = 0, 0
    for file in files:
        for entry in _entries(file, bad):
            name = entry.image_id
            if name in entries:
                also = "" if source[name] == file else f" of {source[name].name}"
                bad.add(
                    f"{file} {entry.where}",
                    f"the image {name} is a duplicate of {entries[name][0].where}{also}",
                )
            elif entry.split == "restval" and restval == "skip":
                not_used += 1
            elif (path := _found(image_files, entry.file)) is None and images == "need":
                absent += 1
                bad.add(
                    name, f"{file.name} has {len(entry.captions)} captions of it but {entry.file} is missing"
                )
            else:
                entries[name], source[name] = (entry, path or folder / entry.file), file
    named = ", ".join(map(str, files))
    if not entries and absent:
        raise InputError(
            f"none of the {absent} images of {named} is in {folder}: unpack them there (train2014, val2014), "
            "or set data.images=ignore to train from features"
        )
    if not entries:
        first = f"; the first: {bad.skipped[0]}" if bad.skipped else ""
        raise InputError(f"{named} has no image with captions that can be used: correct it{first}")

    labels = image_labels(instance_files(folder, files))
    records, notes = _split(entries, source, seed, fractions)
    records = [replace(record, labels=labels.get(record.image_id)) for record in records]
    if not_used:
        notes.append(f"{not_used} images of the split restval are not used because of data.restval=skip")
    return CaptionData(folder.resolve().name, records, bad.skipped, notes)


class _Entry(NamedTuple):
    """An image of a caption file; `split` is a key of `SPLIT_NAMES`, or empty."""

    where: str
    image_id: str
    file: str
    captions: tuple[str, ...]
    split: str


def _image_files(folder: Path) -> ImageFiles:
    tops = [top for name in flickr.IMAGE_FOLDERS for top in (name, f"{name}/{name}")]
    years = [f"{root}/{year}" if root else year for root in ("", "images", "Images") for year in YEAR_FOLDERS]
    return ImageFiles(folder, ["", *tops, *years])


def _found(image_files: ImageFiles, file: str) -> Path | None:
    folder, name = os.path.split(file)
    return image_files.find(file) or image_files.find(os.path.join(folder, _PREFIX.sub("", name)))


def _split(
    entries: dict[str, tuple[_Entry, Path]], source: dict[str, Path], seed: int, fractions: Sequence[float]
) -> tuple[list[Record], list[str]]:
    splits = {name: SPLIT_NAMES[entry.split] for name, (entry, _) in entries.items() if entry.split}
    notes = []
    names_without_split = [name for name in entries if name not in splits]
    if names_without_split:
        files = ", ".join(dict.fromkeys(source[name].name for name in names_without_split))
        paths = {name: entries[name][1] for name in names_without_split}
        random_splits, note = seeded_splits(names_without_split, seed, files, fractions, paths)
        splits |= random_splits
        notes.append(note)
    elif missing := [split for split in SPLITS if split not in splits.values()]:
        files = ", ".join(dict.fromkeys(path.name for path in source.values()))
        notes.append(f"there are no {' or '.join(missing)} images in {files}")
    records = [Record(name, path, entry.captions, splits[name]) for name, (entry, path) in entries.items()]
    return records, notes


def _caption_files(
    folder: Path, captions: str | os.PathLike | Sequence[str | os.PathLike] | None
) -> list[Path]:
    if captions is not None:
        names = [captions] if isinstance(captions, (str, os.PathLike)) else list(captions)
        chosen_files: dict[Path, None] = {}
        for name in names:
            file = next((path for path in (folder / name, Path(name)) if path.is_file()), None)
            if file is None:
                raise InputError(f"there is no caption file {name} in {folder}: check data.captions")
            chosen_files[file] = None
        if not chosen_files:
            raise InputError(
                f"data.captions is empty: give caption files in {folder}, or leave it out to find them"
            )
        return list(chosen_files)
    for pattern in (KARPATHY_FILE, "dataset_*.json", "annotations/captions_*.json", "captions_*.json"):
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        years = {year for path in files for year in _YEAR.findall(path.stem)}
        # MS-COCO 2014 and 2017 have the same images, split differently into train and val.
        if len(years) > 1 or (pattern == "dataset_*.json" and len(files) > 1):
            file_names = ", ".join(path.name for path in files)
            raise InputError(
                f"{folder} has caption files of several data sets ({file_names}): "
                f"choose with data.captions={files[0].relative_to(folder)}"
            )
        if files:
            return files
    raise InputError(
        f"there are no captions in {folder}: put {KARPATHY_FILE} or annotations/captions_train2014.json and "
        "captions_val2014.json there, or set data.captions"
    )


def _entries(file: Path, bad: BadRecords) -> Iterator[_Entry]:
    content = _parsed(file, "download it again")
    images = content.get("images") if isinstance(content, dict) else None
    annotations = content.get("annotations") if isinstance(content, dict) else None
    if isinstance(images, list) and isinstance(annotations, list):
        return _official(file, images, annotations, bad)
    if isinstance(images, list) and "annotations" not in content:
        return _karpathy(file, images, bad)
    raise InputError(
        f"{file} has another format: it must contain images with sentences (as {KARPATHY_FILE} does) or "
        "images and annotations (as captions_train2014.json does)"
    )


def _parsed(file: Path, advice: str) -> Any:
    def small(pairs: list[tuple[str, Any]]) -> Any:
        entry = dict(pairs)
        # Only the text of a sentence is kept: all fields of MS-COCO take a gigabyte.
        if "raw" in entry:
            return entry["raw"]
        if "tokens" in entry and isinstance(entry["tokens"], list):
            return " ".join(map(str, entry["tokens"]))
        return {key: value for key, value in pairs if key in _KEPT}

    return read_json(file, advice, object_pairs_hook=small)


def _karpathy(file: Path, images: list[Any], bad: BadRecords) -> Iterator[_Entry]:
    some_have_splits = any(isinstance(entry, dict) and entry.get("split") for entry in images)
    for number, entry in enumerate(images):
        where = f"images[{number}]"
        try:
            path = _image_file(entry, "filename", "filepath")
            image_id = _number(entry, "cocoid") if "cocoid" in entry else entry["filename"].strip()
            split = entry.get("split") or ""
            if not split and some_have_splits:
                raise _Unusable("it has no split while other images have one")
            if split and (not isinstance(split, str) or split.strip().lower() not in SPLIT_NAMES):
                raise _Unusable(f"the split {split!r:.60} is not train, restval, val or test")
            if not isinstance(entry.get("sentences"), list):
                raise _Unusable("it has no list of sentences")
        except _Unusable as error:
            bad.add(f"{file} {where}", str(error))
            continue
        texts = enumerate(entry["sentences"])
        captions = _captions(texts, f"{file} {where} sentences", bad)
        if captions:
            yield _Entry(where, image_id, path, captions, split and split.strip().lower())
        else:
            bad.add(image_id, f"it has no caption in {file.name}")


def _official(file: Path, images: list[Any], annotations: list[Any], bad: BadRecords) -> Iterator[_Entry]:
    words = sorted({word for word in re.findall("[a-z]+", file.stem.lower()) if word in SPLIT_NAMES})
    split = words[0] if len({SPLIT_NAMES[word] for word in words}) == 1 else ""
    texts: dict[str, list[tuple[int, Any]]] = {}
    for number, annotation in enumerate(annotations):
        try:
            texts.setdefault(_number(annotation, "image_id"), []).append((number, annotation.get("caption")))
        except _Unusable as error:
            bad.add(f"{file} annotations[{number}]", str(error))
    image_ids = set()
    for number, entry in enumerate(images):
        where = f"images[{number}]"
        try:
            image_id = _number(entry, "id")
            if image_id in image_ids:
                raise _Unusable(f"the image {image_id} appears twice")
            image_ids.add(image_id)
            path = _image_file(entry, "file_name")
        except _Unusable as error:
            bad.add(f"{file} {where}", str(error))
            continue
        captions = _captions(texts.get(image_id, ()), f"{file} annotations", bad)
        if captions:
            yield _Entry(where, image_id, path, captions, split)
        else:
            bad.add(image_id, f"it has no caption in {file.name}")
    for image_id, orphans in texts.items():
        if image_id not in image_ids:
            bad.add(image_id, f"{file.name} has {len(orphans)} captions of it but no entry for the image")


class _Unusable(ValueError):
    """The reason why an entry of a caption file cannot be used."""


def _captions(texts: Iterable[tuple[int, Any]], where: str, bad: BadRecords) -> tuple[str, ...]:
    """The usable captions among numbered texts."""
    captions = []
    for number, text in texts:
        if not isinstance(text, str):
            bad.add(f"{where}[{number}]", "it has no text")
        elif has_words(caption := clean_caption(text)):
            captions.append(caption)
        else:
            bad.add(f"{where}[{number}]", "the caption has no word")
    return tuple(captions)


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether it may be part of a file name: without control characters and halves of surrogate pairs.

    Spaces of all kinds are allowed: macOS writes a narrow one into the names of screenshots.
    """
    return isinstance(value, str) and all(
        character.isprintable() or unicodedata.category(character) == "Zs" for character in value
    )


def _number(entry: Any, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if _is_text(value) and value.strip():
        return value.strip()
    raise _Unusable(f"it has no image number {key!r}")


def _image_file(entry: Any, name_key: str, folder_key: str | None = None) -> str:
    name = entry.get(name_key) if isinstance(entry, dict) else None
    if not _is_text(name) or not name.strip():
        raise _Unusable(f"it has no image name {name_key!r}")
    folder = entry.get(folder_key) or "" if folder_key else ""
    if not _is_text(folder):
        raise _Unusable(f"its {folder_key!r} is not a path")
    path = PurePosixPath(folder.strip(), name.strip())
    spelled = PurePosixPath(str(path).replace("\\", "/"))  # a path of Windows may be meant
    if spelled.is_absolute() or ".." in spelled.parts or not path.name:
        raise _Unusable(f"{str(path)!r:.80} is outside the data folder")
    return str(path)


def instance_files(folder: Path, caption_files: Iterable[Path]) -> list[Path]:
    """The files with annotated objects in `annotations/` or in the data folder, of one year if any has one.

    The year is that of the caption files, or, as Karpathy's file has none, the first; MS-COCO 2014 and 2017
    have the same images and objects.
    """
    years = {year for file in caption_files for year in _YEAR.findall(file.stem)}
    files = {
        file: _YEAR.findall(file.stem)
        for place in (folder / "annotations", folder)
        for file in sorted(place.glob("instances_*.json"))
    }
    there = sorted(year for found in files.values() for year in found)
    years = years or set(there[:1])
    return [file for file, found in files.items() if not there or years.intersection(found)]


def image_labels(files: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Image number -> names of the categories that are in the image, sorted; none for an image without any.

    Raises:
        InputError: a file cannot be read or has another format.
    """
    labels: dict[str, tuple[str, ...]] = {}
    for file in files:
        advice = "download it again, or move it elsewhere to train without labels"
        content = _parsed(file, advice)
        try:
            names = {entry["id"]: str(entry["name"]) for entry in content.get("categories", ())}
            categories: dict[str, set[str]] = {str(entry["id"]): set() for entry in content["images"]}
            for entry in content["annotations"]:
                categories.setdefault(str(entry["image_id"]), set()).add(names[entry["category_id"]])
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(
                f"{file} has another format, not MS-COCO's images, annotations and categories: {advice}"
            ) from error
        labels |= {image: tuple(sorted(image_categories)) for image, image_categories in categories.items()}
    return labels
