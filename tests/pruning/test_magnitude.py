"""One-shot magnitude pruning against NumPy, at once or during training."""

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Magnitude, Schedule, prune, strip_pruning


@pytest.fixture
def model():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(48, "relu"), keras.layers.Dense(32, "relu"), keras.layers.Dense(5)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    for scale, layer in zip((1.0, 4.0, 0.2), model.layers, strict=True):
        layer.kernel.assign(keras.random.normal(layer.kernel.shape, stddev=scale))
    return model


def kernels(model):
    return [np.asarray(layer.kernel) for layer in model.layers]


def expected(weights, sparsity, allocation):
    """Masks of the kept weights, by sorting."""
    if allocation == "uniform":
        return [np.abs(w) > np.sort(np.abs(w), axis=None)[round(sparsity * w.size) - 1] for w in weights]
    scaled = [np.abs(w) / (w.std() if allocation == "distribution" else 1.0) for w in weights]
    together = np.sort(np.concatenate([w.ravel() for w in scaled]))
    limit = together[round(sparsity * together.size) - 1]
    return [w > limit for w in scaled]


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
@pytest.mark.parametrize("allocation", ["blind", "uniform", "distribution"])
def test_the_same_weights_are_removed_as_by_numpy(model, sparsity, allocation):
    before = kernels(model)
    stripped = strip_pruning(prune(model, "magnitude", sparsity=sparsity, allocation=allocation))
    for own, weight, mask in zip(
        kernels(stripped), before, expected(before, sparsity, allocation), strict=True
    ):
        np.testing.assert_array_equal(own, np.where(mask, weight, 0))


def test_blocks_are_ranked_by_their_mean_magnitude(model):
    before = kernels(model)
    stripped = strip_pruning(prune(model, Magnitude(0.75, block_shape=(16, 1))))
    means = [np.abs(w).reshape(-1, 16, w.shape[1]).mean(1) for w in before]
    limit = np.sort(np.concatenate([mean.ravel() for mean in means]))
    # A block that would exceed the sparsity is kept.
    limit = limit[int(0.75 * limit.size) - 1]
    for own, weight, mean in zip(kernels(stripped), before, means, strict=True):
        np.testing.assert_array_equal(own, np.where(np.repeat(mean > limit, 16, axis=0), weight, 0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allocation": "layer"}, "choose one of blind, uniform, distribution"),
        ({"schedule": Schedule(begin=1.0), "total_steps": 9}, "leaves no step"),
        ({"schedule": Schedule(begin=0.5)}, "needs total_steps"),
        ({"schedule": Schedule(begin=0.1, end=0.5)}, "does not use the schedule's end, but begin"),
        ({"schedule": 0.5}, "schedule must be a Schedule"),
    ],
)
def test_arguments_out_of_range_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        Magnitude(**{"sparsity": 0.5, **arguments})
