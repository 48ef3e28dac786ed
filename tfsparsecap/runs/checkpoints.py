"""Everything a run needs to go on as if it had never stopped, in one file, written whole or not at all."""

import json
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path

_FORMAT = 1
# Keras numbers layers as they are made in a process: the second model's first Dense is called dense_1, and
# its optimizer's variables sequential_1_dense_1_kernel_momentum.
_COUNTER = re.compile(r"_\d+(?=[/_]|$)")


def save_checkpoint(path: Path, model: keras.Model, optimizer: keras.Optimizer, notes: dict) -> None:
    """Writes all variables of model and optimizer (gates, schedules, random seeds) and `notes` to a `.npz`
    file.

    Args:
        path: the file.
        model, optimizer: both built.
        notes: anything JSON can hold, such as the epoch and the history so far.

    Raises:
        InputError: the disk is full or the folder cannot be written to; an existing file stays as it was.
    """
    arrays = {
        key: np.asarray(keras.ops.convert_to_numpy(variable))
        for key, variable in _keyed(model, optimizer).items()
    }
    content = json.dumps({"format": _FORMAT, **notes})
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, notes=np.array(content), **arrays)


def save_weights(path: Path, weights: dict[str, np.ndarray]) -> None:
    """Writes what `named_weights` gave, whole or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, notes=np.array(json.dumps({"format": _FORMAT})), **weights)


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """The values of `model.weights` in their order, by names that do not depend on the process."""
    return {
        f"{place:04d}/{_COUNTER.sub('', variable.path)}": np.asarray(keras.ops.convert_to_numpy(variable))
        for place, variable in enumerate(model.weights)
    }


def load_weights(path: Path, model: keras.Model) -> list[np.ndarray]:
    """The arrays of `save_weights`, as `model.get_weights()` gives them; the model stays as it is.

    Raises:
        InputError: the file is missing, not whole, or of another model.
    """
    _, arrays = _read(path)
    shapes = {name: values.shape for name, values in arrays.items()}
    if shapes != {name: values.shape for name, values in named_weights(model).items()}:
        raise InputError(f"{path} holds the weights of another model: give model settings as in its run")
    return list(arrays.values())


def load_checkpoint(path: Path, model: keras.Model, optimizer: keras.Optimizer | None = None) -> dict:
    """Reads a checkpoint into a model and, where one is given, its optimizer.

    Returns:
        The notes it was saved with.

    Raises:
        InputError: the file is no whole checkpoint, or one of another model; no variable was changed.
    """
    notes, arrays = _read(path)
    wanted = _keyed(model, optimizer)
    stored = {key: array for key, array in arrays.items() if optimizer or key.startswith("model/")}
    mismatch = _mismatch(stored, wanted)
    if mismatch:
        raise InputError(
            f"{path} is a checkpoint of another model: {mismatch}; use the settings it was trained with, "
            "or another name= for a new run"
        )
    for variable, array in zip(wanted.values(), stored.values(), strict=True):
        variable.assign(array)
    return notes


def newest_whole(paths: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """The last of `paths` that can be read to its end, and those after it that cannot."""
    broken = []
    for path in reversed(paths):
        try:
            _read(path)
        except InputError:
            broken.append(path)
        else:
            return path, broken
    return None, broken


def read_notes(path: Path) -> dict:
    """The notes alone. Raises InputError as `load_checkpoint` does."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            arrays = dict(content)
        notes = json.loads(str(arrays.pop("notes")))
    except FileNotFoundError as error:
        raise InputError(f"there is no checkpoint {path}: check the path") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is no whole checkpoint ({error}): remove it") from error
    if notes.get("format") != _FORMAT:
        raise InputError(
            f"{path} is a checkpoint in format {notes.get('format')}, this version reads {_FORMAT}: "
            "use the version of tfsparsecap that wrote it"
        )
    return notes, arrays


def _keyed(model: keras.Model, optimizer: keras.Optimizer | None) -> dict[str, keras.Variable]:
    """Variables by kind, place and path; paths alone need not be unique."""
    groups = {"model": model.variables, "optimizer": optimizer.variables if optimizer else []}
    return {
        f"{kind}/{place:04d}/{_COUNTER.sub('', variable.path)}": variable
        for kind, variables in groups.items()
        for place, variable in enumerate(variables)
    }


def _mismatch(stored: dict[str, np.ndarray], wanted: dict[str, keras.Variable]) -> str:
    for (key, array), (name, variable) in zip(stored.items(), wanted.items(), strict=False):
        if key != name:
            return f"it has {_shown(key)} where this model has {_shown(name)}"
        if tuple(array.shape) != tuple(variable.shape):
            return f"{_shown(key)} is {list(array.shape)} there and {list(variable.shape)} here"
    if len(stored) != len(wanted):
        longer = list(stored) if len(stored) > len(wanted) else list(wanted)
        extra = _shown(longer[min(len(stored), len(wanted))])
        return f"{extra} is {'only there' if len(stored) > len(wanted) else 'not in it'}"
    return ""


def _shown(key: str) -> str:
    kind, _, path = key.split("/", 2)
    return f"{kind} variable {path}"
