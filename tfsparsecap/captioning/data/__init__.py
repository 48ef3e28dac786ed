"""Data sets, tokenizers, and batches of images and captions.

A data source (`flickr`, `coco`, `caption_table` or the generated `scenes`) returns records of images with
their captions, splits and perhaps labels; bad entries are listed, not fatal, and a photograph in two splits
is refused (`records`). Captions become numbers by `tokenizers`, `sentencepiece` or `radix`. Images are read
by `images`; their features come from a folder (`region_features`) or are computed once and kept
(`feature_cache`). `pipeline` makes batches of all this, the same ones for the same epoch.
"""

from collections.abc import Callable
from typing import Any

from tfsparsecap.captioning.data import caption_table, coco, flickr, scenes
from tfsparsecap.captioning.data.records import CaptionData, copies_across_splits, describe_copies
from tfsparsecap.errors import InputError, unknown_name

#: Data sources by the value of `data.kind`.
SOURCES: dict[str, Callable[..., CaptionData]] = {
    "coco": coco.load,
    "flickr": flickr.load,
    "table": caption_table.load,
    "scenes": scenes.draw,
}


def load(kind: str, *arguments: Any, **options: Any) -> CaptionData:
    """Loads the records of a data set with `SOURCES[kind]`, and looks for photographs in two splits.

    MS-COCO's splits are published: a copy in two of them is a note.

    Args:
        kind: `"coco"`, `"flickr"`, `"table"` or `"scenes"`.
        arguments, options: see that source.

    Raises:
        InputError: the kind is unknown, the data cannot be read, or the same photograph is in two splits,
            perhaps under two names.

    Examples:
        >>> len(load("scenes", "few_scenes", train=6, validation=1, test=1).records)
        8
    """
    if kind not in SOURCES:
        raise unknown_name("data.kind", kind, SOURCES)
    data = SOURCES[kind](*arguments, **options)
    pairs = copies_across_splits(data.records)
    if pairs and kind == "coco":
        data.notes.append(describe_copies(data, pairs))
    elif pairs:
        raise InputError(f"{describe_copies(data, pairs)}: put both into one split, or remove one of them")
    return data
