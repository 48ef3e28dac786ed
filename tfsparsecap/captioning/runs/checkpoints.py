"""Checkpoints: everything a run needs to resume exactly, in one file that is written atomically."""

import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfsparsecap.core.files import DAMAGE, atomic_path, check_input_file
from tfsparsecap.errors import InputError

_FORMAT = 1
# Keras numbers layers in the order of their creation in a process: the first Dense of the second model is
# dense_1, and a variable of its optimizer sequential_1_dense_1_kernel_momentum.
_COUNTER = re.compile(r"_\d+(?=[/_]|$)")


def save_checkpoint(path: Path, model: keras.Model, optimizer: keras.Optimizer, notes: dict) -> None:
    """Writes all variables of model and optimizer (gates, schedules, random seeds) and `notes` to a file.

    Args:
        path: the `.npz` file.
        model, optimizer: both built.
        notes: anything that JSON can represent, such as the epoch and the history.

    Raises:
        InputError: the disk is full or the folder is not writable; an existing file stays unchanged.
    """
    variables = _keyed("model", model.variables) | _keyed("optimizer", optimizer.variables)
    _write(path, _arrays(variables), notes)


def load_checkpoint(path: Path, model: keras.Model, optimizer: keras.Optimizer | None = None) -> dict:
    """Reads a checkpoint into a model and, if given, its optimizer.

    Returns:
        The notes it was saved with.

    Raises:
        InputError: the file is damaged or belongs to another model; no variable is changed.
    """
    notes, arrays = _read(path)
    variables = _keyed("model", model.variables)
    if optimizer is not None:
        variables |= _keyed("optimizer", optimizer.variables)
    else:
        arrays = {key: array for key, array in arrays.items() if key.startswith("model/")}
    _check_same(path, arrays, variables)
    for key, variable in variables.items():
        variable.assign(arrays[key])
    return notes


def weights_digest(variables: Iterable[keras.Variable]) -> str:
    """SHA-256 of all values. (Files with the same weights differ: they contain the time of saving.)"""
    digest = hashlib.sha256()
    for variable in variables:
        array = keras.ops.convert_to_numpy(variable)
        digest.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()


def load_part(path: Path, layer: keras.Layer) -> None:
    """Reads the weights of a layer without gates from a checkpoint of the model that contains it.

    Raises:
        InputError: the file is damaged or belongs to another model.
    """

    def name(key: str) -> str:
        return "/".join(key.split("/")[2:])  # without kind and index

    by_name: dict[str, list[np.ndarray]] = {}
    for key, array in _read(path)[1].items():
        by_name.setdefault(name(key), []).append(array)
    variables = _keyed("model", layer.weights)
    arrays = {key: by_name[name(key)].pop(0) for key in variables if by_name.get(name(key))}
    _check_same(path, arrays, variables)
    for key, variable in variables.items():
        variable.assign(arrays[key])


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """The values of `model.weights` in order, by names that do not depend on the process."""
    return _arrays(_keyed("", model.weights))


def save_weights(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Writes what `named_weights` returned to an `.npz` file."""
    _write(path, weights, {})


def restore_weights(path: Path, model: keras.Model) -> list[np.ndarray]:
    """Reads what `save_weights` wrote, in the order of `model.get_weights()`; does not change the model.

    Raises:
        InputError: the file is missing, damaged or belongs to another model.
    """
    _, arrays = _read(path)
    if _difference(arrays, _keyed("", model.weights)):
        raise InputError(f"{path} contains the weights of another model: use the model settings of its run")
    return list(arrays.values())


def newest_intact(paths: Sequence[Path], phases: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The last of `paths` that can be read completely, and what is wrong with those after it.

    Args:
        paths: checkpoints of epochs, in order.
        phases: names of the run's phases, of which each checkpoint names one.

    Raises:
        InputError: there are checkpoints, but none is intact.
    """
    damaged: list[str] = []
    for path in reversed(paths):
        try:
            _check_epoch(path, _read(path)[0], phases)
        except InputError as error:
            damaged.append(str(error))
        else:
            return path, damaged
    if damaged:
        raise InputError(
            f"none of the {len(damaged)} checkpoints in {paths[0].parent} can be read ({damaged[0]}): copy"
            " one of them there again, or delete them to start from the beginning"
        )
    return None, []


def _check_epoch(path: Path, notes: dict, phases: Sequence[str]) -> None:
    """Checks the notes that `training.callbacks.SaveEpoch` writes."""
    epoch, history, objects = notes.get("epoch"), notes.get("history"), notes.get("objects", [])
    rows = history if isinstance(history, list) else []
    valid = (
        isinstance(epoch, int)
        and len(rows) == epoch > 0
        and notes.get("phase") in phases
        and all(isinstance(row, dict) and row.get("phase") in phases for row in rows)
        and [row.get("epoch") for row in rows] == list(range(1, epoch + 1))
        and all(isinstance(value, int | float | str) for row in rows for value in row.values())
        and isinstance(objects, list)
        and all(isinstance(name, str) for name in objects)
    )
    if not valid:
        raise InputError(f"{path} is not a checkpoint of this run (its epochs or phases differ): remove it")


def read_notes(path: Path) -> dict:
    """The notes of a checkpoint. Raises InputError as `load_checkpoint` does."""
    return _read(path)[0]


def _write(path: Path, arrays: Mapping[str, np.ndarray], notes: dict) -> None:
    content: dict[str, Any] = {"notes": np.array(json.dumps({"format": _FORMAT, **notes})), **arrays}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **content)


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    try:
        arrays = _read_arrays(path)
        notes = json.loads(str(arrays.pop("notes")))
        if not isinstance(notes, dict):
            raise ValueError("its notes are not a dictionary")
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no checkpoint {path}: check the path") from error
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"{path} is not a complete checkpoint ({reason}): remove it") from error
    if notes.get("format") != _FORMAT:
        raise InputError(
            f"{path} is a checkpoint in format {notes.get('format')!r:.50}, but this version reads {_FORMAT}:"
            " use the version of tfsparsecap that wrote it"
        )
    return notes, arrays


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file that is not compressed, so that none of them is larger than the file."""
    check_input_file(path, sys.maxsize)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored or sum(member.file_size for member in members) > path.stat().st_size:
            raise ValueError("it is compressed, or its sizes are wrong")
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it contains more than arrays")
    return arrays


def _keyed(kind: str, variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    """Variables by kind, index and path; paths alone need not be unique."""
    return {
        "/".join(filter(None, (kind, f"{index:04d}", _COUNTER.sub("", variable.path)))): variable
        for index, variable in enumerate(variables)
    }


def _arrays(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    return {key: np.asarray(keras.ops.convert_to_numpy(variable)) for key, variable in variables.items()}


def _check_same(path: Path, arrays: Mapping[str, np.ndarray], variables: Mapping[str, Any]) -> None:
    difference = _difference(arrays, variables)
    if difference:
        raise InputError(
            f"{path} is a checkpoint of another model: {difference}; use the settings it was trained with, or"
            " another name= for a new run"
        )


def _difference(arrays: Mapping[str, np.ndarray], variables: Mapping[str, Any]) -> str:
    """The first difference between a file and a model; empty if there is none."""
    for key in (*variables, *arrays):
        if key not in arrays:
            return f"it does not contain {key}"
        if key not in variables:
            return f"it contains {key}, which the model does not have"
        if tuple(arrays[key].shape) != tuple(variables[key].shape):
            return f"{key} has shape {list(arrays[key].shape)} there and {list(variables[key].shape)} here"
        if not np.can_cast(arrays[key].dtype, variables[key].dtype, "same_kind"):
            return f"{key} contains {arrays[key].dtype} there and {variables[key].dtype} here"
    return ""
