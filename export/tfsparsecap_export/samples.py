"""Inputs for the comparison of an exported file with its model: given ones, or random ones."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from tfsparsecap.core.array_files import MOST_READ, open_array, spread
from tfsparsecap.core.model_call import identifier
from tfsparsecap.errors import InputError
from tfsparsecap_export.flatbuffer import model_file as flatfile

#: Operations between an input of ids and its table, and which of their inputs has the ids.
_FROM = dict.fromkeys(("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE"), 0)
_FROM |= {"SELECT": 2, "SELECT_V2": 2}  # ids that are not negative

Sample = dict[str, np.ndarray]


def synthetic_samples(
    inputs: dict[str, tf.TensorSpec], count: int, rows: Mapping[str, int] | None = None
) -> list[Sample]:
    """Random inputs.

    Args:
        inputs: names, shapes and dtypes. If the first axis can have any size, samples have a batch size of 1
            and 3 by turns.
        count: number of samples.
        rows: for inputs that are ids, the number of rows of the table that looks them up.

    Returns:
        For each sample an array per input: ids of any row, uint8 [B, S, S, 3] are images with smooth colours,
        other integers are 0 or 1, floats are absolute values of normal numbers (like features behind a ReLU),
        masks are true, and floats `"boxes"` [B, N, 4] are boxes inside the image, x_min, y_min, x_max, y_max
        from 0 to 1.
    """
    rng = np.random.default_rng(0)
    return [
        {
            name: _values(name, spec, 3 if number % 2 else 1, rng, (rows or {}).get(name))
            for name, spec in inputs.items()
        }
        for number in range(count)
    ]


def table_rows(content: bytes) -> dict[str, int]:
    """Number of rows of the smallest table that looks up an input, by the names of such inputs of a file."""
    model = flatfile.read_model(content)
    graph = model.subgraphs[0]
    rows: dict[str, int] = {}
    source = {
        int(operator.outputs[0]): int(operator.inputs[_FROM[flatfile.builtin_name(model, operator)]])
        for operator in graph.operators
        if flatfile.builtin_name(model, operator) in _FROM
    }
    names = {entry.tensorIndex: entry.name.decode() for entry in model.signatureDefs[0].inputs}
    for operator in graph.operators:
        if flatfile.builtin_name(model, operator) != "GATHER":
            continue
        table, ids = map(int, operator.inputs[:2])
        while ids in source:
            ids = source[ids]
        if flatfile.constant(model, graph, table) is not None and ids in names:
            length = int(graph.tensors[table].shape[0])
            rows[names[ids]] = min(length, rows.get(names[ids], length))
    return rows


def read_samples(files: Sequence[str]) -> Any:
    """Reads inputs from files, for `as_samples`.

    Args:
        files: `FILE.npy`, an array [N, ...] with N inputs of a model with one input, or `NAME=FILE.npy` for
            each input. At most `MOST_READ` inputs are read, evenly spread. Nothing is unpickled.

    Raises:
        InputError: a file is missing or damaged, a name is missing, or the files have different lengths.

    Examples:
        >>> np.save("images.npy", np.zeros((5, 8), "float32"))
        >>> read_samples(["images.npy"]).shape, len(read_samples(["x=images.npy"]))
        ((5, 8), 5)
    """
    arrays: dict[str, np.ndarray] = {}
    lengths: dict[str, int] = {}
    for argument in files:
        name, _, path = ("", "", argument) if os.path.exists(argument) else argument.rpartition("=")
        with open_array(path) as file:
            if not file.shape:
                raise InputError(f"{path} has one number: save an array [N, ...] with N inputs of the model")
            if name in arrays or (name and "" in arrays) or (arrays and not name):
                raise InputError(f"{argument:.100}: give NAME=FILE.npy once for each input of the model")
            arrays[name], lengths[name] = file.spread(), file.shape[0]
    if "" in arrays:
        return arrays[""]
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"the files have different numbers of inputs, {lengths}: save the same inputs in each"
        )
    rows = next(iter(lengths.values()))
    return [{name: array[row : row + 1] for name, array in arrays.items()} for row in range(rows)]


def as_samples(samples: Any, inputs: Mapping[str, tf.TensorSpec]) -> list[Sample]:
    """Given inputs as a list of dictionaries.

    Args:
        samples: all inputs, or a list of batches of them, of which `MOST_READ` samples are taken, evenly
            spread; or any other iterable of batches, which is read once, up to that number. Inputs are a
            dictionary of arrays [N, ...] by name, of the file's inputs or the Keras model's, a list or tuple
            of arrays in the order of `inputs` if there are several, or an array if there is one. A batch may
            also be a tuple that starts with inputs, such as (inputs, targets) of a data set.
        inputs: names, shapes and dtypes of what is expected. Batches that are larger than the first axis are
            split; the rows that remain are not used, nor are smaller batches behind the first sample. If it
            can have any size, only all inputs are split, into batches of 1. Numbers for an input of
            floating-point numbers get its type, as do whole numbers that fit.

    Returns:
        A dictionary for each sample; `check_samples` checks their names, shapes and dtypes.

    Raises:
        InputError: `samples` is nothing of these, or empty.

    Examples:
        >>> samples = as_samples(np.zeros((5, 8), "float32"), {"x": tf.TensorSpec((1, 8))})
        >>> len(samples), samples[0]["x"].shape
        (5, (1, 8))
    """
    size = next(iter(inputs.values())).shape[0]
    if _is_array(samples) or isinstance(samples, Mapping) or _are_arrays(samples, len(inputs)):
        samples, size = [samples], size or 1
    if not isinstance(samples, Iterable) or isinstance(samples, (str, bytes)):
        raise InputError(
            f"samples is {type(samples).__name__}: give a list of dictionaries with an array for each of"
            f" {[*inputs]}"
        )
    batches: list[Sample] = []
    for number, item in enumerate(samples):
        has_more = isinstance(item, (tuple, list)) and item and not _are_arrays(item, len(inputs))
        sample = item[0] if has_more else item
        if _is_array(sample) and len(inputs) == 1:
            sample = [sample]
        if isinstance(sample, (tuple, list)) and len(sample) == len(inputs):
            sample = dict(zip(inputs, sample, strict=True))
        if not isinstance(sample, Mapping):
            raise InputError(
                f"sample {number} is {type(sample).__name__}: give a dictionary with an array for each of"
                f" {[*inputs]}"
            )
        arrays = {name: np.asarray(values) for name, values in _with_identifiers(sample, inputs).items()}
        # Without its batch, an array is not split, so that `check_samples` tells its own shape.
        ranks = {name: spec.shape.rank for name, spec in inputs.items()}
        lengths = {len(x) if x.ndim and x.ndim == ranks.get(name) else 0 for name, x in arrays.items()}
        rows = lengths.pop() if len(lengths) == 1 else 0
        if size is None or not rows or rows == size or (rows < size and not batches):
            batches.append(arrays)
        elif rows > size:
            starts = range(0, rows - size + 1, size)
            batches += [{name: x[start : start + size] for name, x in arrays.items()} for start in starts]
        if len(batches) >= MOST_READ and not isinstance(samples, Sequence):  # a data set may be endless
            break
    if not batches:
        raise InputError("samples are empty: give at least one input of the model, or leave samples= out")
    chosen = [batches[number] for number in spread(len(batches))]
    return [{name: _as_input(x, inputs.get(name)) for name, x in arrays.items()} for arrays in chosen]


def vary(samples: Sequence[Sample]) -> bool:
    """Whether samples have different numbers in any input, as real ones do."""
    for name in samples[0]:
        values = [sample[name] for sample in samples if sample[name].size]
        if values and min(value.min() for value in values) != max(value.max() for value in values):
            return True
    return False


def _as_input(values: np.ndarray, spec: tf.TensorSpec | None) -> np.ndarray:
    """Real numbers for a floating-point input get its type, as in Keras's `fit`; integers, if they fit."""
    if spec is None or values.dtype.kind not in "iuf":
        return values
    if spec.dtype.is_integer and values.dtype.kind in "iu":
        fitting = values.astype(spec.dtype.as_numpy_dtype)
        return fitting if (fitting == values).all() else values
    return values.astype(spec.dtype.as_numpy_dtype, copy=False) if spec.dtype.is_floating else values


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or tf.is_tensor(value)


def _are_arrays(value: Any, count: int) -> bool:
    """Whether a value has an array for each of several inputs."""
    return isinstance(value, (tuple, list)) and len(value) == count > 1 and all(map(_is_array, value))


def check_samples(samples: Sequence[Sample], inputs: Mapping[str, tf.TensorSpec]) -> None:
    """Checks given inputs.

    Args:
        samples: arrays by name.
        inputs: names, shapes and dtypes of what is expected.

    Raises:
        InputError: a sample has other names, another shape or dtype, or contains NaN or infinity.
    """
    for number, sample in enumerate(samples):
        if set(sample) != set(inputs):
            raise InputError(
                f"sample {number} is {sorted(map(str, sample))}: give a dictionary with an array for each of"
                f" {[*inputs]}"
            )
        for name, spec in inputs.items():
            values = np.asarray(sample[name])
            if not spec.shape.is_compatible_with(values.shape) or values.dtype != spec.dtype.as_numpy_dtype:
                raise InputError(
                    f"{name} of sample {number} is {values.dtype} {list(values.shape)}: give"
                    f" {spec.dtype.name} {[size or 'any' for size in spec.shape]}, which includes the batch"
                )
            if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
                raise InputError(
                    f"{name} of sample {number} contains NaN or infinity: give inputs that are preprocessed"
                    " as in training"
                )


def _values(
    name: str, spec: tf.TensorSpec, batch: int, rng: np.random.Generator, rows: int | None = None
) -> np.ndarray:
    shape = tuple(batch if size is None else size for size in spec.shape)
    dtype = spec.dtype.as_numpy_dtype
    if name == "boxes" and spec.dtype.is_floating and len(shape) == 3 and shape[-1] == 4:
        return np.sort(rng.random((*shape[:2], 2, 2)), axis=2).reshape(shape).astype(dtype)
    if dtype == np.uint8 and len(shape) == 4 and shape[-1] == 3:
        patches = [Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8)) for _ in range(shape[0])]
        size = (shape[2], shape[1])
        return np.stack([np.asarray(patch.resize(size, Image.Resampling.BICUBIC)) for patch in patches])
    if np.issubdtype(dtype, np.integer) or rows is not None:
        values = rng.integers(0, rows or 2, shape).astype(dtype)
        if values.ndim > 1 and rows != 1:
            values[:, 0] = np.maximum(values[:, 0], 1)  # a mask that hides a whole sequence leaves no mean
        return values
    return np.abs(rng.normal(size=shape)).astype(dtype)


def _with_identifiers(sample: Mapping[str, Any], inputs: Mapping[str, tf.TensorSpec]) -> Mapping[str, Any]:
    """A sample with the names of the file's inputs instead of the Keras model's, such as `my_input`.

    Args:
        sample: arrays by name. It is returned as it is if other names remain, or some are missing.
        inputs: names, shapes and dtypes of the file's inputs.
    """
    names = [name if name in inputs else identifier(str(name)) for name in sample]
    return dict(zip(names, sample.values(), strict=True)) if sorted(names) == sorted(inputs) else sample
