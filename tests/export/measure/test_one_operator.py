"""Files of a single kind of operation on the runtime, compared with NumPy and TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.measure import one_operator


@pytest.mark.parametrize("kept", [0.1, 1.0])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_random_zeros_fill_whole_blocks_and_leave_the_given_fraction(kept, block):
    matrix = one_operator.sparse_matrix(np.random.default_rng(0), 200, 160, kept, block)
    blocks = (matrix != 0).reshape(200, -1, block)
    assert (blocks.all(axis=2) == blocks.any(axis=2)).all()
    assert blocks.any(axis=2).mean() == pytest.approx(kept, abs=0.02)


@pytest.mark.parametrize(
    ("encoding", "block", "tolerance"),
    [
        (encodings.DENSE, 1, 1e-5),
        (encodings.CSR, 1, 1e-5),
        (encodings.BLOCK4, 4, 1e-5),
        (encodings.BLOCK16, 16, 0.02),
        (encodings.INT8, 1, 0.02),
        (encodings.SPARSE16, 1, 1e-2),
    ],
)
def test_each_operation_multiplies_with_its_own_matrix(interpreter, encoding, block, tolerance):
    rng = np.random.default_rng(1)
    matrices = [one_operator.sparse_matrix(rng, 24, 64, 0.3, block) for _ in range(3)]
    inputs = rng.normal(size=(5, 64)).astype(np.float32)
    outputs = interpreter(one_operator.fully_connected(matrices, encoding, rows=5))(input=inputs)
    for number, matrix in enumerate(matrices):
        expected = inputs @ matrix.T
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(outputs[f"output{number}"], expected, atol=atol)


@pytest.mark.parametrize("delegate", [True, False])
@pytest.mark.parametrize("int8", [True, False])
@pytest.mark.parametrize("depthwise", [True, False])
def test_convolutions_are_tensorflows(interpreter, depthwise, int8, delegate):
    rng = np.random.default_rng(2)
    image = rng.normal(size=(1, 7, 7, 8)).astype(np.float32)
    filters = rng.normal(size=(1 if depthwise else 4, 3, 3, 8)).astype(np.float32)
    content = one_operator.convolution(filters, 7, depthwise=depthwise, int8=int8)
    reference = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
    expected = reference(image, filters.transpose(1, 2, 3, 0), [1] * 4, "SAME").numpy()
    given = interpreter(content, delegate)(input=image)["output0"]
    np.testing.assert_allclose(given, expected, atol=(0.03 if int8 else 1e-5) * np.abs(expected).max())
