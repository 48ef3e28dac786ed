"""Distillation of features: against NumPy, and on two devices."""

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.training.feature_relations import is_grid, relation_loss

RANDOM = np.random.default_rng(4)


def cosines(vectors):
    centred = vectors - vectors.mean(axis=-2, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=-1, keepdims=True)
    return unit @ np.swapaxes(unit, -1, -2)


def maps(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def test_loss_equals_numpy_with_a_class_token_and_another_grid():
    own, theirs = maps(3, 4, 5), maps(3, 1 + 16, 7)
    # Means of blocks of 2 x 2 positions.
    halved = theirs[:, 1:].reshape(3, 2, 2, 2, 2, 7).mean(axis=(2, 4)).reshape(3, 4, 7)
    with_filter = float(relation_loss(own, [theirs]))
    expected = np.square(cosines(own) - cosines(halved)).mean()
    expected += np.square(cosines(own.mean(axis=1)) - cosines(halved.mean(axis=1))).mean()
    assert float(relation_loss(own, [halved])) == pytest.approx(expected, rel=1e-5)
    assert with_filter == pytest.approx(expected, rel=0.3) and with_filter != expected
    assert float(relation_loss(own, [halved, own])) == pytest.approx(expected / 2, rel=1e-5)
    assert float(relation_loss(own, [2 * own @ np.linalg.qr(maps(5, 5))[0]])) == pytest.approx(0, abs=1e-6)


def test_two_devices_compute_the_loss_and_gradient_of_one():
    devices = tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")
    own, theirs = maps(4, 4, 5), maps(4, 4, 7)
    # Without collective operations, whose numbering strategies of other tests in this process share.
    strategy = tf.distribute.MirroredStrategy(
        [device.name for device in devices[:2]], tf.distribute.ReductionToOneDevice()
    )

    def step(own, theirs):
        with tf.GradientTape() as tape:
            tape.watch(own)
            loss = relation_loss(own, [theirs])
        return loss, tape.gradient(loss, own)

    def half(array):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(np.split(array, 2)[context.replica_id_in_sync_group])
        )

    loss, gradient = step(tf.constant(own), tf.constant(theirs))
    halves = tf.function(lambda *arrays: strategy.run(step, args=arrays))(half(own), half(theirs))
    losses, gradients = (strategy.experimental_local_results(values) for values in halves)
    assert sum(float(value) for value in losses) == pytest.approx(float(loss), rel=1e-5)
    np.testing.assert_allclose(tf.concat(gradients, 0), gradient, rtol=1e-4, atol=1e-7)


def test_grids():
    assert [number for number in range(1, 20) if is_grid(number)] == [1, 2, 4, 5, 9, 10, 16, 17]
