"""Makes all kernels multiply half of a model's channels by zero."""

import keras
import numpy as np

from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.slimming.channel_choice import unused
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.operation_graph import trace


def randomize(model: keras.Model, inputs: object, rng: np.random.Generator) -> None:
    """Gives biases, gammas and betas random values, and batch normalisation the statistics of `inputs`."""
    normalizations = [
        layer for layer in nested_layers(model) if isinstance(layer, keras.layers.BatchNormalization)
    ]
    for layer in nested_layers(model):
        for name, mean, deviation in (("gamma", 1.0, 0.2), ("beta", 0.0, 0.3), ("bias", 0.0, 0.1)):
            variable = getattr(layer, name, None)
            if isinstance(variable, keras.Variable):
                variable.assign(rng.normal(mean, deviation, variable.shape))
    momenta = [layer.momentum for layer in normalizations]
    for layer in normalizations:
        layer.momentum = 0.0
    model(inputs, training=True)
    for layer, momentum in zip(normalizations, momenta, strict=True):
        layer.momentum = momentum


def zero_channels(model: keras.Model, rng: np.random.Generator) -> tuple[int, int]:
    """Clears what all kernels make of half of the channels of each group.

    Returns:
        (chosen, exact): numbers of channels, and how many of them may go without any effect: not those that a
        layer normalisation, a cell or an attention combines.
    """
    analysis = Analysis(trace(model))
    chosen = [rng.permutation(group.classes)[: group.size // 2] for group in analysis.groups]
    chosen = np.concatenate([np.array([], np.int64), *chosen])
    clear_kernels(analysis, ~analysis.alive(chosen))
    return len(chosen), int(np.isin(chosen, unused(analysis, 1)).sum())


def clear_kernels(analysis: Analysis, labels: np.ndarray) -> None:
    """Makes the kernels that multiply the channels `labels` (bool [labels]) zero there."""
    for info in analysis.infos.values():
        for fold, axis in info.folds:
            kernel = np.moveaxis(np.array(fold.kernel), fold.axis, 0)
            kernel[labels[axis[: len(kernel)]]] = 0
            fold.kernel.assign(np.moveaxis(kernel, 0, fold.axis))
