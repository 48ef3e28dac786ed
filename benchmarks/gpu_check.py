"""python -m benchmarks.gpu_check: does training on this machine's GPU give what the CPU gives?

Trains the quickstart's pruned captioner for two short epochs: on the CPU, on the GPU, on all GPUs together
(mirrored), with mixed precision, compiled by XLA, and resumed after the first epoch. Prints a Markdown table
with the relative difference of the training losses from those of the CPU, and their bounds. Each training is
a process of its own, so that one that crashes is a row of the table. Exit code 1: a row is not ok.

examples:
  python -m benchmarks.gpu_check
      at most five minutes; paste what it prints into an issue report
  python -m benchmarks.gpu_check --cpu
      the same on the CPU, without a limit of time
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfsparsecap.command import DONE, FAILED, parser, run
from tfsparsecap.errors import InputError

#: Seconds in which a machine with a GPU has finished.
MOST_SECONDS = 300.0
#: Of the quickstart, with fewer images.
SETTINGS = ["data.train=96", "data.validation=10", "data.test=10", "training.epochs=2"]
_EPOCHS, _BATCH = 2, 32
# Largest relative difference of the mean loss of each epoch. On a CPU, other kernels (without oneDNN, or with
# XLA) differ by up to 3e-5 and 2e-3, and mixed precision by 5e-5 and 2e-3: rounding grows from step to step.
_FLOAT32, _MIXED = (1e-3, 1e-2), (1e-2, 5e-2)
_PLAIN = "training.jit_compile=false"
_PROBE = """
import json, platform, keras, tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
names = [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
build = tf.sysconfig.get_build_info()
print(json.dumps({"gpus": names, "tensorflow": tf.__version__, "keras": keras.__version__,
    "cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version"),
    "python": platform.python_version(), "system": platform.platform()}))
"""


class Check(NamedTuple):
    """A training: its settings, and bounds of the difference in each epoch."""

    name: str
    settings: Sequence[str]
    bounds: tuple[float, float]


CHECKS = (
    Check("train", [_PLAIN], _FLOAT32),
    Check("mirrored", [_PLAIN, "training.distribution=mirrored"], _FLOAT32),
    Check("mixed_bfloat16", [_PLAIN, "training.precision=mixed_bfloat16"], _MIXED),
    Check("mixed_float16", [_PLAIN, "training.precision=mixed_float16"], _MIXED),
    Check("xla", ["training.jit_compile=true"], _FLOAT32),
)
_REFERENCE, _RESUMED = "cpu", "resume"


class Trained(NamedTuple):
    """What a training did: the loss of each epoch, seconds of its process, and why there are no losses."""

    losses: list[float]
    seconds: float
    problem: str = ""


class Trainer:
    """Trains in processes.

    Args:
        folder: for data and runs.
        cpu: hides all GPUs.
        seconds: after which processes are killed; None for no limit.

    Attributes:
        batch_size: of all trainings, whose losses are compared; all GPUs must share it equally.
    """

    def __init__(self, folder: Path, cpu: bool, seconds: float | None):
        self.folder, self.cpu, self.batch_size = folder, cpu, _BATCH
        self._end = None if seconds is None else time.monotonic() + seconds

    def probe(self) -> dict:
        """Versions, and the names of the GPUs that TensorFlow finds."""
        done = self._process([sys.executable, "-c", _PROBE], self.cpu)
        if isinstance(done, str) or done.returncode:
            raise InputError(f"TensorFlow does not start ({_reason(done)}): install it again")
        machine = json.loads(done.stdout.splitlines()[-1])
        gpus = len(machine["gpus"]) or 1
        self.batch_size = gpus * -(-_BATCH // gpus)
        return machine

    def train(self, name: str, settings: Sequence[str], *options: str) -> Trained:
        """Trains a run; that of the name `_REFERENCE` on the CPU."""
        command = [sys.executable, "-m", "tfsparsecap.train", *options, "--runs", str(self.folder / "runs")]
        given = {"name": name, "data.folder": self.folder / "scenes", "training.batch_size": self.batch_size}
        assignments = [*(f"{key}={value}" for key, value in given.items()), *SETTINGS, *settings]
        began = time.monotonic()
        done = self._process([*command, *assignments], self.cpu or name == _REFERENCE)
        seconds = time.monotonic() - began
        if isinstance(done, str) or done.returncode:
            return Trained([], seconds, _reason(done))
        with (self.folder / "runs" / name / "history.csv").open(newline="") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        return Trained(losses, seconds, "" if len(losses) == _EPOCHS else f"has {len(losses)} epochs")

    def resume(self, settings: Sequence[str]) -> Trained:
        """Resumes the first run of `CHECKS` as if it had been stopped in its last epoch."""
        run_folder = self.folder / "runs" / CHECKS[0].name
        checkpoints = sorted((run_folder / "checkpoints").glob("*.npz"))
        if len(checkpoints) < _EPOCHS or not (run_folder / "model.keras").exists():
            return Trained([], 0.0, f"{CHECKS[0].name} has not finished")
        checkpoints[-1].unlink()
        (run_folder / "model.keras").unlink()
        return self.train(CHECKS[0].name, settings, "--resume")

    def _process(self, command: list[str], cpu: bool) -> subprocess.CompletedProcess[str] | str:
        # On a GPU, TensorFlow would round the factors of float32 products to 10 bits (TF32).
        environment = {**os.environ, "NVIDIA_TF32_OVERRIDE": "0"}
        if cpu:
            environment["CUDA_VISIBLE_DEVICES"] = "-1"
        seconds_left = None if self._end is None else max(0.0, self._end - time.monotonic())
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=seconds_left, check=False
            )
        except subprocess.TimeoutExpired:
            return "not finished in time"


def _reason(done: subprocess.CompletedProcess[str] | str) -> str:
    """Why a process has failed: its last line, which a table can contain."""
    if isinstance(done, str):
        return done
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return lines[-1].replace("|", "/")[:200]


def differences(losses: Sequence[float], expected: Sequence[float]) -> list[float]:
    """Relative differences of losses, infinite for those that are not finite.

    Examples:
        >>> differences([1.5, float("nan")], [1.0, 1.0])
        [0.5, inf]
    """
    return [
        abs(loss - reference) / abs(reference) if math.isfinite(loss) else math.inf
        for loss, reference in zip(losses, expected, strict=True)
    ]


def check(trainer: Trainer) -> tuple[list[str], bool]:
    """Runs all checks; returns the lines of a Markdown table, and whether all are within their bounds."""
    reference = trainer.train(_REFERENCE, [_PLAIN])
    rows = [(Check(_REFERENCE, [], _FLOAT32), reference)]
    for training in CHECKS:
        print(f"{rows[-1][0].name}: {rows[-1][1].seconds:.0f} s", file=sys.stderr)
        rows.append((training, trainer.train(training.name, training.settings)))
    rows.append((CHECKS[0]._replace(name=_RESUMED), trainer.resume(CHECKS[0].settings)))
    lines = [
        "| training | result | loss by epoch | difference from the CPU | bounds | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    good = True
    for training, trained in rows:
        result, apart = trained.problem or "ok", ""
        if not trained.problem and reference.losses:
            errors = differences(trained.losses, reference.losses)
            apart = ", ".join(f"{value:.1e}" for value in errors)
            if not all(value <= bound for value, bound in zip(errors, training.bounds, strict=True)):
                result = "too far from the CPU"
        good &= result == "ok"
        losses = ", ".join(f"{loss:.5f}" for loss in trained.losses)
        bounds = ", ".join(f"{bound:.0e}" for bound in training.bounds)
        lines.append(
            f"| {training.name} | {result} | {losses} | {apart} | {bounds} | {trained.seconds:.0f} |"
        )
    return lines, good


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("--cpu", action="store_true", help="run the checks on the CPU")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Raises:
        InputError: TensorFlow finds no GPU, and `--cpu` is not given.
    """
    options = arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder), options.cpu, None if options.cpu else MOST_SECONDS)
        machine = trainer.probe()
        if not machine["gpus"] and not options.cpu:
            raise InputError(
                "TensorFlow finds no GPU: install tfsparsecap[gpu] and NVIDIA's driver (docs/gpus.md), or"
                " give --cpu to run the checks on the CPU"
            )
        lines, good = check(trainer)
    names = ", ".join(machine["gpus"]) or "the CPU"
    print(
        f"tfsparsecap on {names}: TensorFlow {machine['tensorflow']} (built for CUDA {machine['cuda']} and"
        f" cuDNN {machine['cudnn']}), Keras {machine['keras']}, Python {machine['python']},"
        f" {machine['system']}\n"
    )
    print("\n".join(lines))
    return DONE if good else FAILED


if __name__ == "__main__":
    run(main)
