"""python -m benchmarks.zoo: which Keras models can be pruned and exported.

Each model has random weights and a small input. It is pruned, trained for two steps, stripped, saved, loaded,
exported, and run on LiteRT, in a process of its own; a process that crashes is a row of the table too. Each
row has the share of zeros after the training, the size of the file, and the largest difference between the
outputs of the file and the Keras model, relative to the largest output.

examples:
  python -m benchmarks.zoo
      all models: small ones, a network of each family of keras.applications, and KerasHub
  python -m benchmarks.zoo applications --json zoo.json
      a group of models; the rows are written to a file as well
  python -m benchmarks.zoo EfficientNetV2B0 gru_text
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_write
from tfsparsecap.errors import InputError, check_number, unknown_name

if TYPE_CHECKING:
    import keras

SPARSITY, STEPS, EXAMPLES = 0.5, 2, 4
#: Whether all weights are float -> largest difference of a correct file, relative to the largest output.
LARGEST_DIFFERENCE = {True: 0.01, False: 0.1}
SMALLEST_OUTPUT = 1e-3


@dataclasses.dataclass
class Row:
    """What was possible with a model.

    Attributes:
        name: of the model.
        weights: number of its weights.
        zeros: share of zeros in its prunable weights after the training; None if it could not be pruned.
        kilobytes: size of the file; None if it was not exported.
        float_weights: whether the file has no int8 weights.
        difference: largest difference between file and Keras model, relative to the largest output.
        seconds: for everything.
        reason: why it stopped, or an empty text.
    """

    name: str
    weights: int | None = None
    zeros: float | None = None
    kilobytes: float | None = None
    float_weights: bool = True
    difference: float | None = None
    seconds: float | None = None
    reason: str = ""

    @property
    def correct(self) -> bool:
        """Whether everything worked."""
        limit = LARGEST_DIFFERENCE[self.float_weights]
        return not self.reason and self.difference is not None and self.difference <= limit


def examine(
    name: str,
    build: Callable[[], "keras.Model"],
    folder: Path,
    *,
    run_eagerly: bool = False,
    done: Callable[[Row], None] = lambda row: None,
) -> Row:
    """Prunes, trains, strips, saves, loads and exports a model, and compares the file with it.

    Args:
        name: for the row.
        build: creates the model.
        folder: for files.
        run_eagerly: train without compiling, which takes less time for small models.
        done: called after each stage.

    Returns:
        The row; a stage that is not supported is its `reason`.
    """
    import keras
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter
    from tfsparsecap_export import export_model

    import tfsparsecap as sc
    from tfsparsecap.model_summary.nonzeros import weight_counts

    began = time.perf_counter()
    keras.utils.set_random_seed(0)
    row = Row(name)
    try:
        model = build()
        row.weights = model.count_params()
        inputs = example(model)
        sc.prune(model, sc.Supermask(SPARSITY, total_steps=STEPS))
        model.compile(keras.optimizers.Adam(1e-3), "mse", run_eagerly=run_eagerly, jit_compile=False)
        random = np.random.default_rng(1)
        outputs = model(inputs, training=False)
        targets = keras.tree.map_structure(lambda output: random.normal(size=output.shape), outputs)
        model.fit(inputs, targets, batch_size=EXAMPLES, epochs=STEPS, verbose=0)
        sc.strip_pruning(model)
        row.zeros = weight_counts(model, with_encoder=True)["sparsity"]
        done(row)
        model.save(folder / "model.keras")
        loaded = keras.models.load_model(folder / "model.keras")
        expected = _flat(model(inputs, training=False))
        for before, after in zip(expected, _flat(loaded(inputs, training=False)), strict=True):
            if np.abs(after - before).max() > 1e-5 * np.abs(before).max():
                raise InputError("the loaded model gives other outputs than the saved one")
        path = folder / "model.tflite"
        report = export_model(loaded, path, inputs=inputs, batch=EXAMPLES)
        row.kilobytes = report.bytes / 1e3
        row.float_weights = all(layer.is_float for layer in report.layers)
        file = Interpreter(str(path)).get_signature_runner("serving_default")
        names = [*file.get_input_details()]
        arrays = dict(zip(_in_order(names, loaded), keras.tree.flatten(inputs), strict=True))
        file_outputs = _flat(file(**arrays))
        if min(np.abs(output).max() for output in expected) < SMALLEST_OUTPUT:
            raise InputError("an output is about 0, so that a comparison would mean nothing")
        row.difference = max(
            float(np.abs(before - after).max() / np.abs(before).max())
            for before, after in zip(expected, file_outputs, strict=True)
        )
    except InputError as error:
        row.reason = str(error)
    row.seconds = time.perf_counter() - began
    done(row)
    return row


def example(model: "keras.Model") -> Any:
    """Random inputs of a model as it takes them, with EXAMPLES rows; open axes get the length of a text."""
    import keras
    import numpy as np

    from benchmarks.zoo_models import LENGTH, WORDS

    random = np.random.default_rng(0)

    def values(tensor: Any) -> np.ndarray:
        shape = (EXAMPLES, *(size or LENGTH for size in tensor.shape[1:]))
        if "mask" in tensor.name:
            return np.ones(shape, tensor.dtype)
        if "int" in tensor.dtype:
            return random.integers(0, 2 if "segment" in tensor.name else WORDS, shape).astype(tensor.dtype)
        if len(shape) == 4:  # images of 4 x 4 squares: deep networks would average noise to the same features
            rows, columns = (np.arange(size) * 4 // size for size in shape[1:3])
            squares = random.normal(size=(EXAMPLES, 4, 4, shape[3])).astype(tensor.dtype)
            return squares[:, rows][:, :, columns]
        return random.normal(size=shape).astype(tensor.dtype)

    if getattr(model, "inputs", None):
        return keras.tree.map_structure(values, model.inputs[0] if len(model.inputs) == 1 else model.input)
    shapes = model.get_build_config()["input_shape"]
    return keras.tree.map_shape_structure(lambda shape: values(keras.KerasTensor(shape)), shapes)


def _in_order(names: Sequence[str], model: "keras.Model") -> list[str]:
    """The names of a file's inputs in the order of the model's."""
    own = [tensor.name for tensor in getattr(model, "inputs", None) or ()]
    return own or sorted(names)


def _flat(outputs: Any) -> list:
    """All outputs as float64 arrays; those in dictionaries in the order of their keys."""
    import keras
    import numpy as np

    return [np.asarray(output, np.float64) for output in keras.tree.flatten(outputs)]


def _examine_in_child(name: str, limit: float, eager: bool) -> Row:
    """`examine` in another process, which may crash, run out of memory or take too long."""
    command = [sys.executable, "-m", "benchmarks.zoo", "--row", name, *(["--eager"] if eager else [])]
    began = time.perf_counter()
    try:
        child = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit)
        output, reason = child.stdout, ""
        if child.returncode:
            said = [line for line in child.stderr.splitlines() if line.strip()] or ["no message"]
            reason = f"exit code {child.returncode}: {said[-1].strip()}"
    except subprocess.TimeoutExpired as error:
        stdout = error.stdout or b""
        output = stdout.decode("utf-8", "replace") if isinstance(stdout, bytes) else stdout
        reason = f"not finished after {limit:.0f} seconds"
    rows = [line for line in output.splitlines() if line.startswith('{"name"')]
    row = Row(**json.loads(rows[-1])) if rows else Row(name)
    if reason:
        row.reason, row.seconds = reason, time.perf_counter() - began
    return row


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="pruned to 50 %, trained, stripped, saved, loaded, exported")
    for name in ("model", "weights", "zeros", "KB", "difference", "correct", "seconds"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    table.add_column("reason")

    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    for row in rows:
        table.add_row(
            row.name,
            text(row.weights, ","),
            text(row.zeros, ".1%"),
            text(row.kilobytes, ",.1f"),
            text(row.difference, ".1e"),
            "yes" if row.correct else "no",
            text(row.seconds, ".0f"),
            row.reason,
        )
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Examines models and prints a table.

    Raises:
        InputError: there is no such model.
    """
    command = parser(__doc__)
    command.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="models, or the groups small, applications and KerasHub (default: all)",
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to a file")
    command.add_argument(
        "--limit", type=float, default=1800, metavar="S", help="seconds for one model (default: 1800)"
    )
    command.add_argument(
        "--eager", action="store_true", help="train without compiling, which takes less time for two steps"
    )
    command.add_argument("--list", action="store_true", help="print the names of all models")
    command.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options = command.parse_args(argv)
    check_number("--limit", options.limit, above=0)
    start_tensorflow()
    from benchmarks.zoo_models import GROUPS, MODELS

    if options.list:
        for group, names in GROUPS.items():
            print(f"{group}: {', '.join(names)}")
        return
    names = [name for choice in options.names or GROUPS for name in GROUPS.get(choice, [choice])]
    for name in names:
        if name not in MODELS:
            raise unknown_name("model", name, [*GROUPS, *MODELS])
    if options.row:
        with tempfile.TemporaryDirectory() as folder:
            examine(
                names[0],
                MODELS[names[0]],
                Path(folder),
                run_eagerly=options.eager,
                done=lambda row: print(_as_json(row), flush=True),
            )
        return
    rows = []
    for name in tqdm(names, desc="models", delay=3, leave=False):
        rows.append(_examine_in_child(name, options.limit, options.eager))
        if options.json is not None:
            atomic_write(options.json, json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    Console().print(_table(rows))


def _as_json(row: Row) -> str:
    return json.dumps(dataclasses.asdict(row))


if __name__ == "__main__":
    run(main)
