"""Where pictures and captions come from, and how they reach a model."""

import difflib
from typing import Any

from tfsparsecap.data import coco, flickr, scenes, table
from tfsparsecap.data.records import CaptionData
from tfsparsecap.errors import InputError

#: Sources of data by the name that a configuration gives them.
SOURCES = {"coco": coco.load, "flickr": flickr.load, "table": table.load, "scenes": scenes.draw}


def load(kind: str, *arguments: Any, **options: Any) -> CaptionData:
    """Records of a data set: `SOURCES[kind]` with its own arguments.

    Args:
        kind: `"coco"`, `"flickr"`, `"table"` or `"scenes"`.
        arguments, options: of that source, see there.

    Raises:
        InputError: there is no such kind of data, or the source cannot be read.

    Example:
        >>> len(load("scenes", "few_scenes", train=6, validation=1, test=1).records)
        8
    """
    if kind not in SOURCES:
        near = difflib.get_close_matches(str(kind), SOURCES, n=1)
        meant = f"did you mean {near[0]}" if near else f"choose one of {', '.join(SOURCES)}"
        raise InputError(f"there is no data of kind {kind!r}: {meant}")
    return SOURCES[kind](*arguments, **options)
