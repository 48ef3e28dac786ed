"""Checkpoints: everything a run needs to resume exactly, in one file that is written atomically."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.files import DAMAGE, atomic_path

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


def load_part(path: Path, layer: keras.Layer) -> None:
    """Reads the weights of a layer without gates from a checkpoint of the model that contains it.

    Raises:
        InputError: the file is damaged or belongs to another model.
    """

    def name(key: str) -> str:
        return key.split("/", 2)[2]  # without kind and index

    found: dict[str, list[np.ndarray]] = {}
    for key, array in _read(path)[1].items():
        found.setdefault(name(key), []).append(array)
    variables = _keyed("model", layer.weights)
    arrays = {key: found[name(key)].pop(0) for key in variables if found.get(name(key))}
    _check_same(path, arrays, variables)
    for key, variable in variables.items():
        variable.assign(arrays[key])


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """The values of `model.weights` in order, by names that do not depend on the process."""
    return _arrays(_keyed("", model.weights))


def save_weights(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Writes what `named_weights` returned to an `.npz` file."""
    _write(path, weights, {})


def load_weights(path: Path, model: keras.Model) -> list[np.ndarray]:
    """Reads what `save_weights` wrote, in the order of `model.get_weights()`; does not change the model.

    Raises:
        InputError: the file is missing, damaged or belongs to another model.
    """
    _, arrays = _read(path)
    if _difference(arrays, _keyed("", model.weights)):
        raise InputError(f"{path} contains the weights of another model: use the model settings of its run")
    return list(arrays.values())


def newest_complete(paths: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """The last of `paths` that can be read completely, and the damaged ones after it."""
    damaged = []
    for path in reversed(paths):
        try:
            _read(path)
        except InputError:
            damaged.append(path)
        else:
            return path, damaged
    return None, damaged


def read_notes(path: Path) -> dict:
    """The notes of a checkpoint. Raises InputError as `load_checkpoint` does."""
    return _read(path)[0]


def _write(path: Path, arrays: Mapping[str, np.ndarray], notes: dict) -> None:
    content: dict[str, Any] = {"notes": np.array(json.dumps({"format": _FORMAT, **notes})), **arrays}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **content)


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise ValueError("it contains a single array")
            arrays = dict(content)
        notes = json.loads(str(arrays.pop("notes")))
    except FileNotFoundError as error:
        raise InputError(f"there is no checkpoint {path}: check the path") from error
    except DAMAGE as error:
        raise InputError(f"{path} is not a complete checkpoint ({error}): remove it") from error
    if notes.get("format") != _FORMAT:
        raise InputError(
            f"{path} is a checkpoint in format {notes.get('format')}, but this version reads {_FORMAT}: use"
            " the version of tfsparsecap that wrote it"
        )
    return notes, arrays


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
    return ""
