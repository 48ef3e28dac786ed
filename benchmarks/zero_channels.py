"""Makes half of a model's channels constant: their gamma is zero, or their kernel if they have no gamma."""

import keras
import numpy as np

from tfsparsecap.keras_internals import nested_layers
from tfsparsecap.slimming.folding import dead
from tfsparsecap.slimming.graph import trace
from tfsparsecap.slimming.groups import Analysis
from tfsparsecap.slimming.statistics import Propagation


def randomize(model: keras.Model, inputs: object, rng: np.random.Generator) -> None:
    """Gives biases, gammas and betas random values, and batch normalisation the statistics of `inputs`."""
    normalizations = [one for one in nested_layers(model) if isinstance(one, keras.layers.BatchNormalization)]
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
    """Makes half of each group of channels constant, such that they can be removed exactly.

    Their betas stay random where the next layers can take them over (no padding after them); elsewhere they
    become zero. Convolutions that no batch normalisation follows get kernels of zeros.

    Returns:
        (chosen, exact): numbers of channels, and how many of them may go without any effect.
    """
    analysis = Analysis(trace(model))
    chosen = np.zeros(analysis.labels.size, bool)
    for group in analysis.groups:
        chosen[rng.permutation(group.classes)[: group.size // 2]] = True
    gamma = np.zeros(analysis.labels.size, bool)  # classes that a gamma scales
    for _, labels, kind, _ in _weights(analysis):
        if kind == "gamma":
            gamma[analysis.classes[labels]] = True
    gamma = gamma[analysis.classes]
    every = chosen[analysis.classes]
    _clear(analysis, "gamma", every)
    _clear(analysis, "kernel", every & ~gamma)
    for kinds in (("beta", "bias", "moving_mean"), ("kernel", "bias")):
        rest = every & ~dead(analysis, Propagation(analysis))[analysis.classes]
        for kind in kinds:
            _clear(analysis, kind, rest)
    exact = dead(analysis, Propagation(analysis))
    return int(chosen.sum()), int((chosen & exact).sum())


def _weights(analysis: Analysis) -> list[tuple[keras.Variable, np.ndarray, str, int]]:
    """Weights with the labels of an axis, a kind and the axis: vectors, and kernels that create channels."""
    found = []
    for info in analysis.infos.values():
        created = dict(info.kernels)
        for variable in getattr(info.operation, "weights", ()):
            axes = info.slots.get(id(variable), ())
            if id(variable) in created and axes[created[id(variable)]] is not None:
                found.append((variable, axes[created[id(variable)]], "kernel", created[id(variable)]))
            elif len(axes) == 1 and axes[0] is not None:
                found.append((variable, axes[0], variable.name, 0))
    return found


def _clear(analysis: Analysis, kind: str, labels: np.ndarray) -> None:
    for variable, axis, name, position in _weights(analysis):
        if name == kind and labels[axis].any():
            value = np.array(keras.ops.convert_to_numpy(variable))
            np.moveaxis(value, position, 0)[labels[axis]] = 0
            variable.assign(value)
