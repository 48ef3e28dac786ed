"""How a weight matrix is laid out in a .tflite file: compressed rows, blocks, int8, float16.

Weights are in TFLite's layout throughout this package: [outputs, inputs] for a fully connected layer (Keras's
kernel transposed), [rows, columns] for an embedding table.
"""

import dataclasses

import numpy as np

from tfsparsecap_export.flatbuffer.model_file import SharedQuantization, SharedSparsity, schema

#: Limits of TFLite's int8 1x16 kernel: it keeps block counts and block indices in single bytes.
BLOCK16_MAX_INPUTS = 4096
BLOCK16_MAX_BLOCKS_A_ROW = 255

_INDEX_VECTORS = (
    (np.uint8, schema.SparseIndexVector.Uint8Vector, schema.Uint8VectorT),
    (np.uint16, schema.SparseIndexVector.Uint16Vector, schema.Uint16VectorT),
    (np.int32, schema.SparseIndexVector.Int32Vector, schema.Int32VectorT),
)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A constant as it is stored.

    Attributes:
        values: one-dimensional; all weights of a dense encoding, the kept ones in row order of a sparse one.
        tensor_type: the schema's `TensorType`.
        sparsity: where the kept values belong, or None for a dense encoding.
        quantization: the scales of int8 values, or None.
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
    """Whether no weight is beyond the range of float16."""
    return bool(np.abs(weights).max(initial=0) <= np.finfo(np.float16).max)


def round_to_float16(weights: np.ndarray) -> np.ndarray:
    """float32 weights with values that float16 holds: they compress better, in an APK for example."""
    return weights.astype(np.float16).astype(np.float32)


def dense16(weights: np.ndarray) -> Encoded:
    """All weights as float16."""
    return Encoded(weights.astype(np.float16).reshape(-1), schema.TensorType.FLOAT16)


def sparse16(weights: np.ndarray) -> Encoded:
    """The non-zero weights as float16, in compressed rows."""
    sparsity, values = compress(weights.astype(np.float16), 1)
    return Encoded(values, schema.TensorType.FLOAT16, sparsity)


def sparse32(weights: np.ndarray, block: int) -> Encoded:
    """The kept blocks of `block` weights as float32: 1 is compressed rows, 4 the blocks of the 1x4 kernel."""
    sparsity, values = compress(weights, block)
    return Encoded(values, schema.TensorType.FLOAT32, sparsity)


def blocks_int8(weights: np.ndarray) -> Encoded:
    """The kept 1x16 blocks as int8, one scale a row."""
    quantized, quantization = quantize(weights, by_row=True)
    sparsity, values = compress(quantized, 16)
    return Encoded(values, schema.TensorType.INT8, sparsity, quantization)


def dense_int8(weights: np.ndarray) -> Encoded:
    """All weights as int8 with one scale: what every TFLite since 2.3 multiplies with float inputs."""
    quantized, quantization = quantize(weights, by_row=False)
    return Encoded(quantized.reshape(-1), schema.TensorType.INT8, quantization=quantization)


def sparse_int8(weights: np.ndarray, block: int) -> Encoded:
    """The kept blocks of `block` weights as int8 with one scale for all; 1 is compressed rows."""
    quantized, quantization = quantize(weights, by_row=False)
    sparsity, values = compress(quantized, block)
    return Encoded(values, schema.TensorType.INT8, sparsity, quantization)


def compress(weights: np.ndarray, block: int) -> tuple[schema.SparsityParametersT, np.ndarray]:
    """Dense rows of sparse blocks.

    Args:
        weights: [rows, columns], any dtype; `columns` a multiple of `block`.
        block: neighbouring columns that are kept or dropped together.

    Returns:
        The schema's sparsity parameters and the kept values, one-dimensional, in row order.
    """
    rows, columns = weights.shape
    blocks = weights.reshape(rows, columns // block, block)
    kept = (blocks != 0).any(axis=2)
    if not kept.any():
        kept[0, 0] = True  # a constant without data is no constant to the runtime
    segments = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    row, column = np.nonzero(kept)
    sparsity = SharedSparsity()
    sparsity.dimMetadata = [_dense_dimension(rows), _sparse_dimension(segments, column)]
    sparsity.traversalOrder = np.arange(2, dtype=np.int32)
    if block > 1:
        sparsity.dimMetadata.append(_dense_dimension(block))
        sparsity.traversalOrder = np.arange(3, dtype=np.int32)
        sparsity.blockMap = np.array([1], np.int32)
    return sparsity, blocks[row, column].reshape(-1)


def quantize(weights: np.ndarray, by_row: bool) -> tuple[np.ndarray, schema.QuantizationParametersT]:
    """Symmetric int8, -127 to 127; zeros stay zeros.

    Returns:
        int8 weights of the same shape, and the schema's quantization with one scale a row or a single one.
    """
    largest = np.abs(weights).max(axis=1 if by_row else None, keepdims=True)
    scale = np.where(largest == 0, 1, largest / 127).astype(np.float32)
    quantization = SharedQuantization()
    quantization.scale = scale.reshape(-1)
    quantization.zeroPoint = np.zeros(scale.size, np.int64)
    quantization.quantizedDimension = 0
    return np.clip(np.round(weights / scale), -127, 127).astype(np.int8), quantization


def index_bytes(largest: int) -> int:
    """Bytes of the smallest index type that holds `largest`."""
    return np.dtype(_index_vector(largest)[0]).itemsize


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
