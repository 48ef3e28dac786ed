"""Running a study: each run a process of its own, stopped and gone on with, several at once."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.inference.scoring import from_rows, scores_of
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.build import load_data
from tfsparsecap.settings.files import save_config
from tfsparsecap.settings.schema import Config
from tfsparsecap.studies.study import GridRun

TRAIN = (sys.executable, "-m", "tfsparsecap.train")
_SECONDS_BETWEEN_LOOKS = 1.0
#: What `scores_test.json` has, whatever else is in it.
_COUNTS = ("weights", "nonzero_weights")


@dataclass
class Finished:
    """What a finished run left.

    Attributes:
        scores: `scores_test.json`; where `tfsparsecap.evaluate` wrote it anew, in the training's own
            tokenisation again, so that all runs of a study compare.
        seconds: of its training, all epochs together, by `history.csv`.
    """

    run: GridRun
    folder: Path
    scores: dict
    seconds: float


@dataclass
class Outcome:
    """How a study ended: its finished runs, and those that failed with what they said last."""

    finished: list[Finished]
    failed: dict[str, str] = field(default_factory=dict)


def finished_run(run: GridRun, study_folder: Path) -> Finished | None:
    """What a run left, or None where it is not finished.

    Raises:
        InputError: the folder holds a run with other settings, or what it left cannot be read.
    """
    folder = RunFolder(study_folder / run.name)
    if not folder.config_file.is_file():
        return None
    changed = folder.changed(run.config)
    if changed:
        key, before, now = changed[0]
        raise InputError(
            f"{folder.path} was trained with {key}={before}, and the study says {now}: remove that folder to"
            " train it again, or give the study another name"
        )
    scores = folder.path / "scores_test.json"
    if not (folder.model.is_file() and scores.is_file()):
        return None
    try:
        with folder.history.open(encoding="utf-8", newline="") as file:
            seconds = sum(float(row["seconds"]) for row in csv.DictReader(file))
        found = json.loads(scores.read_text(encoding="utf-8"))
        if not all(isinstance(found[name], int) for name in _COUNTS):
            raise ValueError("its counts of weights are no numbers")
        if "tokenizer" in found:
            captions = folder.path / "captions_test.json"
            found |= scores_of(from_rows(json.loads(captions.read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"cannot read what {folder.path} left ({error}): write its scores again with"
            f" python -m tfsparsecap.evaluate {folder.path}, or remove the folder to train it again"
        ) from error
    return Finished(run, folder.path, found, seconds)


def run_study(
    runs: Sequence[GridRun],
    study_folder: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
    say: Callable[[str], None] = print,
    after_each: Callable[[], None] = lambda: None,
) -> Outcome:
    """Trains what is not finished, and goes on with what was begun.

    Args:
        runs: of `study.grid`.
        study_folder: `runs/NAME` of the study.
        jobs: runs at once; the machine's cores are shared among them.
        progress: show a bar of all epochs.
        say: gets sentences about what is going on.
        after_each: called when a run has finished, such as to write the table anew.

    Returns:
        The finished runs and the failed ones; runs that start from a failed one are not tried.

    Raises:
        InputError: a folder holds a run with other settings, or one that started with a run that is gone; the
            data are not there, or have no test split.
    """
    if jobs < 1:
        raise InputError(f"--jobs is {jobs}: give 1 or more")
    done = {run.name for run in runs if finished_run(run, study_folder) is not None}
    waiting = [run for run in runs if run.name not in done]
    _check_starts(waiting, runs, study_folder)
    check_inputs(run.config for run in waiting)
    say(f"{len(runs)} runs, {len(done)} of them finished before")
    logs = study_folder / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {logs}: {error.strerror}; choose --runs") from error
    failed: dict[str, str] = {}
    running: dict[str, _Process] = {}
    total, before = sum(map(_epochs, runs)), sum(_epochs_done(run, study_folder) for run in runs)
    bar = tqdm(total=total, initial=before, unit="epoch", disable=not progress, file=sys.stderr)
    with _sigterm_as_ctrl_c(), bar:
        try:
            while waiting or running:
                for run in [run for run in waiting if run.start_from in failed]:
                    waiting.remove(run)
                    failed[run.name] = f"it starts from {run.start_from}, which failed"
                # The first run fills the cache of features that the others read.
                allowed = jobs if done else 1
                ready = [run for run in waiting if run.start_from is None or run.start_from in done]
                for run in ready[: max(0, allowed - len(running))]:
                    waiting.remove(run)
                    slot = min(set(range(allowed)) - {process.slot for process in running.values()})
                    running[run.name] = _Process(run, study_folder, logs, allowed, slot)
                bar.n = sum(_epochs_done(run, study_folder) for run in runs)
                bar.set_postfix_str(", ".join(running))
                for name, process in list(running.items()):
                    code = process.poll()
                    if code is None:
                        continue
                    del running[name]
                    if code == 0 and finished_run(process.run, study_folder) is not None:
                        done.add(name)
                        _tell(after_each, say)
                    else:
                        failed[name] = process.last_words(code)
                time.sleep(_SECONDS_BETWEEN_LOOKS if running else 0.0)
        finally:
            for process in running.values():
                process.stop()
    results = [finished_run(run, study_folder) for run in runs]
    return Outcome([result for result in results if result is not None], failed)


def check_inputs(configs: Iterable[Config]) -> None:
    """Whether the data that runs name are there, with pictures to test on, before the first one is trained.

    Raises:
        InputError: the data cannot be read, or have no test split.
    """
    seen = []
    for config in configs:
        features = config.data.features
        if features is not None and not Path(features).expanduser().is_dir():
            raise InputError(
                f"data.features is {features}, and there is no such folder: give data.features=…"
            )
        # Scenes are drawn by the run that needs them first.
        if config.data.kind == "scenes" or config.data in seen:
            continue
        seen.append(config.data)
        data = load_data(config)
        if not data.split("test"):
            raise InputError(
                f"{data.name} has no test split, which a study compares its runs on: give data with one"
            )


def _check_starts(waiting: Sequence[GridRun], runs: Sequence[GridRun], study_folder: Path) -> None:
    """Raises InputError where a run is to be trained (anew) that others have started with already."""
    for run in waiting:
        after = [
            str(study_folder / other.name)
            for other in runs
            if other.start_from == run.name and (study_folder / other.name / "config.yaml").is_file()
        ]
        if after:
            raise InputError(
                f"{study_folder / run.name} is not finished, and was when {', '.join(after)} started with it:"
                " put it back, or remove these folders, too"
            )


def _tell(after_each: Callable[[], None], say: Callable[[str], None]) -> None:
    """What is done after a run may fail without an end to the runs that go on."""
    try:
        after_each()
    except (InputError, OSError) as error:
        say(f"not written: {error}")


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """`kill` ends a study as Ctrl-C does, so that no training outlives it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python takes signals in the main thread only
        return

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Process:
    """A training in a process of its own, whose output goes to a file."""

    def __init__(self, run: GridRun, study_folder: Path, logs: Path, jobs: int, slot: int):
        self.run, self.slot, self.log = run, slot, logs / f"{run.name}.log"
        begun = RunFolder(study_folder / run.name).config_file.is_file()
        settings = logs / f"{run.name}.yaml"
        atomic_write(settings, save_config(run.config))
        command = [*TRAIN, "--quiet", "--json"]
        command += ["--config", str(settings), "--runs", str(study_folder), *(["--resume"] if begun else [])]
        environment = dict(os.environ)
        if jobs > 1:
            threads = str(max(1, (os.cpu_count() or 1) // jobs))
            environment |= {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads}
            # Otherwise the first one takes all memory of a GPU.
            environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
            devices = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
            environment |= {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} if devices[1:] else {}
        with self.log.open("a", encoding="utf-8") as log:
            self.begin = log.tell()
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def poll(self) -> int | None:
        return self.process.poll()

    def last_words(self, code: int) -> str:
        """Why it failed, or, where it did not, why it has no scores: the last thing that it said of that."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self.begin)
            lines = log.read().strip().splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        if not code:
            errors = [line for line in lines if "was not evaluated" in line]
        said = errors[-1] if errors else lines[-1][:300] if lines else "it said nothing"
        return f"{said} (exit code {code}; all of it in {self.log})"

    def stop(self) -> None:
        """Ends it; its last whole epoch is kept. What runs in the background may ignore SIGINT."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _epochs(run: GridRun) -> int:
    return run.config.training.epochs + run.config.training.fine_tune.epochs


def _epochs_done(run: GridRun, study_folder: Path) -> int:
    history = RunFolder(study_folder / run.name).history
    try:
        rows = history.read_text(encoding="utf-8").count("\n") - 1
    except OSError:
        return 0
    # Early stopping leaves epochs out.
    return _epochs(run) if (study_folder / run.name / "scores_test.json").is_file() else rows
