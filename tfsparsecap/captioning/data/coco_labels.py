"""The objects in MS-COCO's images: the names of the categories in `instances_*.json`."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError

# All other keys, above all the outlines of the objects, are dropped while a file is parsed.
_KEPT = {"images", "annotations", "categories", "id", "name", "image_id", "category_id"}
_YEAR = re.compile(r"(?<!\d)20\d\d(?!\d)")


def instance_files(folder: Path, caption_files: Iterable[Path]) -> list[Path]:
    """The files with annotated objects in `annotations/` or in the data folder, of one year.

    The year is that of the caption files, or, as Karpathy's file has none, the first; MS-COCO 2014 and 2017
    have the same images and objects.
    """
    years = {year for file in caption_files for year in _YEAR.findall(file.stem)}
    files = [
        file
        for place in (folder / "annotations", folder)
        for file in sorted(place.glob("instances_*.json"))
        if _YEAR.findall(file.stem)
    ]
    years = years or set(sorted(year for file in files for year in _YEAR.findall(file.stem))[:1])
    return [file for file in files if years.intersection(_YEAR.findall(file.stem))]


def image_labels(files: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Image number -> names of the categories that are in the image, sorted; none for an image without any.

    Raises:
        InputError: a file cannot be read or has another format.
    """
    labels: dict[str, tuple[str, ...]] = {}
    for file in files:
        advice = "download it again, or move it elsewhere to train without labels"
        content = read_json(file, advice, object_pairs_hook=_kept)
        try:
            names = {entry["id"]: str(entry["name"]) for entry in content.get("categories", ())}
            found: dict[str, set[str]] = {str(entry["id"]): set() for entry in content["images"]}
            for entry in content["annotations"]:
                found.setdefault(str(entry["image_id"]), set()).add(names[entry["category_id"]])
        except (AttributeError, KeyError, TypeError) as error:
            raise InputError(
                f"{file} has another format, not MS-COCO's images, annotations and categories: {advice}"
            ) from error
        labels |= {image: tuple(sorted(some)) for image, some in found.items()}
    return labels


def _kept(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    return {key: value for key, value in pairs if key in _KEPT}
