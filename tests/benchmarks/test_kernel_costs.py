"""The grid of int8 blocks and dense int8."""

import json

import pytest

from benchmarks import kernel_costs
from benchmarks.kernel_costs import Cell

from ..runtimes import tflite_2_16


def test_a_cell_compares_what_auto_chooses_with_the_better_one():
    cell = Cell(64, 64, 0.9, 3, 200.0, 100.0, 4096, 512, chooses_blocks=False)
    assert (cell.slower, cell.larger) == (2.0, 8.0)
    cell = Cell(64, 64, 0.9, 3, 200.0, 100.0, 4096, 512, chooses_blocks=True)
    assert (cell.slower, cell.larger) == (1.0, 1.0)


def test_the_grid_is_measured_printed_and_written(monkeypatch, capsys, tmp_path):
    for name, value in (("SHAPES", [(64, 32)]), ("ROWS", [1, 8]), ("SPARSITIES", [0.5])):
        monkeypatch.setattr(kernel_costs, name, value)
    monkeypatch.setattr(kernel_costs, "_RUNS", 2)
    path = tmp_path / "grid.json"
    kernel_costs.main(["--output", str(path)])
    shown = capsys.readouterr().out
    assert "50%" in shown and "8 rows" in shown and "2 cells" in shown and "64 x 32" in shown
    cells = json.loads(path.read_text())
    assert [cell["rows"] for cell in cells] == [1, 8] and all(cell["dense"] > 0 for cell in cells)


@pytest.mark.slow
def test_instructions_of_the_phones_kernels_are_counted():
    tflite_2_16.require("arm64")
    try:
        (one, four) = kernel_costs.measure("arm64", [(64, 128)], [1, 4], [0.9])
    except tflite_2_16.RuntimeFailure as error:
        if "plugin" not in str(error):
            raise
        pytest.skip(f"this qemu does not load the plugin that counts instructions: {error}")
    assert 5_000 < one.blocks < four.blocks < 200_000
    assert (one.blocks, one.dense) == tuple(
        getattr(kernel_costs.measure("arm64", [(64, 128)], [1], [0.9])[0], name)
        for name in ("blocks", "dense")
    ), "the same program has the same number of instructions"
