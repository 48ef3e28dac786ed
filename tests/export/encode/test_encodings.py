"""Encodings, decoded by the definition in TFLite's schema, give the original matrix."""

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer.model_file import schema


def decoded(encoded, shape):
    """The dense matrix, by the definition in TFLite's schema (SparsityParameters), one number at a time."""
    values = encoded.values.astype(np.float64)
    if encoded.quantization is not None:
        scale, zero = encoded.quantization.scale, encoded.quantization.zeroPoint
        assert not np.any(zero)
    if encoded.sparsity is None:
        dense = values.reshape(shape)
    else:
        outer, inner, *block = encoded.sparsity.dimMetadata
        width = block[0].denseSize if block else 1
        assert list(encoded.sparsity.traversalOrder) == list(range(2 + len(block)))
        assert (list(encoded.sparsity.blockMap) == [1]) if block else encoded.sparsity.blockMap is None
        assert outer.format == schema.DimensionType.DENSE and outer.denseSize == shape[0]
        assert inner.format == schema.DimensionType.SPARSE_CSR
        segments, indices = inner.arraySegments.values, inner.arrayIndices.values
        dense, next_value = np.zeros(shape), 0
        for row in range(shape[0]):
            for position in range(segments[row], segments[row + 1]):
                for offset in range(width):
                    dense[row, int(indices[position]) * width + offset] = values[next_value]
                    next_value += 1
        assert next_value == len(values)
    if encoded.quantization is not None:
        dense = dense * (scale[:, None] if len(scale) > 1 else scale[0])
    return dense


def sparse_matrix(rows, columns, block, density, seed=0):
    rng = np.random.default_rng(seed)
    mask = np.repeat(rng.random((rows, columns // block)) < density, block, axis=1)
    return (rng.normal(size=(rows, columns)) * mask).astype(np.float32)


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("columns", [16, 256, 272, 1040])
def test_sparse_float32_is_exact(block, columns):
    weights = sparse_matrix(9, columns, block, 0.2)
    encoded = encodings.store(weights, np.float32, block)
    np.testing.assert_array_equal(decoded(encoded, weights.shape), weights)
    assert len(encoded.values) < 0.5 * weights.size


def test_a_convolution_has_a_row_for_each_place_of_an_output():
    weights = sparse_matrix(3 * 2 * 4, 300, 1, 0.2).reshape(3, 2, 4, 300)
    encoded = encodings.encode(encodings.SPARSE32, weights)
    *rows, last = encoded.sparsity.dimMetadata
    assert [(row.format, row.denseSize) for row in rows] == [
        (schema.DimensionType.DENSE, size) for size in (3, 2, 4)
    ]
    assert list(encoded.sparsity.traversalOrder) == [0, 1, 2, 3] and encoded.sparsity.blockMap is None
    place = np.repeat(np.arange(24), np.diff(last.arraySegments.values))
    dense = np.zeros((24, 300), np.float32)
    dense[place, last.arrayIndices.values] = encoded.values
    np.testing.assert_array_equal(dense.reshape(weights.shape), weights)
    assert encoded.bytes == len(encoded.values) * (4 + 2) + 25 * 2


def test_float16_encodings_round_values():
    weights = sparse_matrix(30, 64, 1, 0.3)
    rounded = weights.astype(np.float16)
    for encoding in (encodings.FLOAT16, encodings.SPARSE16):
        encoded = encodings.encode(encoding, weights)
        assert encoded.tensor_type == schema.TensorType.FLOAT16
        np.testing.assert_array_equal(decoded(encoded, weights.shape), rounded)


@pytest.mark.parametrize(("block", "scale_per_row"), [(16, True), (None, False), (1, False), (16, False)])
def test_int8_errors_are_at_most_half_a_step(block, scale_per_row):
    weights = sparse_matrix(30, 64, 16, 0.3)
    encoded = encodings.store(weights, np.int8, block, scale_per_row=scale_per_row)
    step = np.asarray(encoded.quantization.scale)
    error = np.abs(decoded(encoded, weights.shape) - weights)
    assert (error <= (step[:, None] if len(step) > 1 else step) * 0.5001).all()
    assert encoded.values.dtype == np.int8 and encoded.values.min() >= -127


def test_int8_blocks_have_one_scale_per_row():
    weights = sparse_matrix(5, 32, 16, 1.0)
    weights[2] = 0
    weights[3] *= 1000
    encoded = encodings.encode(encodings.BLOCK16, weights)
    np.testing.assert_allclose(
        encoded.quantization.scale,
        [*np.abs(weights[:2]).max(1) / 127, 1, *np.abs(weights[3:]).max(1) / 127],
        rtol=1e-6,
    )
    assert not decoded(encoded, weights.shape)[2].any()


def test_a_matrix_of_zeros_stores_one_value():
    # The runtime would treat a constant without data as a computed tensor.
    for encoding in (encodings.CSR, encodings.BLOCK16):
        encoded = encodings.encode(encoding, np.zeros((4, 32), np.float32))
        assert len(encoded.values) and not decoded(encoded, (4, 32)).any()


@pytest.mark.parametrize(
    ("columns", "dtype"), [(256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.int32)]
)
def test_indices_have_the_smallest_possible_type(columns, dtype):
    weights = np.zeros((2, columns), np.float32)
    weights[1, -1] = 1
    encoded = encodings.store(weights, np.float32, 1)
    assert encoded.sparsity.dimMetadata[1].arrayIndices.values.dtype == dtype
    assert decoded(encoded, weights.shape)[1, -1] == 1


def test_bytes_count_values_indices_and_scales():
    weights = np.zeros((3, 32), np.float32)
    weights[0, :16] = weights[2, 16:] = 1
    # Two blocks of 16 int8, 4 segments and 2 indices of a byte, 3 scales of 4 bytes.
    assert encodings.encode(encodings.BLOCK16, weights).bytes == 32 + 4 + 2 + 3 * 4


def test_a_published_sparse_matrix_is_encoded_exactly(fixtures):
    weights = np.load(fixtures / "updown_smp975" / "weights.npz", allow_pickle=False)
    for name, nonzeros in (("logit.weight", 27747), ("core.lang_lstm.weight_ih", 6783)):
        encoded = encodings.store(weights[name], np.float32, 1)
        assert len(encoded.values) == nonzeros
        np.testing.assert_array_equal(decoded(encoded, weights[name].shape), weights[name])
