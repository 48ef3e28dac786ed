"""Supermask reaches exactly its sparsity, gradually, and keeps the gates with the highest criterion."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Schedule, Supermask, prune, strip_pruning


def classifier(sizes=(64, 128, 10)):
    layers = [keras.layers.Dense(size, "relu") for size in sizes[1:-1]]
    return keras.Sequential([keras.Input((sizes[0],)), *layers, keras.layers.Dense(sizes[-1])])


def data(features=64):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(2048, features)).astype("float32")
    return inputs, np.argmax(inputs @ random.normal(size=(features, 10)), 1)


def trained(model, method, learning_rate=3e-3):
    model = prune(model, method)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(learning_rate), loss, metrics=["accuracy"])
    inputs, labels = data(model.input_shape[-1])
    batches = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(64)
    history = model.fit(batches, epochs=10, steps_per_epoch=method.total_steps // 10, verbose=0)
    return strip_pruning(model), history.history


def sparsity_of(model):
    kernels = [weight.numpy() for weight in model.weights if len(weight.shape) == 2]
    return 1 - sum(np.count_nonzero(kernel) for kernel in kernels) / sum(kernel.size for kernel in kernels)


def run_steps(method, size):
    """Runs all steps of a method on one kernel [256, size], with random gradients, in a single graph."""
    model = prune(keras.Sequential([keras.Input((256,)), keras.layers.Dense(size)]), method)
    shape = model.layers[0].kernel_gate.logits.shape
    # Gradients of very different sizes, as in real training.
    scale = np.exp(np.random.default_rng(0).normal(size=shape)).astype("float32")

    @tf.function
    def run():
        for _ in tf.range(method.total_steps):
            method.step([tf.random.normal(shape) * scale])

    run()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 300])
@pytest.mark.parametrize(("sparsity", "block_shape"), [(0.95, (1, 1)), (0.5, (16, 1))])
def test_ends_at_the_requested_sparsity_after_any_number_of_steps(steps, sparsity, block_shape):
    model = run_steps(Supermask(sparsity, steps, block_shape=block_shape), 40)
    assert float(model.pruning.logs()["sparsity"]) == pytest.approx(sparsity, abs=0.0016)
    assert sparsity_of(strip_pruning(model)) == pytest.approx(sparsity, abs=0.0016)


def test_sparsity_rises_gradually_and_the_model_still_learns(compiled):
    model, history = trained(classifier(), Supermask(0.8, total_steps=400))
    curve = history["sparsity"]
    assert curve[0] < 0.1
    assert min(np.diff(curve)) >= 0
    assert max(np.diff(curve)) < 0.4
    assert curve[7:] == [curve[-1]] * 3
    assert sparsity_of(model) == pytest.approx(0.8, abs=0.001)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    inputs, labels = data()
    assert model.evaluate(inputs, labels, verbose=0)[1] > 0.95


def test_gates_with_the_largest_mean_squared_gradient_are_kept():
    keras.utils.set_random_seed(0)
    # A linear model with fixed weights: NumPy computes dL/dz = 2 * mean(error * x) * w at every step.
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(1, use_bias=False)])
    method = Supermask(0.5, 20, schedule=Schedule(0.5, 0.8, frequency=1), ema_decay=0.5, closed_decay=0.0)
    prune(model, method)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    random = np.random.default_rng(1)
    kernel = model.get_weights()[0][:, 0]
    importance = np.zeros(32)
    keep = np.ones(32)
    for step in range(20):
        inputs = random.normal(size=(8, 32)).astype("float32")
        targets = random.normal(size=(8, 1)).astype("float32")
        error = inputs @ (kernel * keep) - targets[:, 0]
        model.train_on_batch(inputs, targets)
        if step <= method.updates.last:
            importance = 0.5 * importance + 0.5 * (2 * (error @ inputs) / 8 * kernel) ** 2
        keep = (model.layers[0].kernel_gate.logits.numpy()[:, 0] > 0).astype("float64")
        if step == method.updates.last:
            expected = np.argsort(importance)[16:]
    assert set(np.flatnonzero(keep)) == set(expected)


def test_weights_behind_closed_gates_decay_and_learn_until_the_last_update():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(4, use_bias=False)])
    method = Supermask(0.5, 10, schedule=Schedule(0.0, 0.8, frequency=1), closed_decay=0.25)
    prune(model, method)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    inputs, targets = np.random.default_rng(0).normal(size=(2, 32, 64)).astype("float32")
    targets = targets[:, :4]
    for step in range(10):
        kernel = model.layers[0].stored_weight("kernel").numpy()
        closed = model.layers[0].kernel_gate.logits.numpy() < 0
        error = inputs @ np.where(closed, 0, kernel) - targets
        kernel = kernel - 0.1 * 2 * inputs.T @ error / error.size
        if method.updates.first < step <= method.updates.last:
            kernel = np.where(closed, 0.75 * kernel, kernel)
        model.train_on_batch(inputs, targets)
        assert np.allclose(model.layers[0].stored_weight("kernel").numpy(), kernel, atol=1e-5)


def test_prune_warns_of_coarse_blocks():
    with pytest.warns(UserWarning, match="may differ from"):
        prune(classifier((16, 16, 2)), Supermask(0.9, total_steps=10, block_shape=(16, 1)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"sparsity": 1.0, "total_steps": 10},
        {"sparsity": -0.1, "total_steps": 10},
        {"sparsity": 0.9, "total_steps": 0},
        {"sparsity": 0.9, "total_steps": 10, "block_shape": (16,)},
        {"sparsity": 0.9, "total_steps": 10, "ema_decay": 1.0},
        {"sparsity": 0.9, "total_steps": 10, "closed_decay": 2.0},
        {"sparsity": "much", "total_steps": 10},
        {"sparsity": 0.9, "total_steps": 10, "minimum_density": 0.2},
    ],
)
def test_arguments_out_of_range_are_rejected(arguments):
    with pytest.raises(InputError, match=r"give a number|give a whole|block_shape must|minimum_density is"):
        Supermask(**arguments)


@pytest.mark.parametrize(("minimum_density", "kept"), [(None, 41), (0.05, 205), (0.0, 0)])
def test_a_layer_keeps_its_floor_however_unimportant_it_is(minimum_density, kept):
    method = Supermask(0.9, 10, minimum_density=minimum_density)
    model = prune(keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64) for _ in range(2))]), method)
    for _ in range(10):
        method.step([tf.fill((64, 64), 1e-9), tf.random.uniform((64, 64), 1, 2)])
    first, second = (np.count_nonzero(layer.kernel.numpy()) for layer in strip_pruning(model).layers)
    assert first == kept and first + second == 8192 - round(0.9 * 8192)
