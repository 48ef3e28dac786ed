"""Running a study: one training process for each run, several at once, stopped and resumed."""

import contextlib
import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from tfsparsecap.captioning.inference.scoring import from_rows, scores_of
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import save_config
from tfsparsecap.core.child_processes import start_child
from tfsparsecap.core.files import atomic_write, make_folder
from tfsparsecap.errors import InputError, short_line
from tfsparsecap.papers.score_table import Result
from tfsparsecap.papers.study_checks import check_data
from tfsparsecap.papers.study_grid import SCORES, GridRun

TRAIN = (sys.executable, "-m", "tfsparsecap.train")
_POLL_SECONDS = 1.0


def read_result(run: GridRun, study_folder: Path, with_encoder: bool = False) -> Result | None:
    """The results of a run; None if it is not finished.

    If `tfsparsecap.evaluate` has replaced the scores of the training, they are computed again from the
    captions with the training's tokenization, so that all runs of a study can be compared.

    Args:
        with_encoder: count the encoder's weights, also if the run did not prune them.

    Raises:
        InputError: the folder holds a run with other settings, or a file in it is damaged.
    """
    folder = RunFolder(study_folder / run.name)
    if not folder.config_file.is_file():
        return None
    changed = folder.changed(run.config)
    if changed:
        key, before, now = changed[0]
        raise InputError(
            f"{folder.path} was trained with {key}={before}, but the study has {now}: remove that folder to"
            " train it again, or rename the study"
        )
    score_file = folder.path / "scores_test.json"
    if not (folder.model.is_file() and score_file.is_file()):
        return None
    try:
        with folder.history.open(encoding="utf-8", newline="") as file:
            seconds = sum(float(row["seconds"]) for row in csv.DictReader(file))
        content = json.loads(score_file.read_text(encoding="utf-8"))
        weights, nonzeros = (
            int(content[name]) + (int(content.get(f"encoder_{name}", 0)) if with_encoder else 0)
            for name in ("weights", "nonzero_weights")
        )
        if "tokenizer" in content:
            captions = json.loads((folder.path / "captions_test.json").read_text(encoding="utf-8"))
            content |= scores_of(from_rows(captions))
        scores = {name: float(content[name]) for name in SCORES if name in content}
    except (OSError, ValueError, KeyError, TypeError) as error:
        command = f"python -m tfsparsecap.evaluate {shlex.quote(str(folder.path))}"
        raise InputError(
            f"cannot read the results in {folder.path} ({error!r}): evaluate the run again with"
            f" {command}, or remove the folder to train it again"
        ) from error
    return Result(
        run.captioner, run.method, run.sparsity, run.seed, scores,
        final_sparsity=1.0 - nonzeros / max(1, weights), nonzero_weights=nonzeros, weights=weights,
        seconds=seconds, run=str(folder.path), variant=run.variant,
    )  # fmt: skip


def run_study(
    runs: Sequence[GridRun],
    study_folder: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
    log: Callable[[str], None] = print,
    after_each: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """Trains the runs that are not finished; interrupted ones are resumed.

    Args:
        runs: from `study_grid.grid`.
        study_folder: `runs/NAME` of the study.
        jobs: number of runs at once; they share the machine's cores.
        progress: show a progress bar over all epochs.
        log: receives messages.
        after_each: called whenever a run has finished, for example to update the tables.

    Returns:
        The failed runs by name, each with its error message; runs that need a failed one fail, too.

    Raises:
        InputError: a folder holds a run with other settings, a run would be trained again although others
            needed it, or the data is missing or has no test split.
    """
    if jobs < 1:
        raise InputError(f"--jobs is {jobs}: give 1 or more")
    done = {run.name for run in runs if read_result(run, study_folder) is not None}
    waiting = [run for run in runs if run.name not in done]
    _check_starts(waiting, runs, study_folder)
    for run in waiting:
        for teacher in run.config.training.teacher if run.teacher is None else ():
            if not RunFolder(Path(teacher).expanduser()).model.is_file():
                raise InputError(
                    f"training.teacher is {teacher}, which is not a finished run: train it first"
                )
    check_data(waiting, runs, study_folder, progress=progress)
    log(f"{len(runs)} runs, {len(done)} of them already finished")
    logs = study_folder / "logs"
    make_folder(logs)
    failed: dict[str, str] = {}
    running: list[_Process] = []
    shown: tuple[int, str] | None = None
    epochs = sum(map(_epochs, runs)), sum(_finished_epochs(run, study_folder) for run in runs)
    bar = tqdm(total=epochs[0], initial=epochs[1], unit="epoch", disable=not progress, file=sys.stderr)
    with _sigterm_raises(), bar:
        try:
            while waiting or running:
                for run in list(waiting):
                    if lost := [name for name in run.needs if name in failed]:
                        waiting.remove(run)
                        failed[run.name] = f"it needs {lost[0]}, which failed"
                # The first run fills the cache of features that the others read.
                allowed = jobs if done else 1
                ready = [run for run in waiting if done.issuperset(run.needs)]
                for run in ready[: max(0, allowed - len(running))]:
                    waiting.remove(run)
                    slot = min(set(range(allowed)) - {process.slot for process in running})
                    running.append(_Process(run, study_folder, logs, allowed, slot))
                names = ", ".join(process.run.name for process in running)
                finished = sum(_finished_epochs(run, study_folder) for run in runs)
                # In a terminal, the time is updated each second; a log file gets no line without news.
                if sys.stderr.isatty() or (finished, names) != shown:
                    bar.n, shown = finished, (finished, names)
                    bar.set_postfix_str(names)
                for process in [process for process in running if process.process.poll() is not None]:
                    running.remove(process)
                    if process.process.poll() or read_result(process.run, study_folder) is None:
                        failed[process.run.name] = process.error()
                        continue
                    done.add(process.run.name)
                    for warning in process.warnings():
                        log(f"{process.run.name}: {short_line(warning)}")
                    try:
                        after_each()
                    except (InputError, OSError) as error:  # must not stop the other runs
                        log(f"not written: {error}")
                time.sleep(_POLL_SECONDS if running else 0.0)
        finally:
            for process in running:
                # Its finished epochs are kept. Background processes may ignore SIGINT.
                process.process.terminate()
            for process in running:
                process.wait()
    return failed


def _check_starts(waiting: Sequence[GridRun], runs: Sequence[GridRun], study_folder: Path) -> None:
    """Raises InputError if a run that others needed would be trained again."""
    for run in waiting:
        after = [
            str(study_folder / other.name)
            for other in runs
            if run.name in other.needs and RunFolder(study_folder / other.name).config_file.is_file()
        ]
        if after:
            raise InputError(
                f"{study_folder / run.name} is not finished, but {', '.join(after)} needed it: restore"
                " it, or remove these folders as well"
            )


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does, so that no training outlives the study."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Process:
    """A training in a process of its own, with its output in a log file."""

    def __init__(self, run: GridRun, study_folder: Path, logs: Path, jobs: int, slot: int):
        self.run, self.slot, self.log = run, slot, logs / f"{run.name}.log"
        settings = logs / f"{run.name}.yaml"
        atomic_write(settings, save_config(run.config))
        command = [*TRAIN, "--quiet", "--json", "--config", str(settings), "--runs", str(study_folder)]
        if RunFolder(study_folder / run.name).config_file.is_file():
            command.append("--resume")
        environment = dict(os.environ)
        if jobs > 1:
            threads = str(max(1, (os.cpu_count() or 1) // jobs))
            environment |= {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads}
            # Without it, the first process takes all memory of a GPU.
            environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
            devices = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
            if len(devices) > 1:
                environment["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
        with self.log.open("a", encoding="utf-8") as log:
            self.log_start = log.tell()
            self.process = start_child(command, log, environment)

    def error(self) -> str:
        """Why the training failed, or why a training that succeeded has no scores."""
        lines = self._lines() or ["no output"]
        code = self.process.poll()
        errors = [line for line in lines if ("error: " if code else "was not evaluated") in line]
        message = (errors or lines)[-1].removeprefix("error: ")[:300]
        return f"{message} (exit code {code}; log: {self.log})"

    def warnings(self) -> list[str]:
        """The last two different warnings of the training."""
        return list(dict.fromkeys(line for line in self._lines() if line.startswith("warning: ")))[-2:]

    def _lines(self) -> list[str]:
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self.log_start)
            return log.read().strip().splitlines()

    def wait(self) -> None:
        """Waits until the process has ended, and ends it if it does not."""
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _epochs(run: GridRun) -> int:
    training = run.config.training
    return training.epochs + training.fine_tune.epochs + (training.scst.epochs if training.scst else 0)


def _finished_epochs(run: GridRun, study_folder: Path) -> int:
    folder = RunFolder(study_folder / run.name)
    if (folder.path / "scores_test.json").is_file():
        return _epochs(run)  # also if training stopped early
    return folder.history.read_text(encoding="utf-8").count("\n") - 1 if folder.history.is_file() else 0
