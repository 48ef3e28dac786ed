"""Data sets, tokenizers, and batches of images and captions."""

from collections.abc import Callable
from typing import Any

from tfsparsecap.data import coco, flickr, scenes, table
from tfsparsecap.data.records import CaptionData
from tfsparsecap.errors import unknown_name

#: Data sources by the value of `data.kind`.
SOURCES: dict[str, Callable[..., CaptionData]] = {
    "coco": coco.load,
    "flickr": flickr.load,
    "table": table.load,
    "scenes": scenes.draw,
}


def load(kind: str, *arguments: Any, **options: Any) -> CaptionData:
    """Loads the records of a data set with `SOURCES[kind]`.

    Args:
        kind: `"coco"`, `"flickr"`, `"table"` or `"scenes"`.
        arguments, options: see that source.

    Raises:
        InputError: the kind is unknown, or the data cannot be read.

    Examples:
        >>> len(load("scenes", "few_scenes", train=6, validation=1, test=1).records)
        8
    """
    if kind not in SOURCES:
        raise unknown_name("data.kind", kind, SOURCES)
    return SOURCES[kind](*arguments, **options)
