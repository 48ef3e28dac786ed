"""Inputs for the comparison of an exported file with its model, if there is no data."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image

from tfsparsecap.errors import InputError

Sample = dict[str, np.ndarray]


def synthetic_samples(inputs: dict[str, tf.TensorSpec], count: int, seed: int = 0) -> list[Sample]:
    """Random inputs.

    Args:
        inputs: names, shapes and dtypes. If the first axis can have any size, samples have a batch size of 1
            and 3 by turns.
        count: number of samples.
        seed: seed of the random numbers.

    Returns:
        For each sample an array per input: uint8 [1, S, S, 3] is an image with smooth colours, other integers
        are 0 or 1, floats are absolute values of normal numbers (like features behind a ReLU), masks are
        true, and `"boxes"` are boxes inside the image, x_min, y_min, x_max, y_max from 0 to 1.
    """
    rng = np.random.default_rng(seed)
    return [
        {name: _values(name, spec, 3 if number % 2 else 1, rng) for name, spec in inputs.items()}
        for number in range(count)
    ]


def check_samples(samples: Sequence[Sample], inputs: Mapping[str, tf.TensorSpec]) -> None:
    """Checks given inputs.

    Args:
        samples: arrays by name.
        inputs: names, shapes and dtypes of what is expected.

    Raises:
        InputError: there is no sample, or one has other names, another shape or dtype, or contains NaN or
            infinity.
    """
    if not samples:
        raise InputError("samples are empty: give at least one input of the model, or leave samples= out")
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or set(sample) != set(inputs):
            given = sorted(sample) if isinstance(sample, Mapping) else type(sample).__name__
            raise InputError(
                f"sample {number} is {given}: give a dictionary with an array for each of {[*inputs]}"
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


def _values(name: str, spec: tf.TensorSpec, batch: int, rng: np.random.Generator) -> np.ndarray:
    shape = tuple(batch if size is None else size for size in spec.shape)
    dtype = spec.dtype.as_numpy_dtype
    if name == "boxes":
        return np.sort(rng.random((*shape[:2], 2, 2)), axis=2).reshape(shape).astype(dtype)
    if dtype == np.uint8 and len(shape) == 4 and shape[-1] == 3:
        patches = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
        return np.asarray(patches.resize((shape[2], shape[1]), Image.Resampling.BICUBIC))[None]
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 2, shape).astype(dtype)
    return np.abs(rng.normal(size=shape)).astype(dtype)
