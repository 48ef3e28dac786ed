"""Checks Keras files before Keras reads them: their sizes, classes, and links to other files."""

import io
import json
import math
import os
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

import h5py

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
# Keras stores its archives and weights uncompressed; others may compress them.
_MOST_COMPRESSED = 20
_SMALL = 1 << 20
# Of a nested functional model with many levels; Python's limit of recursion is 1000.
_DEEPEST = 100
# Keras describes plain data with these instead of classes.
_DATA = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__")
#: Keras's own layers that run code or read files that their configuration names.
UNSAFE_LAYERS = ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
# Configuration keys of layers and encoders that may name a file to read or to download.
_FILES = ("vocabulary", "weights", "filepath")


def check_archive(path: str | os.PathLike, registered: Collection[str]) -> int:
    """Checks a `.keras` file, which may come from a stranger; returns the size of its weights in bytes.

    Args:
        registered: names of the classes and functions that are registered with Keras; besides those of Keras
            itself, the file may contain only these.

    Raises:
        One of `files.DAMAGE`: it is damaged, larger in memory than a file of its size can be, or it contains
            classes that are not registered or that run code.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        size = Path(path).stat().st_size
        if sum(member.file_size for member in members) > _MOST_COMPRESSED * size + _SMALL:
            raise ValueError("its archive is much larger than the file")
        config = json.loads(archive.read(_CONFIG))
        if not isinstance(config, dict):
            raise ValueError(f"its {_CONFIG} does not describe a model")
        check_config(config, registered)
        weights = archive.read(_WEIGHTS)
    return check_hdf5(io.BytesIO(weights), len(weights))


def check_config(config: dict[str, Any], registered: Collection[str]) -> None:
    """Checks the description of a model; arguments and errors are those of `check_archive`.

    Examples:
        >>> check_config({"class_name": "Dense", "module": "keras.layers", "config": {"units": 2}}, [])
        >>> check_config({"class_name": "Popen", "module": "subprocess", "config": {}}, [])
        Traceback (most recent call last):
        ValueError: it contains Popen of subprocess, which is not a registered class
    """
    for entry in _dictionaries(config):
        if "class_name" in entry:
            _check_class(entry, registered)
        for key in _FILES:
            if isinstance(entry.get(key), str):
                raise ValueError(f"it names a file ({key}), which is not read")
        if isinstance(entry.get("preset"), str) and not isinstance(entry.get("architecture"), dict):
            raise ValueError("it names a preset that would be downloaded")


def _check_class(entry: dict[str, Any], registered: Collection[str]) -> None:
    name, module, registered_name = (entry.get(key) for key in ("class_name", "module", "registered_name"))
    if name in _DATA:
        return
    if name == "function":
        name = entry.get("config")
    is_registered = any(isinstance(text, str) and text in registered for text in (name, registered_name))
    of_keras = isinstance(module, str) and module.partition(".")[0] in ("keras", "builtins")
    # A saved encoder of KerasHub: the package registers its classes when Keras imports it.
    of_hub = str(module).startswith("keras_hub.") and str(registered_name).startswith("keras_hub>")
    if not isinstance(name, str) or not (is_registered or of_keras or of_hub) or name in UNSAFE_LAYERS:
        raise ValueError(f"it contains {name!s:.50} of {module!s:.50}, which is not a registered class")


def _dictionaries(config: Any) -> Iterator[dict[str, Any]]:
    """All dictionaries in a description, which must not be nested too deeply."""
    waiting = [(config, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if depth > 4 * _DEEPEST:
            raise ValueError("its configuration is nested too deeply")
        if isinstance(entry, dict):
            yield entry
            waiting += [(value, depth + 1) for value in entry.values()]
        elif isinstance(entry, list):
            waiting += [(value, depth + 1) for value in entry]


def check_hdf5(file: str | os.PathLike | IO[bytes], size: int) -> int:
    """Checks the arrays in an HDF5 file before one is read; returns their size in bytes.

    HDF5 files can refer to other files, and contain arrays that are much larger than the file.

    Args:
        size: of the file, in bytes.

    Raises:
        One of `files.DAMAGE`: see `check_archive`.
    """
    total, seen = 0, set()
    with h5py.File(file, "r") as opened:
        waiting: list[tuple[h5py.Group, int]] = [(opened, 0)]
        while waiting:
            group, depth = waiting.pop()
            if depth > _DEEPEST:
                raise ValueError("its groups are nested too deeply")
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"{name[:50]} is a link to another file or place")
                member = group[name]
                address = h5py.h5o.get_info(member.id).addr
                if isinstance(member, h5py.Group) and address not in seen:
                    seen.add(address)
                    waiting.append((member, depth + 1))
                elif isinstance(member, h5py.Dataset):
                    if member.external or member.is_virtual or member.dtype.hasobject:
                        raise ValueError(f"{name[:50]} is stored in another file, or contains no numbers")
                    total += math.prod(member.shape) * member.dtype.itemsize
                    if total > _MOST_COMPRESSED * size + _SMALL:
                        raise ValueError(f"its arrays are larger than the file (from {name[:50]} on)")
    return total
