"""How a weight matrix is stored in a .tflite file: compressed rows, blocks, int8, float16.

In the exporter, weights have TFLite's layout: [outputs, inputs] for a fully connected layer (the transpose of
the Keras kernel), [rows, columns] for an embedding table.
"""

import dataclasses

import numpy as np

from tfsparsecap_export.flatbuffer.model_file import SharedQuantization, SharedSparsity, schema

#: Limits of TFLite's int8 1x16 kernel, which stores block counts and block indices in single bytes.
BLOCK16_MAX_INPUTS = 4096
BLOCK16_MAX_BLOCKS_PER_ROW = 255

_INDEX_VECTORS = (
    (np.uint8, schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT),
    (np.uint16, schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT),
    (np.int32, schema.SparseIndexVector.Int32Vector, schema.Int32VectorT),
)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A constant as it is stored.

    Attributes:
        values: one-dimensional; all weights of a dense encoding, or the stored ones of a sparse encoding in
            row order.
        tensor_type: the schema's `TensorType`.
        sparsity: positions of the stored values, or None for a dense encoding.
        quantization: scales of int8 values, or None.
    """

    values: np.ndarray
    tensor_type: int
    sparsity: schema.SparsityParametersT | None = None
    quantization: schema.QuantizationParametersT | None = None

    @property
    def bytes(self) -> int:
        """Size in the file: values, indices and scales."""
        size = self.values.nbytes
        if self.sparsity is not None:
            size += sum(
                vector.values.nbytes
                for dimension in self.sparsity.dimMetadata
                for vector in (dimension.arraySegments, dimension.arrayIndices)
                if vector is not None
            )
        if self.quantization is not None:
            size += self.quantization.scale.nbytes + self.quantization.zeroPoint.nbytes
        return size


def fits_float16(weights: np.ndarray) -> bool:
    """Whether all weights are in the range of float16."""
    return bool(np.abs(weights).max(initial=0) <= np.finfo(np.float16).max)


def round_to_float16(weights: np.ndarray) -> np.ndarray:
    """float32 weights rounded to float16 values, which compress better, for example in an APK."""
    return weights.astype(np.float16).astype(np.float32)


def dense16(weights: np.ndarray) -> Encoded:
    """All weights as float16."""
    return Encoded(weights.astype(np.float16).reshape(-1), schema.TensorType.FLOAT16)


def sparse16(weights: np.ndarray) -> Encoded:
    """The non-zero weights as float16 in compressed rows."""
    sparsity, values = compress(weights.astype(np.float16), 1)
    return Encoded(values, schema.TensorType.FLOAT16, sparsity)


def sparse32(weights: np.ndarray, block: int) -> Encoded:
    """The non-zero blocks of `block` weights as float32; a block size of 1 is compressed rows."""
    sparsity, values = compress(weights, block)
    return Encoded(values, schema.TensorType.FLOAT32, sparsity)


def dense_int8(weights: np.ndarray) -> Encoded:
    """All weights as int8 with one scale, which TFLite has multiplied with float inputs since version 2.3."""
    quantized, quantization = quantize(weights, by_row=False)
    return Encoded(quantized.reshape(-1), schema.TensorType.INT8, quantization=quantization)


def sparse_int8(weights: np.ndarray, block: int, by_row: bool = False) -> Encoded:
    """The non-zero blocks of `block` weights as int8, with one scale or one per row."""
    quantized, quantization = quantize(weights, by_row)
    sparsity, values = compress(quantized, block)
    return Encoded(values, schema.TensorType.INT8, sparsity, quantization)


def blocks_int8(weights: np.ndarray) -> Encoded:
    """The non-zero 1x16 blocks as int8 with one scale per row, for TFLite's int8 1x16 kernel."""
    return sparse_int8(weights, 16, by_row=True)


def compress(weights: np.ndarray, block: int) -> tuple[schema.SparsityParametersT, np.ndarray]:
    """Stores the non-zero blocks of each row.

    Args:
        weights: [rows, columns], any dtype; `columns` is a multiple of `block`.
        block: number of neighbouring columns that form a block.

    Returns:
        The schema's sparsity parameters, and the stored values, one-dimensional, in row order.
    """
    rows, columns = weights.shape
    blocks = weights.reshape(rows, columns // block, block)
    stored = (blocks != 0).any(axis=2)
    if not stored.any():
        stored[0, 0] = True  # the runtime does not accept constants without data
    segments = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    row, column = np.nonzero(stored)
    sparsity = SharedSparsity()
    sparsity.dimMetadata = [_dense_dimension(rows), _sparse_dimension(segments, column)]
    sparsity.traversalOrder = np.arange(2, dtype=np.int32)
    if block > 1:
        sparsity.dimMetadata.append(_dense_dimension(block))
        sparsity.traversalOrder = np.arange(3, dtype=np.int32)
        sparsity.blockMap = np.array([1], np.int32)
    return sparsity, blocks[row, column].reshape(-1)


def quantize(weights: np.ndarray, by_row: bool) -> tuple[np.ndarray, schema.QuantizationParametersT]:
    """Symmetric quantization to int8, from -127 to 127; zeros stay zeros.

    Returns:
        int8 weights of the same shape, and the schema's quantization with one scale per row or a single one.
    """
    largest = np.abs(weights).max(axis=1 if by_row else None, keepdims=True)
    scale = np.where(largest == 0, 1, largest / 127).astype(np.float32)
    quantization = SharedQuantization()
    quantization.scale = scale.reshape(-1)
    quantization.zeroPoint = np.zeros(scale.size, np.int64)
    quantization.quantizedDimension = 0
    return np.clip(np.round(weights / scale), -127, 127).astype(np.int8), quantization


def _index_vector(largest: int):
    return next(kind for kind in _INDEX_VECTORS if largest <= np.iinfo(kind[0]).max)


def _dense_dimension(size: int) -> schema.DimensionMetadataT:
    dimension = schema.DimensionMetadataT()
    dimension.format, dimension.denseSize = schema.DimensionType.DENSE, size
    return dimension


def _sparse_dimension(segments: np.ndarray, indices: np.ndarray) -> schema.DimensionMetadataT:
    dimension = schema.DimensionMetadataT()
    dimension.format = schema.DimensionType.SPARSE_CSR
    dimension.arraySegmentsType, dimension.arraySegments = _vector(segments)
    dimension.arrayIndicesType, dimension.arrayIndices = _vector(indices)
    return dimension


def _vector(numbers: np.ndarray):
    dtype, vector_type, vector = _index_vector(int(numbers.max(initial=0)))
    return vector_type, vector(numbers.astype(dtype))
