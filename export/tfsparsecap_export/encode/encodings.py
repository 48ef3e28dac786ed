"""How a weight matrix is stored in a .tflite file: compressed rows, blocks, int8, float16.

In the exporter, weights have TFLite's layout: [outputs, inputs] for a fully connected layer (the transpose of
the Keras kernel), [rows, columns] for an embedding table.
"""

import dataclasses

import numpy as np

from tfsparsecap.model_summary.storage import TABLE_BLOCKS
from tfsparsecap_export.flatbuffer.model_file import SharedQuantization, SharedSparsity, schema, tensor_type

#: The encodings of a constant, see `ENCODINGS`.
DENSE, FLOAT16, SPARSE32, SPARSE16 = "float32", "float16", "sparse float32", "sparse float16"
CSR, BLOCK4, BLOCK16, INT8, SPARSE_INT8 = "csr", "1x4", "int8 1x16", "int8", "sparse int8"

#: Limits of TFLite's int8 1x16 kernel, which stores block counts and block indices in single bytes.
BLOCK16_MAX_INPUTS = 4096
BLOCK16_MAX_BLOCKS_PER_ROW = 255


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How an encoding stores a matrix.

    Attributes:
        dtype: type of the stored values.
        block: number of neighbouring weights of a row that are stored or left out together; None if all
            weights are stored.
        multiplied: whether FULLY_CONNECTED multiplies the stored weights. If not, the runtime expands them.
    """

    dtype: type[np.generic]
    block: int | None = None
    multiplied: bool = False

    @property
    def is_float(self) -> bool:
        """Whether the values are floating point numbers, so that the outputs stay nearly the same."""
        return issubclass(self.dtype, np.floating)

    def blocks(self, columns: int, *, table: bool) -> list[int | None]:
        """Block sizes for a matrix with this number of columns, of which the one with the smallest result
        is used: several for tables only, because XNNPACK does not expand blocks in layers."""
        if self.block is None or self.multiplied or not table:
            return [self.block]
        return [block for block in TABLE_BLOCKS if columns % block == 0]


#: The runtime expands `FLOAT16`, `SPARSE32` and `SPARSE_INT8` once, when it loads the file. It does the same
#: with `SPARSE16` in layers that XNNPACK runs, but runtimes before LiteRT expand it at every step of a loop.
#: No format uses `SPARSE16` for tables: with XNNPACK, it is not expanded at all, and GATHER returns garbage.
#: Tables have one scale in `INT8` and `SPARSE_INT8`, layers one for each output.
ENCODINGS = {
    DENSE: Encoding(np.float32),
    FLOAT16: Encoding(np.float16),
    INT8: Encoding(np.int8),
    SPARSE32: Encoding(np.float32, 1),
    SPARSE16: Encoding(np.float16, 1),
    SPARSE_INT8: Encoding(np.int8, 1),
    CSR: Encoding(np.float32, 1, multiplied=True),
    BLOCK4: Encoding(np.float32, 4, multiplied=True),
    BLOCK16: Encoding(np.int8, 16, multiplied=True),
}


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A constant as it is stored.

    Attributes:
        values: one-dimensional; all weights of a dense encoding, or the stored ones of a sparse encoding in
            row order.
        sparsity: positions of the stored values, or None for a dense encoding.
        quantization: scales of int8 values, or None.
    """

    values: np.ndarray
    sparsity: schema.SparsityParametersT | None = None
    quantization: schema.QuantizationParametersT | None = None

    @property
    def tensor_type(self) -> int:
        """The schema's `TensorType`."""
        return tensor_type(self.values.dtype)

    @property
    def bytes(self) -> int:
        """Size in the file: values, indices and scales. Layers share their zero points, which are all 0."""
        arrays = [self.values]
        if self.sparsity is not None:
            for dimension in self.sparsity.dimMetadata:
                if dimension.format == schema.DimensionType.SPARSE_CSR:
                    arrays += [dimension.arraySegments.values, dimension.arrayIndices.values]
        if self.quantization is not None:
            arrays.append(self.quantization.scale)
        return sum(array.nbytes for array in arrays)


def scale_per_row(name: str, table: bool) -> bool:
    """Whether int8 values of an encoding have one scale per row instead of a single one."""
    return ENCODINGS[name].dtype == np.int8 and not table


def encode(name: str, weights: np.ndarray, *, table: bool = False) -> Encoded:
    """Encodes a matrix.

    Args:
        name: one of `ENCODINGS`.
        weights: float32 [rows, columns]; a convolution has several axes of rows.
        table: whether the matrix is a table, which is stored in the block size with the smallest result.
    """
    encoding = ENCODINGS[name]
    candidates = (
        store(weights, encoding.dtype, block, scale_per_row=scale_per_row(name, table))
        for block in encoding.blocks(weights.shape[-1], table=table)
    )
    return min(candidates, key=lambda encoded: encoded.bytes)


def store(
    weights: np.ndarray, dtype: type[np.generic], block: int | None = None, *, scale_per_row: bool = False
) -> Encoded:
    """Stores a matrix in any type and block size, including those that no kernel supports.

    Args:
        weights: float32 [rows, columns].
        dtype: float32, float16 or int8.
        block: as in `Encoding`.
        scale_per_row: whether int8 values have one scale per row instead of a single one.
    """
    sparsity = scales = None
    if dtype == np.int8:
        values, scales = quantized_int8(weights, scale_per_row)
    else:
        values = weights.astype(dtype)
    if block is not None:
        sparsity, values = compress(values, block)
    return Encoded(values.reshape(-1), sparsity, scales)


def fits_float16(weights: np.ndarray) -> bool:
    """Whether all weights are in the range of float16."""
    return bool(np.abs(weights).max(initial=0) <= np.finfo(np.float16).max)


def round_to_float16(weights: np.ndarray) -> np.ndarray:
    """float32 weights rounded to float16 values, which compress better, for example in an APK."""
    return weights.astype(np.float16).astype(np.float32)


def compress(weights: np.ndarray, block: int) -> tuple[schema.SparsityParametersT, np.ndarray]:
    """Stores the non-zero blocks of each row.

    Args:
        weights: [rows, columns], any dtype; `columns` is a multiple of `block`. A convolution has several
            axes of rows: [outputs, height, width, inputs], or [1, height, width, outputs] if depthwise.
        block: number of neighbouring columns that form a block; 1 if there are several axes of rows.

    Returns:
        The schema's sparsity parameters, and the stored values, one-dimensional, in row order.
    """
    *axes, columns = weights.shape
    blocks = weights.reshape(-1, columns // block, block)
    stored = (blocks != 0).any(axis=2)
    if not stored.any():
        stored[0, 0] = True  # the runtime does not accept constants without data
    segments = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    row, column = np.nonzero(stored)
    sparsity = SharedSparsity()
    sparsity.dimMetadata = [*map(_dimension, axes), _dimension(rows=segments, columns=column)]
    sparsity.traversalOrder = np.arange(weights.ndim, dtype=np.int32)
    if block > 1:
        sparsity.dimMetadata.append(_dimension(block))
        sparsity.traversalOrder = np.arange(3, dtype=np.int32)
        sparsity.blockMap = np.array([1], np.int32)
    return sparsity, blocks[row, column].reshape(-1)


def quantized_int8(weights: np.ndarray, by_row: bool) -> tuple[np.ndarray, schema.QuantizationParametersT]:
    """Symmetric quantization to int8, from -127 to 127; zeros stay zeros.

    Returns:
        int8 weights of the same shape, and the schema's quantization with one scale per row or a single one.
    """
    scale = int8_scales(np.abs(weights).max(axis=1 if by_row else None, keepdims=True))
    return np.clip(np.round(weights / scale), -127, 127).astype(np.int8), quantization(scale)


def int8_scales(largest: np.ndarray) -> np.ndarray:
    """float32 scales for the largest absolute values; 1 for those so small that kernels refuse the scale."""
    return np.where(largest / 127 < np.finfo(np.float32).tiny, 1, largest / 127).astype(np.float32)


def quantization(scales: np.ndarray, axis: int = 0) -> SharedQuantization:
    """The schema's quantization of int8 values with these scales, float32 of any shape, along an axis."""
    parameters = SharedQuantization()
    parameters.scale, parameters.zeroPoint = scales.reshape(-1), np.zeros(scales.size, np.int64)
    parameters.quantizedDimension = axis
    return parameters


def _dimension(size: int = 0, rows: np.ndarray | None = None, columns: np.ndarray | None = None):
    """A dense dimension of a size, or a sparse one: first block of each row, and column of each block."""
    dimension = schema.DimensionMetadataT()
    dimension.format, dimension.denseSize = schema.DimensionType.DENSE, size
    if rows is not None and columns is not None:
        dimension.format = schema.DimensionType.SPARSE_CSR
        dimension.arraySegmentsType, dimension.arraySegments = _index_vector(rows)
        dimension.arrayIndicesType, dimension.arrayIndices = _index_vector(columns)
    return dimension


def _index_vector(numbers: np.ndarray):
    """The schema's type of a vector, and the vector, in the smallest integer type that it has."""
    largest = int(numbers.max(initial=0))
    kind, dtype = next(
        (kind, dtype)
        for kind, dtype in (("Uint8Vector", np.uint8), ("Uint16Vector", np.uint16), ("Int32Vector", np.int32))
        if largest <= np.iinfo(dtype).max
    )
    return getattr(schema.SparseIndexVector, kind), getattr(schema, f"{kind}T")(numbers.astype(dtype))
