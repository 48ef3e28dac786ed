"""Gradual pruning is tensorflow-model-optimization's: same schedule, same masks, on Keras 3."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, prune, strip_pruning
from tfsparsecap.settings.build import make_captioner
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.gating import gate_captioner

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
    schedules, implementation = keras_internals.model_optimization()
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


def kinds_of_kernels():
    """A table, a kernel of four dimensions and one of two."""
    keras.utils.set_random_seed(3)
    picture, words = keras.Input((6, 6, 3)), keras.Input((5,), dtype="int32")
    seen = keras.layers.Flatten()(keras.layers.Conv2D(4, 3)(picture))
    read = keras.layers.Flatten()(keras.layers.Embedding(20, 16)(words))
    return keras.Model([picture, words], keras.layers.Dense(8)(keras.layers.Concatenate()([seen, read])))


@pytest.mark.parametrize(
    ("make", "block", "theirs"),
    [
        (kinds_of_kernels, (1, 1), [(1, 1)] * 3),
        # A block of theirs is of rows and columns; a row of a table is a word.
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Embedding(20, 32)]), (16, 1), [(1, 16)]),
        (made, (16, 1), [(16, 1)] * 2),
    ],
    ids=["single weights", "table in blocks", "kernels in blocks"],
)
def test_every_update_on_moving_weights_makes_the_masks_that_tfmot_makes(make, block, theirs):
    schedules, implementation = keras_internals.model_optimization()
    # From step 2 to 8, every other one.
    model = prune(make(), Gradual(0.75, 20, begin=0.1, end=0.45, frequency=2, block_shape=block))
    model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    schedule = schedules.PolynomialDecay(0.0, 0.75, begin_step=2, end_step=8, power=3, frequency=2)
    step, method, random = tf.Variable(0), model.pruning, np.random.default_rng(0)
    updates = []
    for weight, size in zip(method.weights, theirs, strict=True):
        variables = [tf.Variable(weight), tf.Variable(tf.ones_like(weight)), tf.Variable(0.0)]
        update = implementation.Pruning(lambda: step, [variables], schedule, size, "AVG")
        updates.append((update, variables))
    inputs = [random.integers(0, 20, (8, *one.shape[1:])).astype(one.dtype) for one in model.inputs]
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schedule": "linear"}, "choose one of polynomial, constant"),
        ({"begin": 0.6}, "0 <= begin < end <= 1"),
        ({"frequency": 0}, "at least 1 step"),
        ({"steps_per_epoch": 0}, "at least 1 step"),
        # From step 5 to 49.
        ({"frequency": 45}, "frequency is 45, .* from step 5 to 49 of 100: give 44 at most"),
        ({"total_steps": 0}, "total_steps must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Gradual(**{"sparsity": 0.5, "total_steps": 100, **arguments})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frequency": 448},
        {"begin": 0.2, "end": 0.8, "frequency": 7},
        {"steps_per_epoch": 100},
        {"total_steps": 2},
        {"schedule": "constant", "frequency": 1000},
    ],
)
def test_a_saved_method_has_the_schedule_that_was_asked_for(options):
    def times(method):
        return method.first_step, method.last_step, method.frequency

    method = Gradual(**{"sparsity": 0.9, "total_steps": 1000, **options})
    again = Gradual.from_config(Gradual.from_config(method.get_config()).get_config())
    assert times(again) == times(method)
    assert again.get_config() == method.get_config()
    assert {name: method.get_config()[name] for name in options} == options
    assert method.last_step < method.total_steps * method.end or method.total_steps == 2


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 50),
        ({"steps_per_epoch": 100}, 100),
        ({"steps_per_epoch": 100, "begin": 0.3}, 300),
        # The first epoch ends where the rise does: the share of the training that goes without epochs.
        ({"steps_per_epoch": 500}, 50),
        ({"steps_per_epoch": 1000, "end": 0.06}, 30),
    ],
)
def test_updates_begin_after_the_first_epoch_or_at_the_share_that_is_named(options, first):
    assert Gradual(0.9, 1000, **options).first_step == first


def test_a_training_of_the_package_begins_after_its_first_epoch(tiny_settings):
    settings = [*tiny_settings, "pruning.method=gradual", "training.epochs=10"]
    found = {}
    for more in ([], ["pruning.begin=0.3"]):
        config = load_config(None, [*settings, *more])
        captioner = make_captioner(config, 12)
        gate_captioner(captioner, config, 200)
        found[len(more)] = captioner.pruning.first_step
    assert found == {0: 20, 1: 60}


def test_blocks_with_which_a_layer_cannot_reach_the_sparsity_are_refused():
    # Two blocks of 16, of which the package keeps one, and 16 of 2, of which it keeps 2: 44 of 64 weights go.
    layers = [keras.Input((16,)), keras.layers.Dense(2), keras.layers.Dense(16)]
    with pytest.raises(InputError, match=r"a sparsity of 0\.9 is out of reach, 0\.688 being"):
        prune(keras.Sequential(layers), Gradual(0.9, 10, block_shape=(16, 1)))
    model = prune(keras.Sequential(layers), Gradual(0.55, 10, begin=0.0, block_shape=(16, 1)))
    model.compile("sgd", "mse", run_eagerly=True)
    for _ in range(10):
        model.train_on_batch(np.ones((2, 16)), np.ones((2, 16)))
    assert float(model.pruning.current_sparsity()) == (16 + 9 * 2) / 64
