"""Rounding weights to int8 such that the outputs of their layer change as little as possible."""

import numpy as np
import tensorflow as tf

from tfsparsecap_export.encode.encodings import int8_scales

#: Added to the variances of the inputs, as a fraction of their mean, so that the covariance can be inverted.
_DAMPING = 0.01
#: Number of inputs whose errors are compensated in the following inputs at the same time.
_BLOCK = 64


def round_weights(weights: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounds the weights of a linear layer to int8 by GPTQ, with one scale per output.

    Weights are rounded input by input, those of the input with the largest variance first. The weights of the
    remaining inputs compensate for the error of each as far as the inputs are correlated. Weights that are
    zero stay zero.

    Args:
        weights: float [groups, outputs, inputs]. The outputs of a group depend only on its own inputs: a
            dense layer is one group, and a depthwise convolution has one group of one output per channel.
        covariance: float [groups, inputs, inputs] of the inputs, or their second moments for a layer
            without a bias.

    Returns:
        int8 values like `weights`, from -127 to 127, and float32 scales [groups, outputs]: a weight is about
        its value times its scale.

    Reference:
        Frantar et al., "GPTQ", https://arxiv.org/abs/2210.17323, section 3, and
        `--act-order` in the authors' implementation. The errors that are compensated by each input follow
        from the Cholesky factor of the covariance, so that no inverse is needed: Chen et al., "The Geometry
        of LLM Quantization", https://arxiv.org/abs/2507.18553, section 4.

    Examples:
        >>> values, scales = round_weights(np.array([[[1.27, 0.5, 0.0]]]), np.eye(3)[None])
        >>> values.tolist(), round(float(scales[0, 0]), 3)
        ([[[127, 50, 0]]], 0.01)
    """
    scales = _scales(weights)
    variances = np.einsum("gii->gi", covariance)
    order = np.argsort(variances, axis=1, kind="stable")  # the last one is rounded first
    damping = _DAMPING * variances.mean(axis=1) + np.finfo(np.float32).tiny
    damped = np.stack(
        [matrix[np.ix_(inputs, inputs)] for matrix, inputs in zip(covariance, order, strict=True)]
    )
    np.einsum("gii->gi", damped)[:] += damping[:, None]
    factors = _unit_factors(damped)
    steps = (weights / scales[..., None]).astype(np.float32).swapaxes(1, 2)
    steps = np.take_along_axis(steps, order[..., None], 1)  # groups, inputs, outputs
    values, errors = np.zeros(steps.shape, np.int8), np.zeros_like(steps)
    for start in reversed(range(0, steps.shape[1], _BLOCK)):
        block, behind = slice(start, start + _BLOCK), slice(start + _BLOCK, None)
        target = steps[:, block] + factors[:, behind, block].swapaxes(1, 2) @ errors[:, behind]
        for i in reversed(range(target.shape[1])):
            part, row = steps[:, start + i], factors[:, start + i, start : start + i, None]
            rounded = np.clip(np.rint(target[:, i]), -127, 127)
            rounded[part == 0] = 0
            values[:, start + i], errors[:, start + i] = rounded, part - rounded
            # Products as small as these take longer with the threads of BLAS.
            target[:, :i] += row * errors[:, start + i, None]
    return np.take_along_axis(values, np.argsort(order, axis=1)[..., None], 1).swapaxes(1, 2), scales


def round_to_nearest(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Like `round_weights` for inputs that are not known: each weight becomes the nearest value."""
    scales = _scales(weights)
    return np.clip(np.round(weights / scales[..., None]), -127, 127).astype(np.int8), scales


def _unit_factors(matrices: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors [groups, size, size], float32, each column divided by its diagonal element.

    For matrices that are not positive definite, such as rounding noise, they are the identity, which rounds
    to the nearest value.
    """
    # Unlike NumPy's, it is as fast with float32 as expected, and does not depend on the number of threads.
    lower = tf.linalg.cholesky(matrices.astype(np.float32)).numpy()
    diagonals = np.einsum("gii->gi", lower)
    failed = ~np.isfinite(diagonals).all(axis=1)
    lower[failed] = np.eye(lower.shape[-1])
    return lower / diagonals[:, None]


def _scales(weights: np.ndarray) -> np.ndarray:
    """The step of each output, float32 [groups, outputs]."""
    return int8_scales(np.abs(weights).max(axis=-1))
