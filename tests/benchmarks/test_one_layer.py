"""Files of one layer on the runtime, compared with NumPy."""

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from tfsparsecap_export.encode import encodings

from benchmarks import one_layer


@pytest.mark.parametrize("kept", [0.1, 1.0])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_random_zeros_fill_whole_blocks_and_leave_the_given_fraction(kept, block):
    matrix = one_layer.sparse_matrix(np.random.default_rng(0), 200, 160, kept, block)
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
def test_each_operation_multiplies_with_its_own_matrix(encoding, block, tolerance):
    rng = np.random.default_rng(1)
    matrices = [one_layer.sparse_matrix(rng, 24, 64, 0.3, block) for _ in range(3)]
    inputs = rng.normal(size=(5, 64)).astype(np.float32)
    file = Interpreter(model_content=one_layer.fully_connected(matrices, encoding, rows=5))
    outputs = file.get_signature_runner()(input=inputs)
    for number, matrix in enumerate(matrices):
        expected = inputs @ matrix.T
        atol = tolerance * np.abs(expected).max()
        np.testing.assert_allclose(outputs[f"output{number}"], expected, atol=atol)
