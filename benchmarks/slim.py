"""python -m benchmarks.slim: structured pruning of many architectures.

For each architecture, with random weights: removes half of the channels, and compares multiply-adds and the
latency of LiteRT (processor time of one thread, batch 1, the files in turns). Then makes all kernels multiply
half of the channels by zero, and compares the outputs before and after their removal. One process for each
architecture.

examples:
  python -m benchmarks.slim ResNet50 MobileNetV2
      two architectures
  python -m benchmarks.slim --json slim.json --no-latency
      all, without latencies
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_write
from tfsparsecap.errors import InputError

#: The outputs may differ by so much, relative to the largest.
TOLERANCE = 1e-4
_SEED = 0


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help="architectures; all by default")
    options.add_argument("--ratio", type=float, default=0.5, help="share of the channels to remove")
    options.add_argument("--no-latency", action="store_true", help="do not measure latencies")
    options.add_argument("--int8", action="store_true", help="also measure int8 files")
    options.add_argument("--runs", type=int, default=20, help="timed runs of each file")
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; 1 if an architecture fails or its outputs change."""
    options = arguments(argv)
    if options.one:
        start_tensorflow()
        print(json.dumps(measure(options.names[0], options.ratio, options)))
        return 0
    start_tensorflow()
    from benchmarks.architectures import ARCHITECTURES

    for name in options.names:
        if name not in ARCHITECTURES:
            raise InputError(f"there is no architecture {name}: choose from {', '.join(ARCHITECTURES)}")
    results = []
    print(HEADER)
    for name in options.names or ARCHITECTURES:
        command = [sys.executable, "-m", "benchmarks.slim", name, "--one", "--ratio", str(options.ratio)]
        command += ["--runs", str(options.runs)]
        command += [option for option in ("--no-latency", "--int8") if option in sys.argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            results.append({"name": name, "error": reason})
            print(f"| {name} | failed: {reason} |", flush=True)
            continue
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print(row(results[-1]), flush=True)
        if options.json:
            atomic_write(options.json, json.dumps(results, indent=1).encode())
    return int(any("error" in result or result["difference"] > TOLERANCE for result in results))


def measure(name: str, ratio: float, options: argparse.Namespace) -> dict[str, Any]:
    """Slims one architecture; returns its row of the table."""
    import keras
    import numpy as np

    import tfsparsecap as sc
    from benchmarks.architectures import ARCHITECTURES
    from benchmarks.zero_channels import randomize, zero_channels

    keras.utils.set_random_seed(_SEED)
    rng = np.random.default_rng(_SEED)
    model = ARCHITECTURES[name]()
    x = rng.random((2, *model.input_shape[1:]), "float32")
    randomize(model, x, rng)
    start = time.perf_counter()
    plan = sc.slim_plan(model, ratio)
    slim = plan.apply()
    seconds = time.perf_counter() - start
    result: dict[str, Any] = {
        "name": name,
        "seconds": seconds,
        "removed": 1 - plan.after.channels / plan.before.channels,
        "parameters": [plan.before.parameters, plan.after.parameters],
        "flops": [plan.before.flops, plan.after.flops],
        "notes": plan.notes,
    }
    if not options.no_latency:
        result["ms"] = _latencies([_file(model, None), _file(slim, None)], x[:1], options.runs)
        if options.int8:
            result["ms_int8"] = _latencies([_file(model, x), _file(slim, x)], x[:1], options.runs)
    chosen, exact = zero_channels(model, rng)
    smaller = sc.slim(model, None, multiple=1)
    before, after = (np.asarray(keras.tree.flatten(network(x))[0]) for network in (model, smaller))
    result |= {"zero": chosen, "exact": exact, "parameters_without_zero": smaller.count_params()}
    result["difference"] = float(np.abs(before - after).max() / max(np.abs(before).max(), 1e-30))
    return result


def _file(model: Any, calibration: Any) -> bytes:
    """The model as a .tflite file: float32, or int8 with the ranges of some inputs."""
    import tensorflow as tf
    from tfsparsecap_export.keras_to_tflite.graph import model_graph

    if calibration is None:
        return model_graph(model)
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([example[None]] for example in calibration)
        return converter.convert()


def _latencies(files: list[bytes], x: Any, runs: int) -> list[float]:
    """Fewest milliseconds of processor time of each file, in turns on one thread."""
    from ai_edge_litert.interpreter import Interpreter

    runners = []
    for content in files:
        interpreter = Interpreter(model_content=content, num_threads=1)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        runners.append(interpreter)
    times: list[list[float]] = [[] for _ in files]
    for _ in range(runs):
        for interpreter, of_file in zip(runners, times, strict=True):
            start = time.process_time()  # not the clock: other processes may use the cores
            interpreter.invoke()
            of_file.append(1e3 * (time.process_time() - start))
    return [min(of_file) for of_file in times]


COLUMNS = (
    "architecture",
    "channels removed",
    "multiply-adds (M)",
    "ratio",
    "parameters (M)",
    "ms, float32",
    "ratio",
    "ms, int8",
)
COLUMNS += ("ratio", "seconds", "difference")
HEADER = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"


def row(result: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [result["name"], f"{result['removed']:.0%}"]
    for key, scale, digits in (("flops", 1e6, 0), ("parameters", 1e6, 2), ("ms", 1, 1), ("ms_int8", 1, 1)):
        if key in result:
            before, after = result[key]
            change, ratio = (
                f"{before / scale:.{digits}f} → {after / scale:.{digits}f}",
                f"{before / after:.1f}x",
            )
        else:
            change = ratio = ""
        cells += [change] if key == "parameters" else [change, ratio]
    cells += [f"{result['seconds']:.1f}", f"{result['difference']:.0e}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
