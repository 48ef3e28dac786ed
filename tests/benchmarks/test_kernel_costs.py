"""The benchmark of `auto`'s choice between int8 blocks and dense int8."""

import json

from benchmarks import kernel_costs
from benchmarks.kernel_costs import Cell


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
