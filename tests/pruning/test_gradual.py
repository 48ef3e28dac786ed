"""Gradual pruning is tensorflow-model-optimization's: same schedule, same masks, on Keras 3."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, prune, strip_pruning, tfmot

# Not imported here: that would have every later test get Keras 2.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_model_optimization") is None,
    reason="tensorflow-model-optimization is not installed",
)


def made(rows=64, columns=48):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((rows,)), keras.layers.Dense(columns, "relu"), keras.layers.Dense(8)]
    )


def theirs(weight, sparsity, block):
    """The mask that its own code makes for a weight at the last step of its schedule."""
    schedules, implementation = tfmot.load()
    variables = tf.Variable(weight), tf.Variable(tf.ones_like(weight)), tf.Variable(0.0)
    schedule = schedules.ConstantSparsity(sparsity, 0, 10, 1)
    update = implementation.Pruning(lambda: tf.constant(0), [variables], schedule, block, "AVG")
    update.conditional_mask_update()
    return variables[1].numpy()


@pytest.mark.parametrize("block", [(1, 1), (16, 1)])
@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_masks_are_the_ones_that_tfmot_makes_of_the_same_weights(sparsity, block):
    model = made()
    weights = [np.asarray(layer.kernel) for layer in model.layers]
    pruned = prune(model, Gradual(sparsity, 10, block_shape=block, schedule="constant", begin=0.0, end=0.1))
    pruned.compile(keras.optimizers.SGD(0.0), "mse")
    pruned.train_on_batch(np.ones((2, 64)), np.ones((2, 8)))
    for layer, weight in zip(strip_pruning(pruned).layers, weights, strict=True):
        np.testing.assert_array_equal(np.asarray(layer.kernel), weight * theirs(weight, sparsity, block))


def test_sparsity_rises_as_the_polynomial_of_the_paper():
    pruned = prune(made(), Gradual(0.9, 100, begin=0.1, end=0.61, frequency=10))
    pruned.compile("sgd", "mse")
    seen = []
    for _ in range(100):
        pruned.train_on_batch(np.ones((2, 64)), np.ones((2, 8)))
        seen.append(float(pruned.pruning.current_sparsity()))
    # Updates at steps 10, 20, ... 60; the one at 10 is at sparsity 0.
    for step in range(100):
        update = min(max(step, 10), 60) // 10 * 10
        share = 0.9 * (1 - (1 - (update - 10) / 50) ** 3) if step >= 10 else 0.0
        assert seen[step] == pytest.approx(share, abs=0.003), step
    assert seen[-1] == pytest.approx(0.9, abs=0.003)


@pytest.mark.parametrize("steps", [1, 2, 7, 300])
def test_ends_at_the_sparsity_whatever_the_length(steps):
    pruned = prune(made(), "gradual", sparsity=0.8, total_steps=steps)
    pruned.compile("adam", "mse")
    for _ in range(steps):
        pruned.train_on_batch(np.ones((2, 64)), np.ones((2, 8)))
    # Every layer, not only all of them together.
    for gate in pruned.pruning.gates:
        assert float(gate.open_count()) / gate.size == pytest.approx(0.2, abs=0.003)


def test_the_environment_is_as_before():
    # What the package would break is augmentation: keras-cv on Keras 2.
    code = (
        "import os; from tfsparsecap.pruning import tfmot; tfmot.load();"
        "from tfsparsecap.data.augmentation import Augmentation; Augmentation(['RandomHue'], 32);"
        "print(os.environ.get('TF_USE_LEGACY_KERAS'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.stdout.strip().splitlines()[-1] == "None", result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schedule": "linear"}, "choose one of polynomial, constant"),
        ({"begin": 0.6}, "0 <= begin < end <= 1"),
        ({"frequency": 0}, "at least 1 step"),
        ({"total_steps": 0}, "total_steps must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Gradual(**{"sparsity": 0.5, "total_steps": 100, **arguments})
