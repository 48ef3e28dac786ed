"""Two logical CPU devices for tests of distributed training, created before TensorFlow starts."""

import contextlib

import pytest
import tensorflow as tf

from tfsparsecap.captioning.training.distribution import make_strategy

# If another test has started TensorFlow already, the tests of two devices are skipped.
with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
    )


def two_devices() -> tf.distribute.Strategy:
    """The strategy of trainings on both devices; the test is skipped if there is one."""
    if len(tf.config.list_logical_devices("CPU")) < 2:
        pytest.skip("needs two logical CPU devices: run it before tests of other folders")
    return make_strategy("mirrored")
