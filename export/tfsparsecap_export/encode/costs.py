"""Costs of TFLite's kernels on a target, by which the exporter chooses encodings.

They are constants, not measured while a file is exported, so that the same model, samples and target give
the same file on every machine. `python -m benchmarks.kernel_costs` compares them with measured times.
"""

import dataclasses
import math

from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import encodings

#: Nanoseconds of an instruction of an arm64 phone: a Cortex-A76 at 2.4 GHz that ends two in a cycle.
_INSTRUCTION = 0.2


@dataclasses.dataclass(frozen=True)
class DenseCost:
    """Cost of a product with a dense matrix, which XNNPACK multiplies with a few rows, a tile, at a time.

    Attributes:
        single_row: per weight, with one row.
        once: per weight, with more rows.
        tile: per weight and tile, with more rows.
        rows: rows of a tile.
        input: per input and row.
        output: per output and row.
        far: per weight beyond 4 million, which the caches do not hold.
    """

    single_row: float
    once: float
    tile: float
    rows: int
    input: float
    output: float
    far: float = 0.0

    def product(self, rows: int, outputs: int, inputs: int) -> float:
        """Cost of multiplying `rows` rows with a matrix [outputs, inputs]."""
        weight = self.single_row if rows == 1 else self.once + self.tile * math.ceil(rows / self.rows)
        far = self.far * max(0.0, outputs * inputs - 4e6)
        return outputs * inputs * weight + far + rows * (inputs * self.input + outputs * self.output)


@dataclasses.dataclass(frozen=True)
class SparseCost:
    """Cost of a product with a sparse matrix.

    Attributes:
        once: per stored weight.
        row: per stored weight and row.
        input: per input and row.
        output_once: per output.
        output: per output and row.
    """

    once: float
    row: float
    input: float
    output_once: float
    output: float

    def product(self, rows: int, outputs: int, inputs: int, stored: float) -> float:
        """Cost of multiplying `rows` rows with a matrix [outputs, inputs] of `stored` stored weights."""
        weight_cost = stored * (self.once + self.row * rows)
        input_cost = rows * inputs * self.input
        output_cost = outputs * (self.output_once + self.output * rows)
        return weight_cost + input_cost + output_cost


@dataclasses.dataclass(frozen=True)
class KernelCosts:
    """Costs of kernels on one core of a target.

    Attributes:
        target: its name, a key of `TARGETS`.
        nanoseconds: of a unit of cost.
        dense, int8: products with float32 and int8 weights.
        csr, block4, block16: products with compressed rows, 1x4 float32 and 1x16 int8 blocks.
        call: of an operation.
        convolution, convolution_int8: per multiply-add, with float32, and with int8 weights and activations.
        depthwise, depthwise_int8: the same for depthwise convolutions.
        element: of what arm64 does in an instruction per element in other operations.
    """

    target: str
    nanoseconds: float
    dense: DenseCost
    int8: DenseCost
    csr: SparseCost
    block4: SparseCost
    block16: SparseCost
    call: float
    convolution: float
    convolution_int8: float
    depthwise: float
    depthwise_int8: float
    element: float

    def product(self, encoding: str, *, rows: int, outputs: int, inputs: int, stored: float) -> float:
        """Nanoseconds of one call of a fully connected layer.

        Args:
            encoding: one of `encodings.ENCODINGS`; those that the runtime expands when it loads a file are
                multiplied as dense float32.
            rows: number of rows that are multiplied per call.
            outputs, inputs: shape of the matrix.
            stored: number of stored weights, including zeros in non-zero blocks; ignored for dense encodings.

        Examples:
            >>> round(TARGETS["arm64"].product("csr", rows=3, outputs=512, inputs=512, stored=13_000))
            111799
        """
        kernels: dict[str, DenseCost | SparseCost] = {
            encodings.INT8: self.int8,
            encodings.CSR: self.csr,
            encodings.BLOCK4: self.block4,
            encodings.BLOCK16: self.block16,
        }
        kernel = kernels.get(encoding, self.dense)
        if isinstance(kernel, SparseCost):
            cost = kernel.product(rows, outputs, inputs, stored)
        else:
            cost = kernel.product(rows, outputs, inputs)
        return (self.call + cost) * self.nanoseconds


#: What `target=` may be. Phones are arm64; the costs of x86_64 are for desktops and servers.
TARGETS = {
    costs.target: costs
    for costs in (
        KernelCosts(
            target="arm64",
            # Instructions of TFLite 2.16.1 on a Cortex-A76, counted under qemu.
            nanoseconds=_INSTRUCTION,
            # One row takes 0.47 instructions per weight, and more time to read it from memory, at 10 GB/s.
            dense=DenseCost(single_row=2.0, once=0.012, tile=1.87, rows=6, input=0.0, output=1.9),
            int8=DenseCost(single_row=0.53, once=0.22, tile=0.40, rows=4, input=3.4, output=9.3),
            csr=SparseCost(once=8.0, row=11.0, input=0.19, output_once=0.25, output=16.0),
            block4=SparseCost(once=2.0, row=1.51, input=0.12, output_once=0.96, output=23.2),
            block16=SparseCost(once=0.0, row=0.474, input=10.3, output_once=17.4, output=15.2),
            call=1000.0,
            convolution=0.33,
            convolution_int8=0.09,
            depthwise=0.9,
            depthwise_int8=0.75,
            element=1.0,
        ),
        KernelCosts(
            target="x86_64",
            # Nanoseconds of LiteRT 2.3 on one Zen 4 core, measured in files of one layer.
            nanoseconds=1.0,
            dense=DenseCost(single_row=0.043, once=0.0, tile=0.125, rows=7, input=0.0, output=0.12),
            int8=DenseCost(
                single_row=0.0105, once=0.0, tile=0.0216, rows=5, input=0.052, output=0.34, far=0.0126
            ),
            csr=SparseCost(once=0.61, row=0.59, input=0.0, output_once=1.95, output=1.0),
            block4=SparseCost(once=0.16, row=0.15, input=0.0, output_once=1.95, output=1.5),
            block16=SparseCost(once=0.0006, row=0.0392, input=1.16, output_once=0.47, output=0.8),
            call=100.0,
            convolution=0.023,
            convolution_int8=0.007,
            depthwise=0.061,
            depthwise_int8=0.05,
            element=0.04,
        ),
    )
}


def kernel_costs(name: str) -> KernelCosts:
    """The costs of a target.

    Raises:
        InputError: there are no costs for it.

    Examples:
        >>> kernel_costs("arm64").nanoseconds
        0.2
    """
    if name not in TARGETS:
        raise InputError(f"there are no costs of the target {name!r}: choose one of {', '.join(TARGETS)}")
    return TARGETS[name]
