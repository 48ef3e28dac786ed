"""What weights take in a file: by formulas in the formats that have one, else by compressing them."""

import bz2
import math
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from tqdm import tqdm

#: How a weight is used, which says how it can be stored: `MATRIX` multiplies, rows are picked of a `TABLE`,
#: a `CONVOLUTION`'s kernel is no matrix to a phone's kernels, and `OTHER` are biases, scales and statistics.
MATRIX, TABLE, CONVOLUTION, OTHER = "matrix", "table", "convolution", "other"

#: Weights below which the exporter leaves a tensor in float32.
SMALLEST_INT8 = 2048
_BLOCK = 16
_TABLE_BLOCKS = (1, 4, 16)
_FLOAT32, _FLOAT16, _INT8, _CSR_INDEX = 4, 2, 1, 4
#: A float32 scale and an int64 zero point, as a .tflite file keeps them.
_SCALE = 12
_AT_ONCE = 1 << 20


def stored_bytes(
    weight: np.ndarray, kind: str = MATRIX, *, summed: int | None = None, index_bytes: int = 8
) -> dict[str, int]:
    """Bytes of a weight in each of the formats that a formula is enough for.

    Args:
        weight: float of any shape, in Keras's layout: the outputs on the last axis, of a table the tokens on
            the first one.
        kind: `MATRIX`, `TABLE`, `CONVOLUTION` or `OTHER`.
        summed: how many values of the input an output is the sum of; None is all axes but the last.
        index_bytes: of an index of COO; 8 as in PyTorch's checkpoints.

    Returns:
        Name -> bytes:

        - `float32` and `float16`: 4 and 2 for each weight.
        - `coo`: float32 and an index for each axis, for every weight that is not zero.
        - `csr`: float32 and an int32 column for every such weight, an int32 for every output and one more.
        - `int8_blocks`: as `tfsparsecap-export` stores it: blocks of 16 inputs of an output that are not all
          zero in int8, their places in the smallest integers that do, a scale (12 bytes) for every output; or
          all weights in int8 with one scale, where that is smaller and for convolutions. Tables have one
          scale, and the best of blocks of 1, 4 and 16.

        What has one axis is float32 in `coo` and `csr`, as it is in published checkpoints; what has fewer
        than 2048 weights is float32 in `int8_blocks`.

    Example:
        >>> stored_bytes(np.eye(4))
        {'float32': 64, 'float16': 32, 'coo': 80, 'csr': 52, 'int8_blocks': 64}
    """
    size, axes = weight.size, np.ndim(weight)
    dense = _FLOAT32 * size
    sizes = {"float32": dense, "float16": _FLOAT16 * size, "coo": dense, "csr": dense, "int8_blocks": dense}
    if axes < 2:
        return sizes
    kept = np.asarray(weight != 0)
    nonzeros = int(np.count_nonzero(kept))
    sizes["coo"] = nonzeros * (_FLOAT32 + axes * index_bytes)
    rows = kept.reshape(len(kept), -1) if kind == TABLE else _by_output(kept, summed)
    sizes["csr"] = nonzeros * (_FLOAT32 + _CSR_INDEX) + (len(rows) + 1) * _CSR_INDEX
    if size >= SMALLEST_INT8 and kind != OTHER:
        sizes["int8_blocks"] = _int8(rows, kind)
    return sizes


def compressed_bytes(weights: Iterable[Callable[[], np.ndarray]], total: int) -> list[dict[str, int]]:
    """Bytes that gzip and bzip2 make of the float32 values of each weight, at their usual levels (6 and 9).

    Zeros count as +0.

    They are compressed for it, about a million weights a second: then a progress bar appears.

    Args:
        weights: functions that give the weights, float32, so that there is one at a time.
        total: how many values they have together.

    Returns:
        For each weight name -> bytes: `gzip` and `bzip2`.

    Example:
        >>> (sizes,) = compressed_bytes([lambda: np.zeros(100_000, "float32")], 100_000)
        >>> sizes["gzip"] < 1000, sizes["bzip2"] < 100
        (True, True)
    """
    sizes = []
    with tqdm(
        total=_FLOAT32 * total, desc="compressing", unit="B", unit_scale=True, delay=2, leave=False
    ) as bar:
        for weight in weights:
            # Masks leave a minus on the zeros of negative weights, which means nothing and compresses badly.
            values = memoryview(np.ascontiguousarray(weight() + np.float32(0)).reshape(-1)).cast("B")
            # 31: with the header and the check sum of a .gz file.
            packers = {"gzip": zlib.compressobj(6, zlib.DEFLATED, 31), "bzip2": bz2.BZ2Compressor(9)}
            packed = dict.fromkeys(packers, 0)
            for start in range(0, len(values), _AT_ONCE):
                part = values[start : start + _AT_ONCE]
                for name, packer in packers.items():
                    packed[name] += len(packer.compress(part))
                bar.update(len(part))
            sizes.append({name: packed[name] + len(packer.flush()) for name, packer in packers.items()})
    return sizes


def _by_output(kept: np.ndarray, summed: int | None) -> np.ndarray:
    """[outputs, inputs], a view."""
    return kept.reshape(summed or math.prod(kept.shape[:-1]), -1).T


def _int8(rows: np.ndarray, kind: str) -> int:
    dense = _INT8 * rows.size + _SCALE
    if kind == CONVOLUTION:
        return dense
    if kind == TABLE:
        fitting = [block for block in _TABLE_BLOCKS if rows.shape[1] % block == 0]
        return min(dense, *(_in_blocks(rows, block) + _SCALE for block in fitting))
    return min(dense, _in_blocks(rows, _BLOCK) + _SCALE * len(rows))


def _in_blocks(rows: np.ndarray, block: int) -> int:
    """Bytes of the blocks that are kept, and of where they are; rows are filled up with zeros."""
    outputs, inputs = rows.shape
    blocks = -(-inputs // block)
    # Slices of columns rather than a padded copy: most of the time goes into reading the weights anyhow.
    kept = np.zeros((outputs, blocks), bool)
    for offset in range(block):
        part = rows[:, offset::block]
        kept[:, : part.shape[1]] |= part
    if not kept.any():
        kept[0, 0] = True  # a file has no constants without data
    count, furthest = int(np.count_nonzero(kept)), int(np.flatnonzero(kept.any(axis=0))[-1])
    return count * (block * _INT8 + _smallest_integer(furthest)) + (outputs + 1) * _smallest_integer(count)


def _smallest_integer(largest: int) -> int:
    """Bytes of the smallest of the integers that a .tflite file has for places."""
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
