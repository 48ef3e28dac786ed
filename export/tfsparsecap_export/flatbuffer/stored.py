"""How a constant is stored in a .tflite file: its type, zeros, sparsity and size."""

import dataclasses
import math
import re
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from tfsparsecap_export.flatbuffer.model_file import schema

#: What constants are for.
FULLY_CONNECTED, CONVOLUTION, TABLE, OTHER = "fully connected", "convolution", "table", "other"

_CHUNK = 1 << 22
_PACKED_BITS = {"int4": 4, "uint4": 4, "int2": 2}
_TYPE_NAMES = {
    value: name.lower() for name, value in vars(schema.TensorType).items() if isinstance(value, int)
}
# Types of numbers of whole bytes; ml_dtypes defines those that NumPy lacks.
_NUMPY = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in _TYPE_NAMES.values()
    if re.fullmatch(r"(bool|u?int|b?float|complex)\d*(_\w+)?", name) and name not in _PACKED_BITS
}


@dataclasses.dataclass(frozen=True)
class Constant:
    """One constant of a file. Tensors that share its data are one constant.

    Attributes:
        name: name of its tensor.
        role: "fully connected", "convolution", "matrix product", "recurrent", "table" or "other".
        shape: as in the file, [outputs, inputs] for a fully connected layer.
        dtype: type of the stored values.
        stored: "float32", "float16", "int8", "int8 per channel", …; for sparse weights that an operator reads
            directly "csr", "1x4", "int8 1x16", …; for others "sparse float16", ….
        behind: operators that expand it before others read it: "DENSIFY", "DEQUANTIZE" or both.
        sparse: whether zeros are left out of the file.
        block: number of neighbouring values that are stored or left out together, 1 for single values.
        weights: number of values, including zeros.
        nonzeros: number of values that are not zero.
        value_bytes, index_bytes, scale_bytes: sizes in the file. Indices or scales that several constants
            share count for the first one, and zero points that are all 0 for none: layers share them.
        in_loop: whether it is read inside a loop, that is at each time step.
        problem: what is wrong with it, or "".
        buffers: indices of its buffers in the file.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    stored: str
    behind: tuple[str, ...]
    sparse: bool
    block: int
    weights: int
    nonzeros: int
    value_bytes: int
    index_bytes: int
    scale_bytes: int
    in_loop: bool
    problem: str
    buffers: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Values, indices and scales."""
        return self.value_bytes + self.index_bytes + self.scale_bytes

    @property
    def sparsity(self) -> float:
        """Fraction of zeros."""
        return 1 - self.nonzeros / self.weights if self.weights else 0.0


def decoded_text(text: bytes | str | None) -> str:
    """Text of a file, safe for a terminal: unprintable characters are replaced."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text or "")


def type_name(tensor: schema.TensorT) -> str:
    """`"float32"`, `"int8"`, … of a tensor."""
    return _TYPE_NAMES.get(tensor.type, f"type {tensor.type}")


def shape_of(tensor: schema.TensorT) -> tuple[int, ...]:
    """The shape of a tensor; raises ValueError if a size is negative."""
    shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"{decoded_text(tensor.name)} has the shape {list(shape)}")
    return shape


def describe(
    copies: list[schema.TensorT],
    data: np.ndarray,
    *,
    role: str,
    behind: tuple[str, ...],
    in_loop: bool,
    counted: set[tuple[int, int]],
) -> Constant:
    """Describes a constant.

    Args:
        copies: the tensors that share it.
        data: its bytes, uint8.
        role, behind, in_loop: as in `Constant`.
        counted: address and size of the index and scale vectors that earlier constants have counted; those
            of this one are added.
    """
    tensor, quantizations = copies[0], [copy.quantization for copy in copies if copy.quantization]
    dtype, shape, sparsity = type_name(tensor), shape_of(tensor), tensor.sparsity
    weights, blocks, problem = math.prod(shape), "", ""
    block, count = 1, weights
    if sparsity is None:
        per_channel = tensor.quantization and np.size(tensor.quantization.scale) > 1
        stored = f"{dtype} per channel" if per_channel else dtype
        if (dtype in _NUMPY or dtype in _PACKED_BITS) and data.size != _bytes_of(weights, dtype):
            problem = f"{data.size:,} bytes for values of {_bytes_of(weights, dtype):,}"
    else:
        count = data.size // max(1, _bytes_of(1, dtype))
        try:
            block_shape = _block_shape(shape, sparsity, count)
            block = math.prod(block_shape)
            blocks = "x".join(map(str, block_shape)) if block > 1 else ""
        except ValueError as error:
            problem = str(error)
        if behind:
            stored = f"sparse {dtype} {blocks}".rstrip()
        else:
            stored = (blocks or "csr") if dtype == "float32" else f"{dtype} {blocks or 'csr'}"
    if not problem and role != OTHER and not all(_is_finite(chunk) for chunk in _chunks(data, dtype)):
        problem = "NaN or infinity among its values"

    def size(vectors):
        """Bytes of the vectors that have not been counted yet."""
        places = {
            (vector.__array_interface__["data"][0], vector.nbytes)
            for vector in vectors
            if isinstance(vector, np.ndarray) and vector.size
        }
        total = sum(nbytes for _, nbytes in places - counted)
        counted.update(places)
        return total

    return Constant(
        name=decoded_text(tensor.name),
        role=role,
        shape=shape,
        dtype=dtype,
        stored=stored,
        behind=behind,
        sparse=sparsity is not None,
        block=block,
        weights=weights,
        nonzeros=min(weights, _count_nonzeros(data, dtype, count, tensor.quantization)),
        value_bytes=data.size,
        index_bytes=size(vector for copy in copies for vector in _index_vectors(copy.sparsity)),
        scale_bytes=size(vector for quantization in quantizations for vector in _scale_vectors(quantization)),
        in_loop=in_loop,
        problem=problem,
        buffers=tuple(sorted({copy.buffer for copy in copies})),
    )


def most_blocks_a_row(sparsity: schema.SparsityParametersT) -> int:
    """Largest number of stored blocks in a row of a sparse matrix."""
    dimensions = sparsity.dimMetadata or []
    segments = _values(dimensions[1].arraySegments) if len(dimensions) > 1 else np.empty(0, np.int32)
    return int(np.diff(segments.astype(np.int64)).max(initial=0))


def _block_shape(shape: tuple[int, ...], sparsity: schema.SparsityParametersT, count: int) -> list[int]:
    """Size of the blocks along each dimension.

    Args:
        shape: of the constant.
        sparsity: positions of its stored values.
        count: number of stored values.

    Raises:
        ValueError: the sparsity does not fit the shape, or the number of stored values.
    """
    order, blocked = (
        [] if vector is None else vector.tolist() for vector in (sparsity.traversalOrder, sparsity.blockMap)
    )
    dimensions, rank = sparsity.dimMetadata or [], len(shape)
    if (
        sorted(order) != list(range(rank + len(blocked)))
        or len(dimensions) != len(order)
        or any(not 0 <= dimension < rank for dimension in blocked)
    ):
        raise ValueError("its sparsity has other dimensions")
    blocks = [1] * rank
    for position, dimension in zip(order, dimensions, strict=True):
        if position >= rank:
            along, size = blocked[position - rank], int(dimension.denseSize)
            if size < 1 or shape[along] % (blocks[along] * size):
                raise ValueError(f"blocks of {size} in rows of {shape[along]}")
            blocks[along] *= size
    places = 1
    for position, dimension in zip(order, dimensions, strict=True):
        size = int(dimension.denseSize) if position >= rank else shape[position] // blocks[position]
        if dimension.format != schema.DimensionType.SPARSE_CSR:
            if dimension.denseSize != size:
                raise ValueError(f"a dimension of {size} stored as one of {dimension.denseSize}")
            places *= size
            continue
        segments, indices = _values(dimension.arraySegments), _values(dimension.arrayIndices)
        if segments.size != places + 1 or segments[0] != 0 or segments[-1] != indices.size:
            raise ValueError("rows and indices that do not match")
        outside = indices.size and not 0 <= indices.min() <= indices.max() < size
        if outside or (segments[1:] < segments[:-1]).any():
            raise ValueError("indices outside of its shape")
        places = indices.size
    if places != count:
        raise ValueError(f"{count:,} values for indices of {places:,}")
    return blocks


def _values(vector) -> np.ndarray:
    """The numbers of one of the schema's three kinds of index vectors."""
    values = None if vector is None else vector.values
    return np.empty(0, np.int32) if values is None else values


def _index_vectors(sparsity: schema.SparsityParametersT | None) -> list[np.ndarray]:
    dimensions = [] if sparsity is None else sparsity.dimMetadata or []
    return [_values(vector) for d in dimensions for vector in (d.arraySegments, d.arrayIndices)]


def _scale_vectors(quantization: schema.QuantizationParametersT) -> list[np.ndarray]:
    """The scales, and the zero points unless all are 0."""
    zero_points = quantization.zeroPoint
    return [quantization.scale, zero_points] if np.any(zero_points) else [quantization.scale]


def _bytes_of(count: int, dtype: str) -> int:
    """Bytes of `count` values; values smaller than a byte are padded to whole bytes."""
    bits = _PACKED_BITS.get(dtype, 8 * _NUMPY.get(dtype, np.dtype(np.uint8)).itemsize)
    return -(-count * bits // 8)


def _chunks(data: np.ndarray, dtype: str) -> Iterator[np.ndarray]:
    """A constant as NumPy arrays, in parts so that checking it takes little memory."""
    kind = _NUMPY.get(dtype, np.dtype(np.uint8))
    values = data[: data.size // kind.itemsize * kind.itemsize].view(kind)
    return (values[start : start + _CHUNK] for start in range(0, values.size, _CHUNK))


def _count_nonzeros(data: np.ndarray, dtype: str, count: int, quantization) -> int:
    """Number of values that do not represent zero, which in quantized constants is the zero point.

    All `count` values count if they are not numbers, such as strings.
    """
    if dtype in _PACKED_BITS:
        bits = _PACKED_BITS[dtype]
        # Half bytes, or quarters: each is shifted to the low end.
        parts = (
            chunk >> shift & (1 << bits) - 1 for chunk in _chunks(data, dtype) for shift in range(0, 8, bits)
        )
    elif dtype in _NUMPY:
        # A zero point per channel is always 0: TFLite's kernels support no other value.
        points = None if quantization is None else quantization.zeroPoint
        zero = points.item() if points is not None and np.size(points) == 1 else 0
        parts = (chunk if zero == 0 else chunk != zero for chunk in _chunks(data, dtype))
    else:
        return count
    return sum(int(np.count_nonzero(part)) for part in parts)


def _is_finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "biu" or bool(np.isfinite(values).all())
