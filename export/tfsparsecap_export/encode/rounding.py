"""Rounding weights to int8 such that the outputs of their layer change as little as possible."""

import numpy as np

#: Added to the variances of the inputs, as a fraction of their mean, so that the covariance can be inverted.
_DAMPING = 0.01
#: Number of inputs whose errors are compensated in the following inputs at the same time.
_BLOCK = 128


def round_weights(weights: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounds the weights of a linear layer to int8 by GPTQ, with one scale per output.

    Weights are rounded input by input, those of the input with the largest variance first. The weights of the
    remaining inputs compensate for the error of each as far as the inputs are correlated. Weights that are
    zero stay zero.

    Args:
        weights: float [groups, outputs, inputs]. The outputs of a group depend only on its own inputs: a
            dense layer is one group, and a depthwise convolution has one group of one output per channel.
        covariance: float64 [groups, inputs, inputs] of the inputs, or their second moments for a layer
            without a bias.

    Returns:
        int8 values like `weights`, from -127 to 127, and float32 scales [groups, outputs]: a weight is about
        its value times its scale.

    Reference:
        Frantar et al., "GPTQ", https://arxiv.org/abs/2210.17323, section 3, and
        `--act-order` in the authors' implementation.

    Examples:
        >>> values, scales = round_weights(np.array([[[1.27, 0.5, 0.0]]]), np.eye(3)[None])
        >>> values.tolist(), float(scales[0, 0].round(3))
        ([[[127, 50, 0]]], 0.01)
    """
    scales = _scales(weights)
    variances = np.einsum("gii->gi", covariance)
    order = np.argsort(-variances, axis=1)
    damping = _DAMPING * variances.mean(axis=1) + np.finfo(np.float32).tiny
    damped = covariance + damping[:, None, None] * np.eye(covariance.shape[-1])
    damped = np.take_along_axis(np.take_along_axis(damped, order[:, :, None], 1), order[:, None], 2)
    # The upper factor U of the inverse, whose U.T @ U is the inverse, is the inverse of a factor.
    lower = _cholesky(damped[:, ::-1, ::-1])
    inverse = _inverse_of_lower(lower)[:, ::-1, ::-1]
    sorted_weights = np.take_along_axis(weights, order[:, None], 2)
    remaining, values = sorted_weights.astype(np.float64), np.zeros(weights.shape, np.int8)
    for start in range(0, weights.shape[-1], _BLOCK):
        block = slice(start, start + _BLOCK)
        part, errors = remaining[..., block], np.zeros(remaining[..., block].shape)  # `part` is a view
        factors = inverse[:, block, block]
        for i in range(part.shape[-1]):
            rounded = np.clip(np.round(part[..., i] / scales), -127, 127)
            rounded[sorted_weights[..., start + i] == 0] = 0
            values[..., start + i] = rounded
            errors[..., i] = (part[..., i] - rounded * scales) / factors[:, i, i, None]
            part[..., i + 1 :] -= errors[..., i, None] * factors[:, None, i, i + 1 :]
        remaining[..., start + _BLOCK :] -= errors @ inverse[:, block, start + _BLOCK :]
    return np.take_along_axis(values, np.argsort(order, axis=1)[:, None], 2), scales


def round_to_nearest(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Like `round_weights` for inputs that are not known: each weight becomes the nearest value."""
    scales = _scales(weights)
    return np.clip(np.round(weights / scales[..., None]), -127, 127).astype(np.int8), scales


def _cholesky(matrices: np.ndarray) -> np.ndarray:
    """Lower factors. Matrices that are not positive definite, such as rounding noise, are damped first."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        size = np.abs(matrices).sum(axis=-1).max(axis=-1)  # no eigenvalue is larger
        lowest = np.linalg.eigvalsh(matrices)[:, 0]
        damping = np.where(lowest <= 1e-6 * size, 2 * size, 0.0)
        return np.linalg.cholesky(matrices + damping[:, None, None] * np.eye(matrices.shape[-1]))


def _inverse_of_lower(matrices: np.ndarray) -> np.ndarray:
    """Inverses of lower triangular matrices [groups, size, size], in a sixth of the time of `inv`."""
    size = matrices.shape[-1]
    if size <= _BLOCK:
        return np.linalg.inv(matrices)
    half = size // 2
    inverse = np.zeros_like(matrices)
    first, last = slice(None, half), slice(half, None)
    inverse[:, first, first] = _inverse_of_lower(matrices[:, first, first])
    inverse[:, last, last] = _inverse_of_lower(matrices[:, last, last])
    inverse[:, last, first] = -inverse[:, last, last] @ (matrices[:, last, first] @ inverse[:, first, first])
    return inverse


def _scales(weights: np.ndarray) -> np.ndarray:
    """The step of each output, float32 [groups, outputs]."""
    largest = np.abs(weights).max(axis=-1)
    return np.where(largest == 0, 1, largest / 127).astype(np.float32)
