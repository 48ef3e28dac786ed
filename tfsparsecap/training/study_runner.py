"""Running a study: each run a process of its own, stopped and gone on with, several at once."""

import csv
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.training.config_files import differences, save_config
from tfsparsecap.training.run_folder import MAY_CHANGE, RunFolder
from tfsparsecap.training.study import GridRun

TRAIN = (sys.executable, "-m", "tfsparsecap.train")
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass
class Finished:
    """What a finished run left.

    Attributes:
        scores: `scores_test.json`.
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
    changed = [
        (key, before, now)
        for key, before, now in differences(folder.load_config(), run.config)
        if key not in MAY_CHANGE
    ]
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
        return Finished(run, folder.path, json.loads(scores.read_text(encoding="utf-8")), seconds)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot read what {folder.path} left ({error}): remove the folder") from error


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
        InputError: a folder holds a run with other settings.
    """
    if jobs < 1:
        raise InputError(f"--jobs is {jobs}: give 1 or more")
    done = {run.name for run in runs if finished_run(run, study_folder) is not None}
    waiting = [run for run in runs if run.name not in done]
    say(f"{len(runs)} runs, {len(done)} of them finished before")
    logs = study_folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    running: dict[str, _Process] = {}
    total = sum(_epochs(run) for run in runs)
    bar = tqdm(total=total, unit="epoch", disable=not progress, file=sys.stderr)
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
                running[run.name] = _Process(run, study_folder, logs, allowed)
            bar.n = sum(_epochs_done(run, study_folder) for run in runs)
            bar.set_postfix_str(", ".join(running))
            for name, process in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[name]
                if code == 0 and finished_run(process.run, study_folder) is not None:
                    done.add(name)
                    after_each()
                else:
                    failed[name] = process.last_words(code)
            time.sleep(_SECONDS_BETWEEN_LOOKS if running else 0.0)
    finally:
        bar.close()
        for process in running.values():
            process.stop()
    results = [finished_run(run, study_folder) for run in runs]
    return Outcome([result for result in results if result is not None], failed)


class _Process:
    """A training in a process of its own, whose output goes to a file."""

    def __init__(self, run: GridRun, study_folder: Path, logs: Path, jobs: int):
        self.run, self.log = run, logs / f"{run.name}.log"
        folder = RunFolder(study_folder / run.name)
        begun = folder.config_file.is_file()
        if not begun and folder.path.is_dir():
            shutil.rmtree(folder.path)  # killed before it had settings: nothing was trained
        settings = logs / f"{run.name}.yaml"
        atomic_write(settings, save_config(run.config))
        command = [*TRAIN, "--quiet", "--json"]
        command += ["--config", str(settings), "--runs", str(study_folder), *(["--resume"] if begun else [])]
        environment = dict(os.environ)
        if jobs > 1:
            threads = str(max(1, (os.cpu_count() or 1) // jobs))
            environment |= {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads}
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def poll(self) -> int | None:
        return self.process.poll()

    def last_words(self, code: int) -> str:
        """The last thing that the run said."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
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
