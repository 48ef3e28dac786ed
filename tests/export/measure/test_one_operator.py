"""Files of one kind of operation, on the runtime against NumPy and TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.measure import one_operator


@pytest.mark.parametrize("kept", [0.1, 1.0])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_a_share_of_blocks_is_kept(kept, block):
    matrix = one_operator.sparse_matrix(np.random.default_rng(0), 200, 160, kept, block)
    blocks = (matrix != 0).reshape(200, -1, block)
    assert (blocks.all(axis=2) == blocks.any(axis=2)).all()
    assert blocks.any(axis=2).mean() == pytest.approx(kept, abs=0.02)


@pytest.mark.parametrize(
    ("encoding", "block", "tolerance"),
    [
        (sparse.DENSE, 1, 1e-5),
        (sparse.CSR, 1, 1e-5),
        (sparse.BLOCK4, 4, 1e-5),
        (sparse.BLOCK16, 16, 0.02),
        (sparse.INT8, 1, 0.02),
        (sparse.SPARSE16, 1, 1e-2),
    ],
)
def test_each_operation_multiplies_its_own_matrix(interpreter, encoding, block, tolerance):
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
def test_convolutions_are_tensorflows(interpreter, int8, delegate):
    rng = np.random.default_rng(2)
    image = rng.normal(size=(1, 7, 7, 8)).astype(np.float32)
    filters = rng.normal(size=(4, 3, 3, 8)).astype(np.float32)
    content = one_operator.convolutions([filters], 7, int8=int8)
    expected = tf.nn.conv2d(image, filters.transpose(1, 2, 3, 0), 1, "SAME").numpy()
    given = interpreter(content, delegate)(input=image)["output"]
    np.testing.assert_allclose(given, expected, atol=(0.03 if int8 else 1e-5) * np.abs(expected).max())


@pytest.mark.parametrize("int8", [True, False])
def test_depthwise_convolutions_are_tensorflows(interpreter, int8):
    rng = np.random.default_rng(3)
    image = rng.normal(size=(1, 6, 6, 16)).astype(np.float32)
    filters = rng.normal(size=(1, 3, 3, 16)).astype(np.float32)
    content = one_operator.convolutions([filters], 6, depthwise=True, int8=int8)
    expected = tf.nn.depthwise_conv2d(image, filters.transpose(1, 2, 3, 0), [1] * 4, "SAME").numpy()
    given = interpreter(content)(input=image)["output"]
    np.testing.assert_allclose(given, expected, atol=(0.03 if int8 else 1e-5) * np.abs(expected).max())
