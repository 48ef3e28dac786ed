"""Layers that a user names in `skip=`: layers, names, ends of paths, or patterns of them."""

import fnmatch
from collections.abc import Iterable
from typing import Any

import keras

from tfsparsecap.errors import InputError


def entries_of(skip: Any) -> tuple[str | keras.Layer, ...]:
    """Returns the entries of `skip`, which may be a single one.

    Raises:
        InputError: an entry is neither a layer nor text.
    """
    is_one = isinstance(skip, (str, keras.Layer)) or not isinstance(skip, Iterable)
    entries = (skip,) if is_one else tuple(skip)
    for entry in entries:
        if not isinstance(entry, (str, keras.Layer)):
            raise InputError(f"skip contains {entry!r:.100}: give layers, or names or patterns of names")
    return entries


def is_meant(operation: Any, entry: str | keras.Layer) -> bool:
    """Whether an entry is the layer or operation, its name, the end of its path, or a pattern of these.

    Examples:
        >>> layer = keras.layers.Dense(4, name="block_1_output")
        >>> [is_meant(layer, entry) for entry in (layer, "block_1_output", "block_*", "output")]
        [True, True, True, False]
    """
    if not isinstance(entry, str):
        return operation is entry
    path = getattr(operation, "path", None) or operation.name
    return any(
        fnmatch.fnmatchcase(text, pattern)
        for text, pattern in ((operation.name, entry), (path, entry), (path, f"*/{entry}"))
    )
