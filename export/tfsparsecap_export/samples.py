"""Inputs to check an exported file with: pictures of the run's own data, or made up where there are none."""

import numpy as np
import tensorflow as tf
from PIL import Image

Sample = dict[str, np.ndarray]


def synthetic_samples(inputs: dict[str, tf.TensorSpec], count: int, seed: int = 0) -> list[Sample]:
    """Made-up inputs, the same for the same seed.

    Args:
        inputs: names, shapes and dtypes. Where the first axis is open, samples have one example and three by
            turns.
        count: how many.
        seed: of the random numbers.

    Returns:
        For each sample an array for each input: uint8 [1, S, S, 3] becomes a picture of soft colours, other
        integers are 0 or 1, floats are the absolute values of normal numbers, as features behind a ReLU are;
        a mask is true; `"boxes"` lie in the image.
    """
    rng = np.random.default_rng(seed)
    return [
        {
            name: (_boxes if name == "boxes" else _made_up)(spec, 1 if number % 2 == 0 else 3, rng)
            for name, spec in inputs.items()
        }
        for number in range(count)
    ]


def _boxes(spec: tf.TensorSpec, examples: int, rng: np.random.Generator) -> np.ndarray:
    """Boxes x_min, y_min, x_max, y_max from 0 to 1."""
    examples = spec.shape[0] or examples
    corners = np.sort(rng.random((examples, spec.shape[1], 2, 2)), axis=2)
    return corners.reshape(examples, spec.shape[1], 4).astype(np.float32)


def _made_up(spec: tf.TensorSpec, examples: int, rng: np.random.Generator) -> np.ndarray:
    shape = tuple(examples if size is None else size for size in spec.shape)
    dtype = spec.dtype.as_numpy_dtype
    if dtype == np.uint8 and len(shape) == 4 and shape[-1] == 3:
        patches = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
        return np.asarray(patches.resize((shape[2], shape[1]), Image.Resampling.BICUBIC))[None]
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 2, shape).astype(dtype)
    return np.abs(rng.normal(size=shape)).astype(dtype)
