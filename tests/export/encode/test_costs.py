"""The costs of a target's kernels, compared with instructions that were counted on it."""

import pytest
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.encode.costs import TARGETS, kernel_costs

from tfsparsecap.errors import InputError

#: Taken before tests change them.
COSTS = dict(TARGETS)


# Instructions of TFLite 2.16.1 on a Cortex-A76 for 512 x 512 weights, of which blocks store 10 %.
@pytest.mark.parametrize(
    ("encoding", "rows", "instructions"),
    [
        (encodings.DENSE, 8, 992_000),
        (encodings.DENSE, 64, 5_454_000),
        (encodings.INT8, 1, 149_000),
        (encodings.INT8, 8, 348_000),
        (encodings.INT8, 64, 1_929_000),
        (encodings.BLOCK16, 1, 36_000),
        (encodings.BLOCK16, 8, 222_000),
        (encodings.BLOCK16, 64, 1_747_000),
    ],
)
def test_the_costs_of_arm64_are_the_counted_instructions(encoding, rows, instructions):
    costs = COSTS["arm64"]
    estimate = costs.product(encoding, rows=rows, outputs=512, inputs=512, stored=26_000) / costs.nanoseconds
    assert estimate == pytest.approx(instructions, rel=0.12)


@pytest.mark.parametrize("target", ["arm64", "x86_64"])
def test_blocks_are_faster_with_few_rows_and_many_zeros(target):
    def ratio(rows, density):
        layer = {"rows": rows, "outputs": 1024, "inputs": 1024, "stored": density * 1024**2}
        product = COSTS[target].product
        return product(encodings.INT8, **layer) / product(encodings.BLOCK16, **layer)

    assert ratio(1, 0.05) > 2 and ratio(3, 0.05) > 1.5  # as measured on both
    assert ratio(256, 0.5) < 0.5


def test_a_target_without_costs_is_an_input_error():
    with pytest.raises(InputError, match="no costs of the target 'riscv': choose one of arm64, x86_64"):
        kernel_costs("riscv")
