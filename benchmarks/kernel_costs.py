"""python -m benchmarks.kernel_costs: is `auto` as fast as the faster of dense int8 and int8 blocks?

Measures one fully connected layer, pruned in (16, 1) blocks, with dense int8 weights and with int8 blocks,
for many numbers of rows, shapes and shares of zeros, and compares them with what `auto` chooses by its cost
model (`tfsparsecap_export.encode.costs`). Prints how many times faster the blocks are (below 1: slower). For
`auto` it prints the share of cells in which it takes at most 5 % longer than the faster one, and the worst.

runtimes:
  litert  the installed LiteRT, for the target x86_64
  arm64   instructions of TFLite 2.16.1's arm64 library under qemu, for the target arm64; needs what the tests
          of the Android library need (`tests/runtimes`)

examples:
  python -m benchmarks.kernel_costs
      LiteRT on this machine; a few minutes
  python -m benchmarks.kernel_costs --runtime arm64 --output grid.json
      also write all figures
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import parser, run
from tfsparsecap.core.files import atomic_write
from tfsparsecap.errors import InputError

ROWS = (1, 3, 8, 16, 64, 256)
SHAPES = (
    (128, 128),
    (256, 256),
    (512, 512),
    (2048, 512),
    (512, 2048),
    (1024, 1024),
    (4096, 1024),
    (4096, 4096),
)
SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99)
#: Runtime -> target whose costs `auto` uses.
RUNTIMES = {"litert": "x86_64", "arm64": "arm64"}
#: Cells with more multiplications are left out, because they take long.
_MOST_WORK = {"litert": 3e8, "arm64": 7e7}
_RUNS = 24
_TOLERANCE = 1.05


@dataclasses.dataclass(frozen=True)
class Cell:
    """A layer, its cost (nanoseconds or instructions) and bytes in both encodings; what `auto` chooses."""

    outputs: int
    inputs: int
    sparsity: float
    rows: int
    dense: float
    blocks: float
    dense_bytes: int
    blocks_bytes: int
    chooses_blocks: bool

    @property
    def slower(self) -> float:
        """The cost of what `auto` chooses, divided by the smaller cost."""
        return (self.blocks if self.chooses_blocks else self.dense) / min(self.blocks, self.dense)

    @property
    def larger(self) -> float:
        """The bytes of what `auto` chooses, divided by the smaller ones."""
        chosen = self.blocks_bytes if self.chooses_blocks else self.dense_bytes
        return chosen / min(self.blocks_bytes, self.dense_bytes)


def measure(
    runtime: str,
    shapes: Sequence[tuple[int, int]],
    rows: Sequence[int],
    sparsities: Sequence[float],
) -> list[Cell]:
    """Measures the cells of the grid, except those with too many multiplications."""
    from tfsparsecap_export.encode import encodings, formats, sparse
    from tfsparsecap_export.encode.costs import kernel_costs
    from tqdm import tqdm

    from benchmarks import one_layer
    from tfsparsecap.model_summary.storage import Pattern

    cost, costs, rng, cells = _cost_of(runtime), kernel_costs(RUNTIMES[runtime]), np.random.default_rng(0), []
    grid = [(*shape, sparsity) for shape in shapes for sparsity in sparsities]
    for outputs, inputs, sparsity in tqdm(grid, disable=None, leave=False):
        matrix = one_layer.sparse_matrix(rng, outputs, inputs, 1 - sparsity, 16)
        for count in rows:
            if outputs * inputs * count > _MOST_WORK[runtime]:
                continue
            weight = sparse.FileWeight(
                0, "kernel", sparse.FULLY_CONNECTED, matrix.shape, matrix, count, in_loop=False, uses=()
            )
            layer = formats.WeightPattern(weight, Pattern.of(matrix))
            pair = (encodings.INT8, encodings.BLOCK16)
            files = [one_layer.fully_connected([matrix], encoding, count) for encoding in pair]
            sizes = [formats.expected_bytes(layer, encoding) for encoding in pair]
            values = rng.standard_normal((count, inputs)).astype(np.float32)
            chooses_blocks = formats.choose_encoding(layer, "auto", costs).encoding == encodings.BLOCK16
            cells.append(Cell(outputs, inputs, sparsity, count, *cost(files, values), *sizes, chooses_blocks))
    return cells


def _cost_of(runtime: str) -> Callable[[list[bytes], np.ndarray], list[float]]:
    """A function of files and their input: the cost of each."""
    if runtime == "litert":
        return _litert_ns
    from tests.runtimes import tflite_2_16

    missing = tflite_2_16.missing("arm64")
    if missing:
        raise InputError(missing)

    def cost(files: list[bytes], values: np.ndarray) -> list[float]:
        instructions = []
        with tempfile.TemporaryDirectory() as folder:
            for content in files:
                path = Path(folder) / "layer.tflite"
                path.write_bytes(content)
                instructions.append(tflite_2_16.instructions(path, {"input": values}))
        return instructions

    return cost


def _litert_ns(files: list[bytes], values: np.ndarray) -> list[float]:
    """Nanoseconds of the fastest run of each file, in turns."""
    from tfsparsecap_export.encode import encodings
    from tfsparsecap_export.latency import run_seconds, warm_interpreter

    from benchmarks import one_layer

    interpreters = [warm_interpreter(content, values) for content in files]
    # XNNPACK's int8 kernel leaves the upper halves of AVX-512 registers in use, with which TFLite's kernels
    # take up to 3.5 times as long until a float kernel clears them. A model has float operations in between.
    clearing = warm_interpreter(one_layer.fully_connected([np.ones((4, 4), np.float32)], encodings.DENSE, 1))
    seconds: list[list[float]] = [[] for _ in files]
    for _ in range(_RUNS):
        for interpreter, mine in zip(interpreters, seconds, strict=True):
            clearing.invoke()
            mine += [run_seconds(interpreter) for _ in range(3)]
    return [1e9 * min(mine) for mine in seconds]


def print_table(cells: list[Cell], runtime: str) -> None:
    """Prints the mean ratios by rows and zeros, and how `auto` compares with the faster encoding."""
    from rich.console import Console
    from tfsparsecap_export.tables import new_table

    rows = sorted({cell.rows for cell in cells})
    title = f"int8 blocks: times faster than dense int8, geometric mean of the shapes ({runtime})"
    table = new_table(title, "zeros", *(f">{count} row{'s' if count > 1 else ''}" for count in rows))
    for sparsity in sorted({cell.sparsity for cell in cells}):
        ratios = []
        for count in rows:
            logs = [np.log(c.dense / c.blocks) for c in cells if (c.sparsity, c.rows) == (sparsity, count)]
            ratios.append(f"{np.exp(np.mean(logs)):.2f}" if logs else "")
        table.add_row(f"{sparsity:.0%}", *ratios)
    console = Console()
    console.print(table)
    worst = max(cells, key=lambda cell: cell.slower)
    share = np.mean([cell.slower <= _TOLERANCE for cell in cells])
    wins = np.mean([cell.blocks < cell.dense for cell in cells])
    smallest = np.mean([cell.larger <= 1.1 for cell in cells])
    console.print(
        f"{len(cells)} cells; blocks are faster in {wins:.0%}. auto takes at most 5 % longer than the faster"
        f" encoding in {share:.1%}, and is at most 10 % larger than the smaller one in {smallest:.1%}. Worst:"
        f" {worst.slower:.2f}x as long ({worst.outputs} x {worst.inputs}, {worst.sparsity:.0%} zeros,"
        f" {worst.rows} rows).",
        soft_wrap=True,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default."""
    options = _arguments(argv)
    cells = measure(options.runtime, SHAPES, ROWS, SPARSITIES)
    print_table(cells, options.runtime)
    if options.output:
        content = [{**dataclasses.asdict(cell), "slower": cell.slower} for cell in cells]
        atomic_write(options.output, json.dumps(content, indent=1) + "\n")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--runtime", choices=RUNTIMES, default="litert", help="default: litert")
    options.add_argument(
        "--output", type=Path, metavar="FILE.json", help="also write the figures of all cells"
    )
    return options.parse_args(argv)


if __name__ == "__main__":
    run(main)
