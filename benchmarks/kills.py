"""python -m benchmarks.kills: trainings that are killed at random times and resumed.

Starts tiny trainings as users do, kills them with SIGKILL, starts them again with --resume until they finish,
and compares them with an undisturbed training: all weights, gates, the state of the optimizer, the history,
and the final model must be the same, bit for bit, and no temporary file may be left. A process is killed
when it has used a random share of the CPU time of the undisturbed training. If one of two workers is killed,
the other one must end within a minute with exit code 3.

examples:
  python -m benchmarks.kills FOLDER
      six kills of each kind of training, a quarter of an hour on one core
  python -m benchmarks.kills FOLDER --kinds 'two workers' --kills 20 --seed 7
      more of one kind
"""

import argparse
import contextlib
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.trainer_processes import free_addresses
from tfsparsecap.command import parser, run
from tfsparsecap.errors import InputError, check_number, unknown_name

#: Kills after which a training may finish; exit code of a worker that lost another; seconds until it ends.
_KILLS_IN_A_ROW, _LOST, _END = 3, 3, 60.0
#: Seconds after which a training that does not end is given up, and between two looks at it.
_PATIENCE, _LOOK = 1800.0, 0.1
#: Shares of the CPU time: before the first, a process only imports libraries; after the second, it may end.
_EARLIEST, _LATEST = 0.35, 0.9
_SETTINGS = (
    "name=run",
    "data.train=20",
    "data.validation=3",
    "data.test=4",
    "data.image_size=32",
    "data.max_length=4",
    "model.embedding_size=16",
    "model.rnn_size=32",
    "model.attention_size=16",
    "model.dropout=0.2",
    "model.encoder.image_size=32",
    "model.encoder.layer=conv_pw_1_relu",
    "model.encoder.trainable=false",
    "pruning.sparsity=0.7",
    "training.batch_size=50",
    "training.epochs=6",
    "training.average_decay=0.9",
    "training.validation_images=0",
)
_SCST = ("training.epochs=2", "training.scst.epochs=4", "training.scst.batch_size=10")
_STUDY = """
name: run
config: settings.yaml
sparsities: [0.7]
captioners: {Soft-Attention: {}}
methods:
  Dense: {settings: {pruning: null}}
  SMP on a schedule: {settings: {pruning.method: supermask}}
"""
#: Kind -> more settings.
KINDS: dict[str, tuple[str, ...]] = {
    "one process": (),
    "two devices": ("training.distribution=mirrored",),
    "two workers": ("training.distribution=multi_worker",),
    "SCST": _SCST,
    "study": ("training.epochs=3",),
}


@dataclass
class Outcome:
    """What happened to the trainings of one kind.

    Attributes:
        kills: number of processes killed.
        finished: trainings that were killed at least once, and finished.
        identical: those that ended as the undisturbed one.
        problems: sentences.
    """

    kills: int = 0
    finished: int = 0
    identical: int = 0
    problems: list[str] = field(default_factory=list)


class Training:
    """A training as the user starts it: one command, or one per worker.

    Args:
        kind: one of `KINDS`.
        folder: for its data, its runs and the output of its commands.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.processes: list[psutil.Popen] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Starts it, or resumes it if there is something to resume."""
        paths = [f"data.folder={self.folder / 'scenes'}", f"data.cache_folder={self.folder / 'cache'}"]
        settings = [*_SETTINGS, *paths, *KINDS[self.kind]]
        python, runs = [sys.executable, "-m"], ["--runs", str(self.folder / "runs"), "--quiet"]
        if self.kind == "study":
            from tfsparsecap.captioning.settings.config_files import load_config, save_config

            (self.folder / "settings.yaml").write_text(save_config(load_config(None, settings)))
            study = self.folder / "study.yaml"
            study.write_text(_STUDY)
            commands = [[*python, "tfsparsecap.study", "--config", str(study), *runs]]
        else:
            resume = ["--resume"] * (self.folder / "runs/run/config.yaml").is_file()
            commands = [[*python, "tfsparsecap.train", *settings, *runs, *resume]]
        if self.kind == "two devices":
            commands[0][1:3] = ["-c", _TWO_DEVICES]
        if self.kind == "two workers":
            addresses = ",".join(free_addresses(2))
            (command,) = commands
            commands = [[*command, "--workers", addresses, "--worker", str(n)] for n in range(2)]
        self.processes = []
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        for number, command in enumerate(commands):
            with (self.folder / f"output-{number}.txt").open("a") as output:
                pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
                self.processes.append(psutil.Popen(command, env=environment, **pipes))

    def wait(self, cpu_seconds: float = float("inf")) -> float:
        """Waits until the processes have ended, or have used so much CPU time; returns what they used.

        Raises:
            TimeoutError: they do neither.
        """
        used, deadline = 0.0, time.monotonic() + _PATIENCE
        while any(process.poll() is None for process in self.processes):
            used = max(used, sum(_cpu_seconds(process, self.kind == "study") for process in self.processes))
            if used >= cpu_seconds:
                break
            if time.monotonic() > deadline:
                self.end()
                raise TimeoutError(f"{self.kind}: no end within {_PATIENCE:g} s, see {self.folder}")
            time.sleep(_LOOK)
        return used

    def kill(self, index: int) -> str:
        """Kills a process and waits for what must end with it; returns what is wrong, or nothing."""
        killed = self.processes[index]
        children = killed.children(recursive=True)
        began = (self.folder / "runs/run/config.yaml").is_file()
        killed.kill()
        killed.wait()
        _, alive = psutil.wait_procs(children, timeout=_END)
        if alive:
            return f"{len(alive)} child processes outlived the killed one"
        problems = []
        for other in self.processes:
            if other is not killed and other.poll() is None and not began:
                other.kill()  # it waits for five minutes until all have joined
            try:
                code = other.wait(_END)
            except psutil.TimeoutExpired:
                problems.append(f"a worker did not end within {_END:g} s after another was killed")
                continue
            if other is not killed and began and code not in (0, _LOST):
                problems.append(f"a worker ended with {code} after another was killed")
        self.end()
        return "; ".join(problems)

    def end(self) -> None:
        """Ends what is left of it."""
        for process in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in process.children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()

    def failure(self) -> str:
        """What is wrong with the exit codes of processes that have ended."""
        codes = [process.returncode for process in self.processes]
        return "" if not any(codes) else f"exit codes {codes}, see {self.folder}"


# Two logical devices must be made before TensorFlow starts.
_TWO_DEVICES = """
import sys
from tfsparsecap.command import run, start_tensorflow
start_tensorflow()
import tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tfsparsecap.train import main
run(main)
"""


def _cpu_seconds(process: psutil.Process, has_children: bool) -> float:
    """CPU seconds of a process and of its children, those that have ended included."""
    try:
        own = sum(process.cpu_times()[:4])
        if not has_children:
            return own
        return own + sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))
    except psutil.NoSuchProcess:
        return 0.0


def disturb(kind: str, folder: Path, kills: int, seed: int) -> Outcome:
    """Kills and resumes trainings of one kind.

    Args:
        kind: one of `KINDS`.
        folder: for data and runs; runs of an earlier call are deleted.
        kills: number of kills.
        seed: of the random times.
    """
    outcome, chance = Outcome(), random.Random(f"{kind} {seed}")
    place = folder / kind.replace(" ", "_")
    shutil.rmtree(place, ignore_errors=True)
    undisturbed = Training(kind, place / "undisturbed")
    undisturbed.start()
    cpu_seconds = undisturbed.wait()
    if undisturbed.failure():
        outcome.problems.append(f"undisturbed: {undisturbed.failure()}")
        return outcome
    number = 0
    while outcome.kills < kills:
        number += 1
        training, killed = Training(kind, place / str(number)), 0
        while True:
            training.start()
            more = killed < _KILLS_IN_A_ROW and outcome.kills < kills
            training.wait(cpu_seconds * chance.uniform(_EARLIEST, _LATEST) if more else float("inf"))
            running = [i for i, process in enumerate(training.processes) if process.poll() is None]
            if not running:
                break
            killed, outcome.kills = killed + 1, outcome.kills + 1
            problem = training.kill(chance.choice(running))
            if problem:
                outcome.problems.append(problem)
        if not killed:  # it was faster than the undisturbed one
            continue
        outcome.finished += 1
        problems = [training.failure(), *differences(place / "undisturbed/runs", training.folder / "runs")]
        problems += [f"{path} is left" for path in leftovers(training.folder)]
        problems = [problem for problem in problems if problem]
        outcome.identical += not problems
        outcome.problems += problems
        print(f"{kind}: {outcome}", file=sys.stderr, flush=True)
    return outcome


def differences(expected: Path, runs: Path) -> list[str]:
    """What differs between two folders of runs, except for times."""
    problems = []
    for path in sorted(expected.rglob("*")):
        other = runs / path.relative_to(expected)
        if not path.is_file() or "logs" in path.parts:
            continue
        if not other.is_file():
            problems.append(f"{other} is missing")
        elif path.suffix == ".npz" and _arrays(path) != _arrays(other):
            problems.append(f"{other} has other arrays")
        elif path.name == "history.csv" and _rows(path) != _rows(other):
            problems.append(f"{other} has other rows")
        elif path.name == "captions_test.json" and path.read_bytes() != other.read_bytes():
            problems.append(f"{other} has other captions")
        elif path.name == "model.keras" and _weights(path) != _weights(other):
            problems.append(f"{other} has other weights")
    return problems


def leftovers(folder: Path) -> list[Path]:
    """Temporary files and locks."""
    return [path for path in folder.rglob(".*") if path.name.startswith(".tfsparsecap-")]


def _arrays(path: Path) -> dict[str, bytes]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name].tobytes() for name in file.files if name != "notes"}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return [
            {name: value for name, value in row.items() if name not in ("seconds", "data_wait")}
            for row in csv.DictReader(file)
        ]


def _weights(path: Path) -> dict[str, bytes]:
    """The weights in a `.keras` file, whose archive contains times."""
    import zipfile

    import h5py

    weights: dict[str, bytes] = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            weights[name] = np.asarray(item).tobytes()

    with (
        zipfile.ZipFile(path) as archive,
        archive.open("model.weights.h5") as file,
        h5py.File(file) as content,
    ):
        content.visititems(add)
    return weights


def show(outcomes: dict[str, Outcome], console: Console) -> None:
    """Prints a table."""
    table = Table()
    for heading in ("training", "kills", "finished", "bit-identical", "other"):
        table.add_column(heading, justify="right" if heading[0] in "kfb" else "left")
    for kind, outcome in outcomes.items():
        numbers = map(str, (outcome.kills, outcome.finished, outcome.identical))
        table.add_row(kind, *numbers, "; ".join(outcome.problems) or "none")
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Kills, resumes, and prints a table; returns 1 if anything went wrong.

    Raises:
        InputError: there is no such kind, or an argument is out of range.
    """
    command = parser(__doc__)
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder for data and runs")
    command.add_argument("--kinds", nargs="+", metavar="KIND", default=list(KINDS), help="; ".join(KINDS))
    command.add_argument("--kills", type=int, metavar="N", default=6, help="kills of each kind (default: 6)")
    command.add_argument("--seed", type=int, default=0, help="seed of the random times (default: 0)")
    command.add_argument("--json", action="store_true", help="print everything as JSON")
    options: argparse.Namespace = command.parse_args(argv)
    check_number("--kills", options.kills, at_least=1)
    for kind in options.kinds:
        if kind not in KINDS:
            raise unknown_name("kind", kind, KINDS)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {options.folder}: {error.strerror}; give another folder"
        ) from error
    outcomes = {
        kind: disturb(kind, options.folder.resolve(), options.kills, options.seed) for kind in options.kinds
    }
    if options.json:
        print(json.dumps({kind: vars(outcome) for kind, outcome in outcomes.items()}))
    else:
        show(outcomes, Console())
    return 1 if any(outcome.problems for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    run(main)
