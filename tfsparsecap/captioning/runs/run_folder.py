"""The folder of a run: its files, and which process may write to it."""

import contextlib
import json
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import SENTENCEPIECE, VOCABULARY, Tokenizer, WordTokenizer
from tfsparsecap.captioning.runs.checkpoints import save_weights
from tfsparsecap.captioning.settings.config_files import differences, load_config, save_config
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.files import atomic_path, atomic_write, csv_text, locked, make_folder, read_json
from tfsparsecap.errors import InputError

#: Settings that may change when a run is resumed: locations.
MAY_CHANGE = ("data.folder", "data.features", "data.sentencepiece", "data.cache_folder")
# Paths that may change when a run is resumed, if their last parts stay: files and folders that were moved, or
# are seen from another folder. (The file of a slim encoder has the same name in all runs.)
_MAY_MOVE = {
    "training.start_from": 1,
    "training.teacher": 1,
    "model.encoder.weights": 1,
    "model.encoder.slimmed": 2,
}
KEPT_CHECKPOINTS = 2


class RunFolder:
    """A run's `config.yaml`, `vocabulary.txt`, `checkpoints/`, `history.csv`, `logs/`, `model.keras`, scores;
    if its encoder is slim, `encoder.keras`; if it has teachers, `teachers.json` with the SHA-256 of their
    weights, and `teacher_captions.json` with the captions that they wrote.

    Args:
        path: the folder; it need not exist yet.

    Examples:
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
        self.encoder = self.path / "encoder.keras"
        self.data = self.path / "data.json"
        self.teachers = self.path / "teachers.json"
        self.teacher_captions = self.path / "teacher_captions.json"

    def check(self, config: Config, resume: bool) -> None:
        """Checks whether a run with these settings may start or resume here. Nothing is written.

        Raises:
            InputError: the folder of a new run exists already (and was not left incomplete by a killed
                process); or there is no run to resume, or it has other settings.
        """
        if not resume:
            if self.config_file.is_file():
                raise InputError(
                    f"{self.path} exists: pass --resume to resume that run, or name=… to start a new one"
                )
            if self.path.exists() and not (self.path.is_dir() and self._is_incomplete()):
                raise InputError(
                    f"{self.path} exists but is not a run folder (it has no config.yaml): pass name=… to"
                    " start a new run, or move the folder away"
                )
            return
        if not self.config_file.is_file():
            raise InputError(f"there is no run to resume in {self.path}: omit --resume to start one")
        changed = self.changed(config)
        if changed:
            key, before, now = changed[0]
            option = f"--config {shlex.quote(str(self.config_file))}"
            more = f" (and {len(changed) - 1} more settings differ)" if len(changed) > 1 else ""
            raise InputError(
                f"the run in {self.path} has {key}={_shown(before)}, not {_shown(now)}{more}: resume it with"
                f" its own settings ({option}), or pass name=… to start a new run"
            )

    def changed(self, config: Config) -> list[tuple[str, Any, Any]]:
        """Settings that prevent resuming because they differ: `(dotted key, the run's, the given value)`."""
        return [
            (key, before, now)
            for key, before, now in differences(self.load_config(), config)
            if key not in MAY_CHANGE and not _has_moved(key, before, now)
        ]

    def has_data(self, data: CaptionData) -> bool | None:
        """Whether the run was trained on this data set, or a copy of it; None if that is not known."""
        trained_on = self.data_digest()
        return None if trained_on is None else trained_on in data.digests()

    def data_note(self, data: CaptionData) -> str:
        """A note for the user if the run was trained on other data; otherwise empty."""
        if self.has_data(data) is not False:
            return ""
        return (
            f"the data of {self.path} has changed since the training: its validation and test images may have"
            " been trained on"
        )

    def data_digest(self) -> str | None:
        """`CaptionData.digest` of what the run was trained on; None if that is not known."""
        trained_on = self._data()
        return None if trained_on is None else trained_on["sha256"]

    def check_data(self, data: CaptionData) -> None:
        """Raises InputError if the run was trained on other data."""
        trained_on = self._data()
        if trained_on is not None and trained_on["sha256"] not in data.digests():
            raise InputError(
                f"the data of the run in {self.path} has changed since it began (then {trained_on['data']};"
                f" now {data.summary()}; names, captions, splits or files differ): restore it, or pass name=…"
                " to start a new run"
            )

    def _data(self) -> dict[str, str] | None:
        """The content of `data.json`; None in a run of an earlier version."""
        if not self.data.is_file():
            return None
        content = read_json(self.data, "delete it")
        if not isinstance(content, dict) or not {"data", "sha256"} <= set(content):
            raise InputError(f"{self.data} is damaged: delete it")
        return content

    def _is_incomplete(self) -> bool:
        """Whether the folder contains only what `create` writes before the settings."""
        first = {self.vocabulary.name, SENTENCEPIECE, self.checkpoints.name, self.data.name}
        paths = [path for path in self.path.iterdir() if not path.name.startswith(".")]
        if self.checkpoints.is_dir():
            paths += [path for path in self.checkpoints.iterdir() if not path.name.startswith(".")]
        return all(path.name in first or path == self.initial for path in paths)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against other processes while the block runs, or until the process is killed.

        Everything that writes settings, vocabulary, checkpoints or the model holds this lock. The folder is
        created if it does not exist, and removed at the end if nothing was written into it.

        Raises:
            InputError: another process is training in it, or it cannot be created.
        """
        created = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]

        def busy() -> None:
            raise InputError(f"another process is training in {self.path}: wait until it is done, or stop it")

        try:
            with locked(self.path / ".lock", busy):
                yield
        finally:
            with contextlib.suppress(OSError):  # a folder is not empty
                for folder in created:
                    folder.rmdir()

    def create(
        self,
        config: Config,
        tokenizer: Tokenizer,
        initial: Mapping[str, np.ndarray] | None = None,
        data: CaptionData | None = None,
        networks: Mapping[Path, keras.Model] | None = None,
    ) -> None:
        """Creates the folder with vocabulary and settings, or leaves nothing behind if that fails.

        The settings are written last: a folder that contains them has everything needed to resume.

        Args:
            initial: initial weights to keep; see `checkpoints.named_weights`.
            data: what the run is trained on, for `has_data`.
            networks: what a run that is not trained contains: `model`, and perhaps `encoder`.

        Raises:
            InputError: there is a run in the folder, or it cannot be written.
        """
        if self.config_file.exists():
            raise InputError(f"{self.path} exists: choose a new folder")
        try:
            make_folder(self.checkpoints)
            tokenizer.save_to(self.path)
            if initial:
                save_weights(self.initial, initial)
            if data is not None:
                self.write_json("data", {"data": data.summary(), "sha256": data.digest()})
            for path, network in (networks or {}).items():
                with atomic_path(path) as temporary:
                    network.save(temporary)
            self.save_config(config)
        except BaseException:  # an incomplete run folder would block the next attempt
            self._discard()
            raise

    def _discard(self) -> None:
        """Deletes what `create` has written; folders with other content stay."""
        files = [self.model, self.encoder, self.config_file, self.initial, self.data, self.vocabulary]
        files.append(self.path / SENTENCEPIECE)
        with contextlib.suppress(OSError):
            for file in files:
                file.unlink(missing_ok=True)
            self.checkpoints.rmdir()
            self.path.rmdir()

    def load_tokenizer(self, radix_base: int | None = None) -> Tokenizer:
        """Reads the tokenizer that the run was trained with.

        Args:
            radix_base: base of the radix encoding; None for words or pieces as tokens.

        Raises:
            InputError: the vocabulary is missing or damaged, or the radix base does not fit it.
        """
        pieces = self.path / SENTENCEPIECE
        tokenizer: SentencePieceTokenizer | WordTokenizer
        if pieces.is_file():
            tokenizer = SentencePieceTokenizer.load(pieces)
        else:
            tokenizer = WordTokenizer.load(self.vocabulary)
        return tokenizer if radix_base is None else RadixTokenizer(tokenizer, radix_base)

    def save_config(self, config: Config) -> None:
        """Writes `config.yaml`."""
        atomic_write(self.config_file, save_config(config))

    def load_config(self) -> Config:
        """The run's settings. Raises InputError if this is not a run folder."""
        if not self.config_file.is_file():
            raise InputError(
                f"{self.path} is not a run folder: it has no config.yaml; give a folder such as runs/NAME"
            )
        return load_config(self.config_file)

    def checkpoint(self, epoch: int) -> Path:
        """File of the checkpoint after an epoch, counted from 1."""
        return self.checkpoints / f"epoch-{epoch:04d}.npz"

    def slim_encoder(self, iteration: int) -> Path:
        """File of the image encoder's network in an iteration of `training.slim`, counted from 1."""
        return self.checkpoints / f"encoder-{iteration}.keras"

    def checkpoint_files(self) -> list[Path]:
        """All checkpoints, in order."""
        return sorted(self.checkpoints.glob("epoch-*.npz"))

    def drop_old_checkpoints(self, epoch: int, best: int | None) -> None:
        """Deletes all checkpoints except those of the last two epochs and of the best one."""
        keep = {self.checkpoint(number) for number in range(epoch - KEPT_CHECKPOINTS + 1, epoch + 1)}
        if best is not None:
            keep.add(self.checkpoint(best))
        for path in self.checkpoint_files():
            if path not in keep:
                path.unlink(missing_ok=True)

    def write_history(self, rows: list[dict[str, Any]]) -> None:
        """Writes `history.csv`: one row per epoch."""
        rows = [{name: _rounded(value) for name, value in row.items()} for row in rows]
        atomic_write(self.history, csv_text(rows))

    def write_json(self, name: str, content: Any) -> Path:
        """Writes `NAME.json` and returns its path."""
        path = self.path / f"{name}.json"
        atomic_write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        return path


def labelled_folders(paths: Iterable[str | os.PathLike]) -> dict[str, Path]:
    """Folders by name, each once, or by path if two have the same name."""
    folders = list({os.path.realpath(path): Path(path) for path in paths}.values())
    names = [os.path.basename(os.path.realpath(folder)) for folder in folders]
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    return dict(zip(names, folders, strict=True))


def best_epoch(history: list[dict[str, Any]], sparsity: float | None) -> int | None:
    """The epoch (counted from 1) with the best validation CIDEr, the last one of several, or None.

    Args:
        history: rows as in `history.csv`.
        sparsity: final sparsity of a pruned model; epochs with another sparsity do not count.
    """
    candidates = [
        row
        for row in history
        if "validation_CIDEr" in row
        and (sparsity is None or abs(row.get("sparsity", math.inf) - sparsity) <= 0.001)
    ]
    if not candidates:
        return None
    return int(max(candidates, key=lambda row: (row["validation_CIDEr"], row["epoch"]))["epoch"])


def of_phase(history: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    """The epochs of one phase, by its name."""
    return [row for row in history if row["phase"] == phase]


def _has_moved(key: str, before: Any, now: Any) -> bool:
    """Whether the values of a setting are paths that may name the same file or folder."""
    parts = _MAY_MOVE.get(key)
    if parts is None or before is None or now is None:
        return False
    old, new = ([value] if isinstance(value, str) else value for value in (before, now))
    return [Path(path).parts[-parts:] for path in old] == [Path(path).parts[-parts:] for path in new]


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
