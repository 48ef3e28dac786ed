"""Estimates how many bytes weights take in a file: by formula, or by compressing them."""

import bz2
import math
import zlib
from dataclasses import dataclass

import numpy as np

#: How a weight is used, which decides how it can be stored: a `MATRIX` is multiplied, rows are looked up in a
#: `TABLE`, a `CONVOLUTION` kernel is made dense when a file is loaded, and `OTHER` are biases, scales and
#: statistics.
MATRIX, TABLE, CONVOLUTION, OTHER = "matrix", "table", "convolution", "other"

#: Tensors with fewer weights stay in float32 in an exported file, because encoding would not save space.
SMALLEST_ENCODED = 2048
#: Sizes of blocks, in neighbouring values of a row, in which an exported table can be stored.
TABLE_BLOCKS = (1, 4, 16)
#: Bytes of a float32 scale in a .tflite file, in which layers share their zero points.
SCALE_BYTES = 4
_BLOCK = 16
_FLOAT32, _FLOAT16, _INT8, _COO_INDEX, _CSR_INDEX = 4, 2, 1, 8, 4


@dataclass(frozen=True)
class Pattern:
    """Counts of zeros in a matrix [rows, columns]; a row of an exported matrix holds one output's inputs.

    Attributes:
        rows, columns: shape of the matrix.
        nonzeros: number of weights that are not zero.
        stored: block size -> weights in blocks that are not all zero. Sizes are 1, 4 if it divides the
            columns, and 16, for which rows are padded with zeros.
        last_block: block size -> largest column number of such a block, counted in blocks.
        most_blocks: largest number of blocks of 16 in a row.
    """

    rows: int
    columns: int
    nonzeros: int
    stored: dict[int, int]
    last_block: dict[int, int]
    most_blocks: int

    @classmethod
    def of(cls, values: np.ndarray) -> "Pattern":
        """Returns the pattern of a matrix [rows, columns]."""
        rows, columns = values.shape
        mask = np.pad(values != 0, ((0, 0), (0, -columns % _BLOCK)))
        stored, last_block, most_blocks = {}, {}, 0
        for block in (size for size in (1, 4, 16) if columns % size == 0 or size == _BLOCK):
            blocks = mask.reshape(rows, -1, block).any(axis=2)
            stored[block] = block * int(np.count_nonzero(blocks))
            last_block[block] = int(np.flatnonzero(blocks.any(axis=0)).max(initial=0))
            if block == _BLOCK:
                most_blocks = int(blocks.sum(axis=1).max(initial=0))
        return cls(rows, columns, stored[1], stored, last_block, most_blocks)

    @property
    def weights(self) -> int:
        return self.rows * self.columns

    def sparse_bytes(self, block: int, value_bytes: int) -> int:
        """Bytes of non-zero blocks, their columns and row offsets in a .tflite file, without scales."""
        # A constant must not be empty: a matrix of zeros keeps one block.
        count = max(1, self.stored[block] // block)
        block_bytes = block * value_bytes + index_bytes(self.last_block[block])
        return count * block_bytes + (self.rows + 1) * index_bytes(count)


def index_bytes(largest: int) -> int:
    """Bytes of the smallest index type of a .tflite file that holds `largest`."""
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4


def stored_bytes(weight: np.ndarray, kind: str = MATRIX, *, inputs: int | None = None) -> dict[str, int]:
    """Returns the bytes of a weight in formats whose size can be computed by a formula.

    Args:
        weight: float of any shape in Keras's layout: outputs on the last axis; tokens of a table on the
            first.
        kind: `MATRIX`, `TABLE`, `CONVOLUTION` or `OTHER`.
        inputs: number of inputs that each output sums over; None takes all axes but the last.

    Returns:
        Format -> bytes:

        - `float32` and `float16`: 4 and 2 for each weight.
        - `coo`: for each non-zero weight a float32 and an index of 8 bytes per axis, as in PyTorch's
          checkpoints.
        - `csr`: for each non-zero weight a float32 and an int32 column, and an int32 offset per output plus
          one.
        - `int8_blocks`: what `tfsparsecap-export` stores: the non-zero blocks of 16 inputs of an output in
          int8, their positions in the smallest integer type that fits, and a scale (12 bytes) per output; or
          all weights in int8, with the same scales, if that is smaller. Tables have one scale and the best of
          blocks of 1, 4 and 16. Convolutions have all weights or the non-zero ones, and a scale per output.

        Tensors with one axis stay float32 in `coo` and `csr`, as in published checkpoints; tensors of fewer
        than 2048 weights stay float32 in `int8_blocks`.

    Examples:
        >>> stored_bytes(np.eye(4))
        {'float32': 64, 'float16': 32, 'coo': 80, 'csr': 52, 'int8_blocks': 64}
    """
    size, axes = weight.size, np.ndim(weight)
    dense = _FLOAT32 * size
    sizes = {"float32": dense, "float16": _FLOAT16 * size, "coo": dense, "csr": dense, "int8_blocks": dense}
    if axes < 2:
        return sizes
    nonzeros = int(np.count_nonzero(weight))
    sizes["coo"] = nonzeros * (_FLOAT32 + axes * _COO_INDEX)
    # [outputs, inputs], or [tokens, units] of a table.
    rows = weight.reshape(len(weight), -1) if kind == TABLE else _by_output(weight, inputs)
    sizes["csr"] = nonzeros * (_FLOAT32 + _CSR_INDEX) + (len(rows) + 1) * _CSR_INDEX
    if size >= SMALLEST_ENCODED and kind == CONVOLUTION:
        # In TFLite's layout, [outputs, height, width, inputs], of which the last axis is stored sparse.
        pattern = Pattern.of(np.moveaxis(weight, -1, 0).reshape(-1, weight.shape[-2]))
        sizes["int8_blocks"] = min(size, pattern.sparse_bytes(1, _INT8)) + SCALE_BYTES * len(rows)
    elif size >= SMALLEST_ENCODED and kind != OTHER:
        sizes["int8_blocks"] = _int8_bytes(rows, kind)
    return sizes


def compressed_bytes(weight: np.ndarray) -> dict[str, int]:
    """Bytes of the float32 values of a weight after gzip (level 6) and bzip2 (level 9).

    Args:
        weight: float32 of any shape; about a million values are compressed in a second.

    Examples:
        >>> sizes = compressed_bytes(np.zeros(100_000, "float32"))
        >>> sizes["gzip"] < 1000, sizes["bzip2"] < 100
        (True, True)
    """
    # Masks leave -0.0 in place of negative weights, which compresses badly.
    values = (weight + np.float32(0)).tobytes()
    return {"gzip": len(zlib.compress(values, 6, wbits=31)), "bzip2": len(bz2.compress(values, 9))}


def _by_output(weight: np.ndarray, inputs: int | None) -> np.ndarray:
    """Returns a view [outputs, inputs]."""
    return weight.reshape(inputs or math.prod(weight.shape[:-1]), -1).T


def _int8_bytes(rows: np.ndarray, kind: str) -> int:
    """Bytes of dense int8 or int8 blocks, whichever is smaller."""
    dense = _INT8 * rows.size + SCALE_BYTES * (len(rows) if kind == MATRIX else 1)
    pattern = Pattern.of(rows)
    if kind == MATRIX:
        return min(dense, pattern.sparse_bytes(_BLOCK, _INT8) + SCALE_BYTES * len(rows))
    fitting = [block for block in TABLE_BLOCKS if rows.shape[1] % block == 0]
    return min(dense, *(pattern.sparse_bytes(block, _INT8) + SCALE_BYTES for block in fitting))
