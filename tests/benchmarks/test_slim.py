"""The benchmark of structured pruning."""

import keras
import pytest

from benchmarks import slim
from benchmarks.architectures import ARCHITECTURES


def test_a_row_has_as_many_cells_as_the_header():
    result = {"name": "a", "removed": 0.5, "flops": [4e6, 1e6], "parameters": [2e6, 5e5]}
    result |= {"seconds": 1.0, "difference": 1e-7}
    assert slim.row(result) == "| a | 50% | 4 → 1 | 4.0x | 2.00 → 0.50 |  |  |  |  | 1.0 | 1e-07 |"
    assert len({line.count("|") for line in [*slim.HEADER.splitlines(), slim.row(result)]}) == 1


@pytest.mark.slow
def test_the_outputs_of_a_convolutional_network_do_not_change(monkeypatch):
    def small():
        return keras.applications.MobileNetV2(alpha=0.35, input_shape=(32, 32, 3), weights=None)

    monkeypatch.setitem(ARCHITECTURES, "small", small)
    result = slim.measure("small", 0.5, slim.arguments(["small", "--no-latency"]))
    assert result["exact"] == result["zero"] and result["difference"] < slim.TOLERANCE
    assert result["removed"] == pytest.approx(0.5, abs=0.01)
    assert result["flops"][0] > 1.4 * result["flops"][1]
