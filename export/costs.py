"""What TFLite's kernels cost: the constants of the model that `auto` chooses encodings by."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Costs:
    """Nanoseconds of TFLite's kernels on one desktop core, measured on layers of an Up-Down captioner.

    Attributes:
        dense: float32, a weight, while the weights have to come from memory, whatever the number of rows.
        dense_row: float32, a weight and row, where rows are so many that computing takes longest.
        int8: dense int8, a weight.
        int8_row: dense int8, a weight and row, for many rows.
        csr: compressed rows, a non-zero weight and row.
        block4, block16: 1x4 float32 and 1x16 int8 blocks, a stored weight and row.
    """

    dense: float = 0.4
    dense_row: float = 0.04
    int8: float = 0.1
    int8_row: float = 0.02
    csr: float = 1.6
    block4: float = 0.8
    block16: float = 0.2
