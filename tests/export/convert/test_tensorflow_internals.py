"""Private names of TensorFlow: a failing test names what an upgrade removed."""

import numpy as np
import tensorflow as tf
from tfsparsecap_export.convert import tensorflow_internals as internals


def test_variables_become_constants():
    variable = tf.Variable([2.0])
    function = tf.function(lambda x: {"y": x * variable}).get_concrete_function(
        tf.TensorSpec((1,), tf.float32)
    )
    frozen = internals.freeze_variables(function)
    variable.assign([5.0])
    assert not frozen.variables
    np.testing.assert_array_equal(frozen(tf.constant([3.0]))[0], [6.0])
