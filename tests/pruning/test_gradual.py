"""Gradual pruning: the schedule and masks of tensorflow-model-optimization, on Keras 3."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, Schedule, prune

# Not imported here, because it would switch all later tests to Keras 2.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_model_optimization") is None,
    reason="tensorflow-model-optimization is not installed",
)


def made(rows=64, columns=48):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((rows,)), keras.layers.Dense(columns, "relu"), keras.layers.Dense(8)]
    )


def kinds_of_kernels():
    """An embedding table, a four-dimensional kernel and a two-dimensional one."""
    keras.utils.set_random_seed(3)
    image, words = keras.Input((6, 6, 3)), keras.Input((5,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Conv2D(4, 3)(image))
    y = keras.layers.Flatten()(keras.layers.Embedding(20, 16)(words))
    return keras.Model([image, words], keras.layers.Dense(8)(keras.layers.Concatenate()([x, y])))


@pytest.mark.parametrize(
    ("make", "block", "theirs"),
    [
        (kinds_of_kernels, (1, 1), [(1, 1)] * 3),
        # tfmot's blocks are (rows, columns); a row of a table is a word.
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Embedding(20, 32)]), (16, 1), [(1, 16)]),
        (made, (16, 1), [(16, 1)] * 2),
    ],
    ids=["single weights", "table in blocks", "kernels in blocks"],
)
def test_masks_equal_those_of_tfmot_at_every_update_of_a_training(make, block, theirs):
    schedules, implementation = keras_internals.model_optimization()
    # Every other step from 2 to 8.
    model = prune(make(), Gradual(0.75, 20, schedule=Schedule(0.1, 0.45, frequency=2), block_shape=block))
    model.compile(keras.optimizers.Adam(0.05), "mse")
    schedule = schedules.PolynomialDecay(0.0, 0.75, begin_step=2, end_step=8, power=3, frequency=2)
    step, method, random = tf.Variable(0), model.pruning, np.random.default_rng(0)
    updates = []
    for weight, size in zip(method.weights, theirs, strict=True):
        variables = [tf.Variable(weight), tf.Variable(tf.ones_like(weight)), tf.Variable(0.0)]
        update = implementation.Pruning(lambda: step, [variables], schedule, size, "AVG")
        updates.append((update, variables))
    inputs = [random.integers(0, 20, (8, *tensor.shape[1:])).astype(tensor.dtype) for tensor in model.inputs]
    targets = random.normal(size=(8, *model.output_shape[1:]))
    seen = []
    for number in range(10):
        model.train_on_batch(inputs if len(inputs) > 1 else inputs[0], targets)
        step.assign(number)
        seen.append(float(method.current_sparsity()))
        for gate, weight, (update, variables) in zip(method.gates, method.weights, updates, strict=True):
            variables[0].assign(weight)
            update.conditional_mask_update()
            np.testing.assert_array_equal(gate.expand(gate.mask()), variables[1])
    assert seen[2] == 0.0 < seen[4] < seen[6] < seen[8] == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    ("steps_per_epoch", "schedule", "first"),
    [
        (None, Schedule(), 50),
        (100, Schedule(), 100),
        (100, Schedule(begin=0.3), 300),
        # The first epoch ends at or after the last update: use the default without epochs.
        (500, Schedule(), 50),
        (1000, Schedule(end=0.06), 50),
        (1000, Schedule(end=0.04), 20),
    ],
)
def test_updates_begin_after_the_first_epoch_or_at_the_given_share(steps_per_epoch, schedule, first):
    method = Gradual(0.9, 1000, steps_per_epoch=steps_per_epoch, schedule=schedule)
    assert method.updates.first == first
    again = Gradual.from_config(method.get_config())
    assert again.updates == method.updates and again.get_config() == method.get_config()


def test_blocks_too_coarse_for_a_layer_are_rejected():
    # tfmot keeps one of 2 blocks of 16 and 2 of 16 blocks of 2, so it removes 44 of 64 weights.
    layers = [keras.Input((16,)), keras.layers.Dense(2), keras.layers.Dense(16)]
    with pytest.raises(InputError, match=r"0\.9 cannot be reached: .* below is 0\.688"):
        prune(keras.Sequential(layers), Gradual(0.9, 10, block_shape=(16, 1)))
    model = prune(
        keras.Sequential(layers), Gradual(0.55, 10, schedule=Schedule(begin=0.0), block_shape=(16, 1))
    )
    model.compile("sgd", "mse")
    for _ in range(10):
        model.train_on_batch(np.ones((2, 16)), np.ones((2, 16)))
    assert float(model.pruning.current_sparsity()) == (16 + 9 * 2) / 64
