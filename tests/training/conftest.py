"""Two logical CPU devices, so that distribution is tested on any machine: made before TensorFlow starts."""

import contextlib

import tensorflow as tf

# Where another test started TensorFlow first, the tests of two devices skip and say so.
with contextlib.suppress(RuntimeError):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
    )
