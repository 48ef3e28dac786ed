"""The order of the outputs of layers; test_runtimes.py compares sorted files with unsorted ones."""

import numpy as np
import pytest
from tfsparsecap_export.encode import encodings, ordering

from ..conftest import uneven


@pytest.mark.parametrize(
    ("encoding", "block"), [(encodings.CSR, 1), (encodings.BLOCK4, 4), (encodings.BLOCK16, 16)]
)
def test_rows_are_sorted_by_their_number_of_blocks(encoding, block):
    values = uneven(300, 64, 16)
    values[7, 3] = values[9, 40] = 1.0
    counts = [sum(row[i : i + block].any() for i in range(0, 64, block)) for row in values]
    order = ordering.order_of(values, encoding)
    assert sorted(order) == list(range(300)) and order.dtype == np.int32
    assert [counts[i] for i in order] == sorted(counts)
