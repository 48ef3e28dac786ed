"""Which encoding a layer gets: from its pattern of zeros, what the kernels can do, and what they cost."""

import dataclasses

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap_export import FORMATS
from tfsparsecap_export.encode import encodings, sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.encode.sparse import Weight

#: Constants of fewer weights stay as they are: they would save less than what the extra operation costs.
SMALLEST = 2048
#: Times that differ by less are the same to the cost model, whose own error is as large.
NEARLY = 1.2
#: Outputs from which on it is worth while to put them in order.
FEWEST_ORDERED = 256
#: Share of what order gains that it may take to put outputs back: their places take bytes, too.
WORTH_RESTORING = 0.8
#: Nanoseconds of calling the operations that put outputs back.
_MORE_OPERATIONS = 3000.0
#: Share of non-zero weights in the kept blocks from which on a layer counts as pruned in blocks. Pruning
#: leaves whole blocks (near 1); at 90 % unstructured sparsity a kept 1x16 block is 12 % full.
BLOCK_FILL = 0.5

_FLOAT_ENCODINGS = {sparse.DENSE, sparse.FLOAT16, sparse.SPARSE32, sparse.SPARSE16, sparse.CSR, sparse.BLOCK4}


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Where the zeros of a matrix are.

    Attributes:
        weights, nonzeros: counts.
        stored: weights in blocks that are not all zero, by size of block: 1, 4 where it divides a row, and
            16, a row being filled up with zeros where that does not.
        most_blocks: largest number of 1x16 blocks in a row.
    """

    weights: int
    nonzeros: int
    stored: dict[int, int]
    most_blocks: int

    @classmethod
    def of(cls, values: np.ndarray) -> "Pattern":
        """The pattern of a matrix [rows, columns]."""
        rows, columns = values.shape
        kept = np.pad(values != 0, ((0, 0), (0, -columns % 16)))
        nonzeros, stored, most_blocks = int(kept.sum()), {}, 0
        for block in (1, 4, 16):
            if columns % block == 0 or block == 16:
                blocks = kept.reshape(rows, -1, block).any(axis=2)
                stored[block] = int(blocks.sum()) * block
                if block == 16:
                    most_blocks = int(blocks.sum(axis=1).max(initial=0))
        return cls(values.size, nonzeros, stored, most_blocks)

    def in_blocks(self, block: int) -> bool:
        """Whether the weights were pruned in blocks of this size."""
        stored = self.stored.get(block)
        return stored is not None and stored < 0.9 * self.weights and self.nonzeros >= BLOCK_FILL * stored

    def __str__(self) -> str:
        if self.nonzeros >= 0.9 * self.weights:
            return "dense"
        for block, name in ((16, "1x16 blocks"), (4, "1x4 blocks")):
            if self.in_blocks(block):
                return name
        return "unstructured"


@dataclasses.dataclass(frozen=True)
class Choice:
    """How one constant will be stored, and why."""

    encoding: str
    reason: str


def choose(
    weight: Weight,
    pattern: Pattern,
    format: str,
    costs: Costs | None = None,
    *,
    int8_tables: bool = False,
    float16: bool = True,
    picked: bool = False,
) -> Choice:
    """The encoding of one constant.

    `auto` takes int8 blocks for a layer pruned in 1x16 blocks, and else, among the float encodings, the one
    whose product of expected time and bytes is smallest: twice the time is worth half the bytes. `int8`
    takes the fastest of its encodings, `fast` the smallest of those that are nearly as fast as its fastest,
    `compact` the smallest float encoding, `dense` leaves everything float32. `dense-int8` is what there is
    without sparsity: int8 weights, every zero stored.

    Args:
        weight: the constant.
        pattern: its zeros.
        format: one of `tfsparsecap_export.FORMATS`.
        costs: what the kernels cost; the shipped constants by default.
        int8_tables: whether `auto` may store tables as int8, because layers of the model are int8 anyway.
        float16: whether weights may be stored as float16; where not, float32 takes its place.
        picked: whether only the best of its outputs are picked, so that these may lie in any order.

    Raises:
        InputError: no such format.
    """
    if format not in FORMATS:
        raise InputError(f'there is no export format "{format}": choose one of {", ".join(FORMATS)}')
    costs = costs or Costs()
    if format == "dense":
        return Choice(sparse.DENSE, "as asked")
    if weight.values.size < SMALLEST:
        return Choice(sparse.DENSE, f"fewer than {SMALLEST} weights")
    if weight.role == sparse.CONVOLUTION:
        choice = Choice(sparse.FLOAT16, "convolutions are stored dense")
    elif weight.role == sparse.TABLE:
        choice = _choose_table(weight, pattern, format, int8_tables)
    else:
        choice = _choose_layer(weight, pattern, format, costs, picked)
    if choice.encoding in (sparse.FLOAT16, sparse.SPARSE16) and not float16:
        return Choice(
            sparse.DENSE if choice.encoding == sparse.FLOAT16 else sparse.SPARSE32,
            f"{choice.encoding} changes captions",
        )
    return choice


def expected_ms(
    weight: Weight,
    pattern: Pattern,
    encoding: str,
    words: int,
    costs: Costs | None = None,
    *,
    picked: bool = False,
) -> float:
    """Milliseconds that the cost model expects a fully connected layer to take in a caption of `words` words.

    Tables and convolutions have no cost here: whatever their encoding, the runtime reads them as float32 or
    picks rows. `picked` is as in `choose`.
    """
    if weight.role != sparse.FULLY_CONNECTED:
        return 0.0
    calls = words if weight.in_loop else 1
    return calls * _nanoseconds(weight, pattern, encoding, costs or Costs(), picked) / 1e6


def worth_ordering(
    weight: Weight, encoding: str, costs: Costs | None = None, *, picked: bool = False
) -> bool:
    """Whether a fully connected layer is faster with its outputs in order (see `ordering`).

    By more than it takes to put them back, that is, unless only the best of them are `picked`.
    """
    costs, rows, outputs = costs or Costs(), weight.rows_a_call, len(weight.values)
    return (
        encoding in sparse.MULTIPLIED
        and outputs >= FEWEST_ORDERED
        and (
            picked
            or _MORE_OPERATIONS + costs.restoring(rows, outputs)
            < WORTH_RESTORING * costs.guess * rows * outputs
        )
    )


def expected_bytes(weight: Weight, pattern: Pattern, encoding: str) -> int:
    """Bytes of values, indices and scales in the file, as `encodings` will store them."""
    rows, columns = weight.values.shape
    value = {sparse.DENSE: 4, sparse.CSR: 4, sparse.BLOCK4: 4, sparse.SPARSE32: 4}
    value |= {sparse.FLOAT16: 2, sparse.SPARSE16: 2}
    blocks = {sparse.SPARSE16: (1,), sparse.CSR: (1,), sparse.BLOCK4: (4,), sparse.BLOCK16: (16,)}
    for encoding_in_blocks in (sparse.SPARSE32, sparse.SPARSE_INT8):
        blocks[encoding_in_blocks] = sparse.TABLE_BLOCKS if weight.role == sparse.TABLE else (1,)
    if encoding not in blocks:
        return value.get(encoding, 1) * pattern.weights

    def size(block):
        stored = pattern.stored[block]
        segments = (rows + 1) * encodings.index_bytes(stored // block)
        indices = stored // block * encodings.index_bytes(-(-columns // block) - 1)
        return value.get(encoding, 1) * stored + segments + indices

    scales = 12 * rows if encoding == sparse.BLOCK16 else 0
    fitting = [block for block in blocks[encoding] if columns % block == 0 or encoding == sparse.BLOCK16]
    return scales + min(size(block) for block in fitting)


def is_float(encoding: str) -> bool:
    """Whether an encoding keeps weights as floating point numbers, so that captions are to stay the same."""
    return encoding in _FLOAT_ENCODINGS


def suits_block16(weight: Weight, pattern: Pattern, format: str, costs: Costs | None = None) -> bool:
    """Whether a format wants a fully connected layer in int8 1x16 blocks, could the kernel but run it."""
    if weight.role != sparse.FULLY_CONNECTED or weight.values.size < SMALLEST:
        return False
    if format == "auto":
        return pattern.in_blocks(16)
    costs = costs or Costs()
    return format == "int8" and (
        _nanoseconds(weight, pattern, sparse.BLOCK16, costs)
        < _nanoseconds(weight, pattern, sparse.INT8, costs)
    )


def block16_obstacle(weight: Weight, pattern: Pattern) -> str | None:
    """Why TFLite's int8 1x16 kernel cannot run a layer, or None where it can."""
    columns = weight.values.shape[1]
    if columns % 16:
        return f"{columns} inputs are no multiple of 16"
    if columns > encodings.BLOCK16_MAX_INPUTS:
        return f"{columns} inputs, the int8 kernel takes {encodings.BLOCK16_MAX_INPUTS}"
    if pattern.most_blocks > encodings.BLOCK16_MAX_BLOCKS_A_ROW:
        return (
            f"{pattern.most_blocks} blocks a row, the int8 kernel takes {encodings.BLOCK16_MAX_BLOCKS_A_ROW}"
        )
    return None


def _choose_layer(weight: Weight, pattern: Pattern, format: str, costs: Costs, picked: bool) -> Choice:
    def time(encoding):
        return _nanoseconds(weight, pattern, encoding, costs, picked)

    def size(encoding):
        return expected_bytes(weight, pattern, encoding)

    obstacle = block16_obstacle(weight, pattern)
    multiplied = (
        [sparse.CSR] if pattern.weights == 0 or 4 not in pattern.stored else [sparse.CSR, sparse.BLOCK4]
    )
    if format == "dense-int8":
        return Choice(sparse.INT8, "as asked")
    if format == "int8":
        if obstacle:
            return Choice(sparse.INT8, obstacle)
        best = min((sparse.BLOCK16, sparse.INT8), key=lambda encoding: (time(encoding), size(encoding)))
        return Choice(best, "faster than dense int8" if best == sparse.BLOCK16 else "faster than its blocks")
    if format == "compact":
        best = min((sparse.SPARSE16, sparse.FLOAT16), key=size)
        return Choice(best, "smallest")
    if format == "fast":
        candidates = (*multiplied, sparse.FLOAT16)
        fastest = min(map(time, candidates))
        best = min((x for x in candidates if time(x) <= NEARLY * fastest), key=size)
        return Choice(best, "smallest of the fastest float encodings")
    if pattern.in_blocks(16) and obstacle is None:
        return Choice(sparse.BLOCK16, "pruned in 1x16 blocks")
    candidates = [*multiplied, sparse.FLOAT16]
    if not weight.in_loop:  # where runtimes before LiteRT would expand it anew at every word
        candidates.append(sparse.SPARSE16)
    best = min(candidates, key=lambda encoding: time(encoding) * size(encoding))
    reason = "best time x bytes"
    if pattern.in_blocks(16) and obstacle is not None:
        reason += f" ({obstacle})"
    return Choice(best, reason)


def _choose_table(weight: Weight, pattern: Pattern, format: str, int8_tables: bool) -> Choice:
    candidates = [sparse.FLOAT16]
    if len(weight.shape) == 2:
        candidates.append(sparse.SPARSE32)
        if format == "dense-int8":
            return Choice(sparse.INT8, "as asked")
        if format == "int8" or (format == "auto" and int8_tables):
            candidates = [sparse.INT8, sparse.SPARSE_INT8]
    best = min(candidates, key=lambda encoding: expected_bytes(weight, pattern, encoding))
    return Choice(
        best, "smallest; expanded once" if best in (sparse.SPARSE32, sparse.SPARSE_INT8) else "smallest"
    )


def _nanoseconds(
    weight: Weight, pattern: Pattern, encoding: str, costs: Costs, picked: bool = False
) -> float:
    """Of one call of a fully connected layer, and of what puts its outputs back in order."""
    outputs, inputs = weight.values.shape
    stored = {
        sparse.CSR: pattern.nonzeros,
        sparse.BLOCK4: pattern.stored.get(4),
        sparse.BLOCK16: pattern.stored[16],
    }
    ordered = worth_ordering(weight, encoding, costs, picked=picked)
    product = costs.product(
        encoding,
        rows=weight.rows_a_call,
        outputs=outputs,
        inputs=inputs,
        stored=stored.get(encoding, 0),
        ordered=ordered,
    )
    return product + (costs.restoring(weight.rows_a_call, outputs) if ordered and not picked else 0)
