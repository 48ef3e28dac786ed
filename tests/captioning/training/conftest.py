"""Two logical CPU devices for tests of distributed training, created before TensorFlow starts."""

import contextlib

import tensorflow as tf

# If another test has started TensorFlow already, the tests of two devices are skipped.
with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
    )
