"""Choice of the encoding of each layer, from its zeros, the limits of the kernels, and their costs."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.storage import SCALE_BYTES, SMALLEST_ENCODED, Pattern
from tfsparsecap_export.encode import FORMATS, encodings, sparse
from tfsparsecap_export.encode.costs import KernelCosts
from tfsparsecap_export.encode.sparse import FileWeight

#: Formats that may store weights as int8.
INT8_FORMATS = ("auto", "int8", "dense-int8")

#: Expected times whose ratio is smaller than this are considered equal; the cost model's error is as large.
TIME_TOLERANCE = 1.2
#: Int8 blocks, which are smaller, may take this much longer than dense int8.
BLOCKS_TOLERANCE = 1.05
#: Steps of int8 from 0 to the largest weight of half of a table's rows at least: their errors are below 10 %.
MIN_STEPS = 8
#: Minimum number of outputs for sorting.
MIN_SORTED_OUTPUTS = 256
#: Minimum fraction of non-zero weights in the stored blocks of a layer that was pruned in blocks. Block
#: pruning results in about 1; with 90 % unstructured sparsity, a stored 1x16 block has 12 % non-zero weights.
BLOCK_FILL = 0.5


@dataclasses.dataclass(frozen=True)
class WeightPattern:
    """A weight with what its encoding depends on.

    Attributes:
        weight: the weight.
        pattern: positions of its zeros.
        float16: whether it may be stored as float16; if not, float32 is used instead.
    """

    weight: FileWeight
    pattern: Pattern
    float16: bool = True


@dataclasses.dataclass(frozen=True)
class EncodingChoice:
    """The encoding of a constant, and the reason for it."""

    encoding: str
    reason: str


def check_format(format: str) -> None:
    """Raises InputError for an unknown export format."""
    if format not in FORMATS:
        raise InputError(f'there is no export format "{format}": choose one of {", ".join(FORMATS)}')


def choose_encoding(
    layer: WeightPattern, format: str, costs: KernelCosts, *, int8_tables: bool = False
) -> EncodingChoice:
    """The encoding of a constant in a format.

    - `auto`: the faster of int8 blocks and dense int8 for a layer pruned in 1x16 blocks, by its number of
      rows. For other layers, the float encoding with the smallest product of expected time and size, so
      twice the time is acceptable for half the size.
    - `int8`: the faster of int8 blocks and dense int8 for all layers.
    - `fast`: the smallest of the float encodings that are about as fast as the fastest one.
    - `compact`: the smallest float encoding.
    - `dense`: float32.
    - `dense-int8`: int8, including zeros: the best result without sparsity.

    Args:
        layer: the constant.
        format: one of `FORMATS`.
        costs: costs of the kernels.
        int8_tables: whether `auto` may store tables as int8, because other layers are int8 too.
    """
    role = layer.weight.role
    if format == "dense":
        return EncodingChoice(encodings.DENSE, "requested")
    if layer.weight.values.size < SMALLEST_ENCODED:
        return EncodingChoice(encodings.DENSE, f"fewer than {SMALLEST_ENCODED} weights")
    if role == sparse.CONVOLUTION_3D:
        return EncodingChoice(encodings.DENSE, "no sparse or int8 kernel")
    if role == sparse.CONVOLUTION:
        # In loops, runtimes before LiteRT expand float16 at every step.
        candidates = (encodings.FLOAT16, encodings.SPARSE32 if layer.weight.in_loop else encodings.SPARSE16)
        choice = _smallest(layer, candidates[: 1 if format == "dense-int8" else 2])
    elif format == "dense-int8" and (role == sparse.FULLY_CONNECTED or _keeps_rows_in_int8(layer.weight)):
        choice = EncodingChoice(encodings.INT8, "requested")
    elif role == sparse.TABLE:
        choice = _choose_table(layer, format == "int8" or (format == "auto" and int8_tables))
    else:
        choice = _choose_layer(layer, format, costs)
    if choice.encoding in (encodings.FLOAT16, encodings.SPARSE16) and not layer.float16:
        replacement = encodings.DENSE if choice.encoding == encodings.FLOAT16 else encodings.SPARSE32
        return EncodingChoice(replacement, f"{choice.encoding} changes outputs")
    return choice


def expected_ms(layer: WeightPattern, encoding: str, runs: int, costs: KernelCosts) -> float:
    """Milliseconds that the cost model expects `runs` calls of a fully connected layer to take.

    It is 0 for tables and convolutions: their time does not depend on the encoding.
    """
    if layer.weight.role != sparse.FULLY_CONNECTED:
        return 0.0
    return runs * _nanoseconds(layer, encoding, costs) / 1e6


def expected_costs(
    layers: Sequence[WeightPattern], layer_formats: Sequence[str], costs: KernelCosts
) -> tuple[float, int]:
    """Nanoseconds of a call, and bytes, of fully connected layers in the encodings of their formats."""
    pairs = [
        (layer, choose_encoding(layer, format, costs).encoding)
        for layer, format in zip(layers, layer_formats, strict=True)
    ]
    nanoseconds = sum(_nanoseconds(layer, encoding, costs) for layer, encoding in pairs)
    return nanoseconds, sum(expected_bytes(layer, encoding) for layer, encoding in pairs)


def expected_bytes(layer: WeightPattern, encoding: str) -> int:
    """Size in the file of values, indices and scales, as `encodings` will store them."""
    rows, columns = layer.weight.values.shape
    stored = encodings.ENCODINGS[encoding]
    itemsize = np.dtype(stored.dtype).itemsize
    table = layer.weight.role == sparse.TABLE
    scales = SCALE_BYTES * rows if encodings.scale_per_row(encoding, table) else 0
    return scales + min(
        itemsize * layer.pattern.weights if block is None else layer.pattern.sparse_bytes(block, itemsize)
        for block in stored.blocks(columns, table=table)
    )


def pruned_in_blocks(pattern: Pattern, block: int) -> bool:
    """Whether the weights were pruned in blocks of this size."""
    stored = pattern.stored.get(block)
    return stored is not None and stored < 0.9 * pattern.weights and pattern.nonzeros >= BLOCK_FILL * stored


def pattern_name(pattern: Pattern) -> str:
    """ "dense", "unstructured", "1x4 blocks" or "1x16 blocks"."""
    if pattern.nonzeros >= 0.9 * pattern.weights:
        return "dense"
    return next(
        (f"1x{block} blocks" for block in (16, 4) if pruned_in_blocks(pattern, block)), "unstructured"
    )


def wants_block16(layer: WeightPattern, format: str, costs: KernelCosts) -> bool:
    """Whether a format stores a fully connected layer as int8 1x16 blocks, the limits of the kernel aside."""
    if layer.weight.role != sparse.FULLY_CONNECTED or layer.weight.values.size < SMALLEST_ENCODED:
        return False
    if format == "auto" and not pruned_in_blocks(layer.pattern, 16):
        return False
    return format in ("auto", "int8") and _blocks_are_fast(layer, costs)


def block16_obstacle(layer: WeightPattern) -> str | None:
    """Why TFLite's int8 1x16 kernel cannot run a layer, or None if it can."""
    columns, blocks = layer.weight.values.shape[1], layer.pattern.most_blocks
    if columns % 16:
        return f"{columns} inputs are not a multiple of 16"
    if columns > encodings.BLOCK16_MAX_INPUTS:
        return f"{columns} inputs; the int8 kernel takes {encodings.BLOCK16_MAX_INPUTS}"
    if blocks > encodings.BLOCK16_MAX_BLOCKS_PER_ROW:
        return f"{blocks} blocks per row; the int8 kernel takes {encodings.BLOCK16_MAX_BLOCKS_PER_ROW}"
    return None


def _choose_layer(layer: WeightPattern, format: str, costs: KernelCosts) -> EncodingChoice:
    def time(encoding):
        return _nanoseconds(layer, encoding, costs)

    def size(encoding):
        return expected_bytes(layer, encoding)

    obstacle = block16_obstacle(layer)
    in_blocks = pruned_in_blocks(layer.pattern, 16)
    if format == "int8" or (format == "auto" and in_blocks):
        if not _blocks_are_fast(layer, costs):
            rows = layer.weight.rows_per_call
            return EncodingChoice(
                encodings.INT8, f"faster than int8 blocks with {rows} row{'s' if rows > 1 else ''}"
            )
        if obstacle is None:
            return EncodingChoice(
                encodings.BLOCK16, "pruned in 1x16 blocks" if in_blocks else "faster than dense int8"
            )
        if format == "int8":
            return EncodingChoice(encodings.INT8, obstacle)
    if format == "compact":
        return EncodingChoice(min((encodings.SPARSE16, encodings.FLOAT16), key=size), "smallest")
    candidates = [
        encodings.CSR,
        *([encodings.BLOCK4] if 4 in layer.pattern.stored else []),
        encodings.FLOAT16,
    ]
    if format == "fast":
        limit = TIME_TOLERANCE * min(map(time, candidates))
        best = min((encoding for encoding in candidates if time(encoding) <= limit), key=size)
        return EncodingChoice(best, "smallest of the fastest float encodings")
    reason = "best time x size"
    if in_blocks:
        reason += f" ({obstacle})"
    if not layer.weight.in_loop:  # in loops, runtimes before LiteRT expand it at every step
        candidates.append(encodings.SPARSE16)
    return EncodingChoice(min(candidates, key=lambda encoding: time(encoding) * size(encoding)), reason)


def _choose_table(layer: WeightPattern, int8: bool) -> EncodingChoice:
    candidates = [encodings.FLOAT16]
    if len(layer.weight.shape) == 2:
        if int8 and _keeps_rows_in_int8(layer.weight):
            return _smallest(layer, [encodings.INT8, encodings.SPARSE_INT8])
        choice = _smallest(layer, [encodings.FLOAT16, encodings.SPARSE32])
        return dataclasses.replace(choice, reason="its rows are too different for int8") if int8 else choice
    return _smallest(layer, candidates)


def _keeps_rows_in_int8(table: FileWeight) -> bool:
    """Whether the single scale of an int8 table leaves most rows enough different values."""
    if len(table.shape) != 2:
        return False
    largest = np.abs(table.values).max(axis=1)
    steps = 127 * largest[largest > 0] / max(largest.max(), np.finfo(np.float32).tiny)
    return not steps.size or float(np.median(steps)) >= MIN_STEPS


def _smallest(layer: WeightPattern, candidates: Sequence[str]) -> EncodingChoice:
    best = min(candidates, key=lambda encoding: expected_bytes(layer, encoding))
    expanded = encodings.ENCODINGS[best].block is not None
    return EncodingChoice(best, "smallest; expanded once" if expanded else "smallest")


def _blocks_are_fast(layer: WeightPattern, costs: KernelCosts) -> bool:
    """Whether int8 blocks are faster than dense int8, or smaller and about as fast."""
    blocks = _nanoseconds(layer, encodings.BLOCK16, costs)
    dense = _nanoseconds(layer, encodings.INT8, costs)
    smaller = expected_bytes(layer, encodings.BLOCK16) < expected_bytes(layer, encodings.INT8)
    return blocks < dense * (BLOCKS_TOLERANCE if smaller else 1.0)


def _nanoseconds(layer: WeightPattern, encoding: str, costs: KernelCosts) -> float:
    """Expected time of one call of a fully connected layer."""
    outputs, inputs = layer.weight.values.shape
    stored = layer.pattern.stored.get(encodings.ENCODINGS[encoding].block or 1, 0)
    rows = layer.weight.rows_per_call
    return costs.product(encoding, rows=rows, outputs=outputs, inputs=inputs, stored=stored)
