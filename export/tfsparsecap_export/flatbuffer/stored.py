"""How a constant is stored in a .tflite file: its type, its zeros, its sparsity, its bytes."""

import dataclasses
import math

import numpy as np

from tfsparsecap_export.flatbuffer.model_file import schema

FULLY_CONNECTED, CONVOLUTION, OTHER = "fully connected", "convolution", "other"

_CHUNK = 1 << 22
_FLOATS = ("float64", "float32", "float16", "complex64")
_INTEGERS = ("bool", "int64", "uint64", "int32", "uint32", "int16", "uint16", "int8", "uint8")
_NUMPY = {name: np.dtype(name) for name in _FLOATS + _INTEGERS}
# NumPy lacks these; the bits without the sign say whether a value is zero.
_WITHOUT_SIGN = {"bfloat16": 0x7FFF, "float8_e4m3fn": 0x7F, "float8_e5m2": 0x7F}
_NUMPY |= {name: np.dtype(np.uint16 if bits > 0xFF else np.uint8) for name, bits in _WITHOUT_SIGN.items()}
_PACKED_BITS = {"int4": 4, "uint4": 4, "int2": 2}
_SPARSE = schema.DimensionType.SPARSE_CSR


@dataclasses.dataclass(frozen=True)
class Constant:
    """One constant of a file, however many tensors share it.

    Attributes:
        name: of its tensor.
        role: "fully connected", "convolution", "matrix product", "recurrent", "table" or "other".
        shape: as the file has it, [outputs, inputs] for a fully connected layer.
        dtype: of the stored values.
        stored: how: "float32", "float16", "int8", "int8 per channel", …; of sparse weights "csr", "1x4",
            "int8 1x16", … where an operator reads them as they are, "sparse float16", … where not.
        through: operators that make of it what others read: "DENSIFY", "DEQUANTIZE" or both.
        sparse: whether only a part of the values is in the file.
        block: neighbours that are kept or dropped together, 1 for single values.
        weights: values, zeros included.
        nonzeros: values that are not zero.
        value_bytes, index_bytes, scale_bytes: in the file; what is shared with another constant counts there.
        in_loop: whether it is read inside a loop, at every word of a caption.
        problem: what is wrong with it, or "".
        buffers: indices of its buffers in the file.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    stored: str
    through: tuple[str, ...]
    sparse: bool
    block: int
    weights: int
    nonzeros: int
    value_bytes: int
    index_bytes: int
    scale_bytes: int
    in_loop: bool
    problem: str
    buffers: frozenset[int]

    @property
    def bytes(self) -> int:
        """Values, indices and scales."""
        return self.value_bytes + self.index_bytes + self.scale_bytes

    @property
    def sparsity(self) -> float:
        """Share of zeros."""
        return 1 - self.nonzeros / self.weights if self.weights else 0.0


def readable(text: bytes | None) -> str:
    """Text of a file as a terminal can take it: what is not printable is replaced."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text or "")


def shape_of(tensor: schema.TensorT) -> tuple[int, ...]:
    """The shape of a tensor; raises ValueError where it has a size below 0."""
    shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"{readable(tensor.name)} has the shape {list(shape)}")
    return shape


def describe(
    copies: list[schema.TensorT],
    data: np.ndarray,
    *,
    dtype: str,
    role: str,
    through: tuple[str, ...],
    in_loop: bool,
    counted: set[tuple[int, int]],
) -> Constant:
    """What a constant is and how it is stored.

    Args:
        copies: the tensors that share it.
        data: uint8, its bytes.
        dtype: of its values.
        role, through, in_loop: as `Constant` has them.
        counted: place and size of the vectors of indices and scales that belong to a constant already; those
            of this one are added.
    """
    tensor = copies[0]
    shape, sparsity, quantization = shape_of(tensor), tensor.sparsity, tensor.quantization
    weights = math.prod(shape)
    zero_point = None if quantization is None else quantization.zeroPoint
    per_channel = quantization is not None and quantization.scale is not None and quantization.scale.size > 1
    kept = weights if sparsity is None else data.size // max(1, _bytes_of(1, dtype))
    block, label, problem = 1, "", ""
    if sparsity is not None:
        block, label, problem = _sparsity(shape, sparsity, kept)
        how = label or "csr"
        if through:
            how = f"sparse {dtype} {label}".rstrip()
        elif dtype != "float32":
            how = f"{dtype} {how}"
    else:
        how = f"{dtype} per channel" if per_channel else dtype
        if dtype in _NUMPY | _PACKED_BITS and data.size != _bytes_of(weights, dtype):
            problem = f"{data.size:,} bytes for values of {_bytes_of(weights, dtype):,}"
    nonzeros = min(weights, int(_nonzeros(data, dtype, kept, zero_point)))
    if not problem and role != OTHER and not _all_finite(data, dtype):
        problem = "NaN or infinity among its values"

    def size(vectors):
        """Bytes of vectors that have not been counted yet."""
        total = 0
        for vector in vectors:
            if isinstance(vector, np.ndarray) and vector.size:
                where = vector.__array_interface__["data"][0], vector.nbytes
                total += 0 if where in counted else vector.nbytes
                counted.add(where)
        return total

    return Constant(
        name=readable(tensor.name),
        role=role,
        shape=shape,
        dtype=dtype,
        stored=how,
        through=through,
        sparse=sparsity is not None,
        block=block,
        weights=weights,
        nonzeros=nonzeros,
        value_bytes=data.size,
        index_bytes=size(vector for copy in copies for vector in _index_vectors(copy.sparsity)),
        scale_bytes=size(
            vector
            for copy in copies
            if copy.quantization is not None
            for vector in (copy.quantization.scale, copy.quantization.zeroPoint)
        ),
        in_loop=in_loop,
        problem=problem,
        buffers=frozenset(copy.buffer for copy in copies),
    )


def most_blocks_a_row(sparsity: schema.SparsityParametersT) -> int:
    """Largest number of kept blocks in a row of a sparse matrix."""
    dimensions = sparsity.dimMetadata or []
    segments = _values(dimensions[1].arraySegments) if len(dimensions) > 1 else np.empty(0, np.int32)
    return int(np.diff(segments.astype(np.int64)).max(initial=0))


def _sparsity(
    shape: tuple[int, ...], sparsity: schema.SparsityParametersT, kept: int
) -> tuple[int, str, str]:
    """Size of the blocks, their shape ("1x16"; "" for single values), and what does not fit, if anything."""
    dimensions = sparsity.dimMetadata or []
    order = [] if sparsity.traversalOrder is None else sparsity.traversalOrder.tolist()
    blocked = [] if sparsity.blockMap is None else sparsity.blockMap.tolist()
    rank = len(shape)
    if (
        sorted(order) != list(range(rank + len(blocked)))
        or len(dimensions) != len(order)
        or any(not 0 <= dimension < rank for dimension in blocked)
    ):
        return 1, "", "a sparsity of other dimensions"
    sizes, block_sizes = list(shape), [1] * rank
    for position, dimension in zip(order, dimensions, strict=True):
        if position >= rank:
            at, size = blocked[position - rank], int(dimension.denseSize)
            if size < 1 or sizes[at] % size:
                return 1, "", f"blocks of {size} in rows of {sizes[at]}"
            block_sizes[at] *= size
            sizes[at] //= size
            sizes.append(size)
    block = math.prod(block_sizes)
    label = "x".join(map(str, block_sizes)) if block > 1 else ""
    places = 1
    for position, dimension in zip(order, dimensions, strict=True):
        size = sizes[position] if position < rank else int(dimension.denseSize)
        if dimension.format != _SPARSE:
            if dimension.denseSize != size:
                return block, label, f"a dimension of {size} stored as one of {dimension.denseSize}"
            places *= size
            continue
        segments, indices = _values(dimension.arraySegments), _values(dimension.arrayIndices)
        if segments.size != places + 1 or segments[0] != 0 or segments[-1] != indices.size:
            return block, label, "rows and indices that do not belong together"
        if (segments[1:] < segments[:-1]).any() or (
            indices.size and not 0 <= indices.min() <= indices.max() < size
        ):
            return block, label, "indices outside of its shape"
        places = indices.size
    if places != kept:
        return block, label, f"{kept:,} values for indices of {places:,}"
    return block, label, ""


def _values(vector) -> np.ndarray:
    """The numbers of one of the schema's three kinds of index vectors."""
    values = None if vector is None else vector.values
    return np.empty(0, np.int32) if values is None else values


def _index_vectors(sparsity: schema.SparsityParametersT | None) -> list[np.ndarray]:
    dimensions = [] if sparsity is None else sparsity.dimMetadata or []
    return [_values(vector) for d in dimensions for vector in (d.arraySegments, d.arrayIndices)]


def _bytes_of(count: int, dtype: str) -> int:
    """Bytes of so many values; values of less than a byte fill up the last one."""
    if dtype in _PACKED_BITS:
        return -(-count * _PACKED_BITS[dtype] // 8)
    return count * np.dtype(_NUMPY.get(dtype, np.uint8)).itemsize


def _chunks(data: np.ndarray, dtype: str):
    """Parts of a constant as NumPy's numbers, so that looking at it takes little memory."""
    kind = np.dtype(_NUMPY.get(dtype, np.uint8))
    values = data[: data.size // kind.itemsize * kind.itemsize].view(kind)
    return (values[start : start + _CHUNK] for start in range(0, values.size, _CHUNK))


def _nonzeros(data: np.ndarray, dtype: str, count: int, zero_point: np.ndarray | None) -> int:
    """Values that do not stand for zero: a quantized zero is the zero point."""
    if dtype not in _NUMPY and dtype not in _PACKED_BITS:
        return count  # strings and the like
    if dtype in _PACKED_BITS:
        bits = _PACKED_BITS[dtype]
        shifts = range(0, 8, bits)
        return sum(
            np.count_nonzero(chunk >> shift & (1 << bits) - 1)
            for chunk in _chunks(data, dtype)
            for shift in shifts
        )
    if dtype in _WITHOUT_SIGN:
        return sum(np.count_nonzero(chunk & _WITHOUT_SIGN[dtype]) for chunk in _chunks(data, dtype))
    # Where a zero point is given for each channel, it is 0: TFLite's kernels take no other.
    zero = int(zero_point[0]) if zero_point is not None and zero_point.size == 1 else 0
    return sum(np.count_nonzero(chunk if zero == 0 else chunk != zero) for chunk in _chunks(data, dtype))


def _all_finite(data: np.ndarray, dtype: str) -> bool:
    if dtype not in _FLOATS:
        return True
    return all(bool(np.isfinite(chunk).all()) for chunk in _chunks(data, dtype))
