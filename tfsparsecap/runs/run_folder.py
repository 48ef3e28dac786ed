"""The folder of a run: what lies where in `runs/NAME`, and when it may be written to."""

import contextlib
import csv
import errno
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from tfsparsecap.data.radix import RadixTokenizer
from tfsparsecap.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.data.tokenizers import SENTENCEPIECE, VOCABULARY, Tokenizer, WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write
from tfsparsecap.runs.checkpoints import save_weights
from tfsparsecap.settings.files import differences, load_config, save_config
from tfsparsecap.settings.schema import Config

#: Settings that may change between a run and its continuation: where things lie, not what they are.
MAY_CHANGE = (
    "data.folder",
    "data.features",
    "data.sentencepiece",
    "data.cache_folder",
    "training.validation_images",
)
KEPT_CHECKPOINTS = 2


class RunFolder:
    """`config.yaml`, `vocabulary.txt`, `checkpoints/`, `history.csv`, `logs/`, `model.keras` and scores of a
    run.

    Args:
        path: the folder; it need not exist yet.

    Example:
        >>> folder = RunFolder("runs/quickstart")
        >>> folder.model.as_posix()
        'runs/quickstart/model.keras'
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.vocabulary = self.path / VOCABULARY
        self.checkpoints = self.path / "checkpoints"
        self.initial = self.checkpoints / "initial.npz"
        self.history = self.path / "history.csv"
        self.logs = self.path / "logs"
        self.model = self.path / "model.keras"
        self._lock = self.path / ".lock"

    def check(self, config: Config, resume: bool) -> None:
        """Whether a run with these settings may start here, or go on. Nothing is written.

        Raises:
            InputError: the folder exists and `resume` is not asked for; or it is, and there is no such run or
                one with other settings. What a killed start left behind counts as nothing.
        """
        if not resume:
            if self.config_file.is_file():
                raise InputError(
                    f"{self.path} exists: pass --resume to go on with that run, or name=… for a new one"
                )
            if self.path.exists() and not (self.path.is_dir() and self._only_begun()):
                raise InputError(
                    f"{self.path} exists and is no run folder (it has no config.yaml): give name=… for a new"
                    " one, or move it away"
                )
            return
        if not self.config_file.is_file():
            raise InputError(f"there is no run to go on with in {self.path}: leave --resume out to start one")
        changed = self.changed(config)
        if changed:
            key, before, now = changed[0]
            more = f" (and {len(changed) - 1} more settings differ)" if len(changed) > 1 else ""
            raise InputError(
                f"the run in {self.path} has {key}={_shown(before)}, not {_shown(now)}{more}: go on with "
                f"its own settings (--config {self.config_file}), or give name=… for a new run"
            )

    def changed(self, config: Config) -> list[tuple[str, Any, Any]]:
        """Settings of which a continuation would be another run: `(dotted key, the run's, the given)`."""
        return [
            (key, before, now)
            for key, before, now in differences(self.load_config(), config)
            if key not in MAY_CHANGE and not (key == "training.start_from" and _same_name(before, now))
        ]

    def _only_begun(self) -> bool:
        """Whether nothing lies here but what `create` writes before the settings."""
        first = {self.vocabulary.name, SENTENCEPIECE, self.checkpoints.name}
        found = [path for path in self.path.iterdir() if not path.name.startswith(".")]
        if self.checkpoints.is_dir():
            found += [path for path in self.checkpoints.iterdir() if not path.name.startswith(".")]
        return all(path.name in first or path == self.initial for path in found)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other trainings out of the folder while the block runs; the end of the process frees it, too.

        Raises:
            InputError: another one is at work in it.
        """
        lock = FileLock(self._lock)
        # A file system that cannot lock does without; where nobody may write the first write will say it.
        with contextlib.suppress(NotImplementedError, OSError):
            try:
                lock.acquire(blocking=False)
            except Timeout as error:
                raise InputError(
                    f"another training is at work in {self.path}: wait until it is done, or stop it"
                ) from error
        try:
            yield
        finally:
            if lock.is_locked:
                self._lock.unlink(missing_ok=True)
                lock.release()

    def create(
        self, config: Config, tokenizer: Tokenizer, initial: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Makes the folder with vocabulary and settings in it, or, where that fails, leaves none behind.

        The settings come last: a folder that has them lacks nothing that the run needs to go on.

        Args:
            initial: weights that the run starts with, to be kept; see `checkpoints.named_weights`.
        """
        try:
            self._create(config, tokenizer, initial)
        except InputError:
            with contextlib.suppress(OSError):
                self.config_file.unlink(missing_ok=True)
                self.initial.unlink(missing_ok=True)
                self.vocabulary.unlink(missing_ok=True)
                (self.path / SENTENCEPIECE).unlink(missing_ok=True)
                # What else lies there is not ours to remove.
                self.checkpoints.rmdir()
                self.path.rmdir()
            raise

    def _create(self, config: Config, tokenizer: Tokenizer, initial: Mapping[str, np.ndarray] | None) -> None:
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "the disk is full" if full else error.strerror
            raise InputError(
                f"cannot make the folder {self.path}: {reason}; make room or change it"
            ) from error
        tokenizer.save_to(self.path)
        if initial:
            save_weights(self.initial, dict(initial))
        self.save_config(config)

    def load_tokenizer(self, radix_base: int | None = None) -> Tokenizer:
        """Reads the tokenizer that the run was trained with.

        Args:
            radix_base: base of the radix encoding; None where the captioner predicts words or pieces.

        Raises:
            InputError: the vocabulary is missing or damaged, or the radix base does not fit it.
        """
        pieces = self.path / SENTENCEPIECE
        if pieces.is_file():
            tokenizer = SentencePieceTokenizer.load(pieces)
        else:
            tokenizer = WordTokenizer.load(self.vocabulary)
        return tokenizer if radix_base is None else RadixTokenizer(tokenizer, radix_base)

    def save_config(self, config: Config) -> None:
        """Writes `config.yaml`."""
        atomic_write(self.config_file, save_config(config))

    def load_config(self) -> Config:
        """The run's settings. Raises InputError where this is no run folder."""
        if not self.config_file.is_file():
            raise InputError(
                f"{self.path} is no run folder: it has no config.yaml; give one such as runs/NAME"
            )
        return load_config(self.config_file)

    def checkpoint(self, epoch: int) -> Path:
        """File of the checkpoint after so many epochs."""
        return self.checkpoints / f"epoch-{epoch:04d}.npz"

    def checkpoint_files(self) -> list[Path]:
        """All checkpoints, the earliest first; what a killed write left behind is removed."""
        for leftover in self.checkpoints.glob(".epoch-*"):
            leftover.unlink(missing_ok=True)
        return sorted(self.checkpoints.glob("epoch-*.npz"))

    def drop_old_checkpoints(self, epoch: int, best: int | None) -> None:
        """Keeps the checkpoints of the last two epochs and of the best one; those after `epoch` are gone."""
        keep = {self.checkpoint(number) for number in range(epoch - KEPT_CHECKPOINTS + 1, epoch + 1)}
        if best is not None:
            keep.add(self.checkpoint(best))
        for path in self.checkpoint_files():
            if path not in keep:
                path.unlink(missing_ok=True)

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        """`history.csv`: a line an epoch."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _rounded(value) for name, value in row.items()} for row in rows)
        atomic_write(self.history, text.getvalue())

    def write_json(self, name: str, content: Any) -> Path:
        """Writes `NAME.json` and returns its path."""
        path = self.path / f"{name}.json"
        atomic_write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return path


def best_epoch(history: list[dict[str, Any]], sparsity: float | None) -> int | None:
    """The epoch (counted from 1) of the best validation CIDEr, or None where there is none yet.

    Args:
        history: rows as in `history.csv`.
        sparsity: with a pruned model, the sparsity it is to end with: earlier epochs, with more weights, do
            not count.
    """
    landed = [
        row
        for row in history
        if "validation_CIDEr" in row
        and (sparsity is None or abs(row.get("sparsity", math.inf) - sparsity) <= 0.001)
    ]
    if not landed:
        return None
    return int(max(landed, key=lambda row: row["validation_CIDEr"])["epoch"])


def of_phase(history: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    """The epochs of one phase: `train` or `fine_tune`."""
    return [row for row in history if row["phase"] == phase]


def _same_name(before: Any, now: Any) -> bool:
    """Whether two paths may well be of one run that was moved, or is named from elsewhere."""
    return isinstance(before, str) and isinstance(now, str) and Path(before).name == Path(now).name


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
