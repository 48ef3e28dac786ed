"""Where a schedule of removals is, in memory and in a folder."""

import glob
import hashlib
import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.saved_models import load_model, reason
from tfsparsecap.slimming.graph import Graph, replace_refs
from tfsparsecap.slimming.groups import skipped
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.selection import Whole

#: Keys of configurations that differ if the same script runs again: names that Keras counts up, and seeds.
_VOLATILE = {"name", "seed", "build_config", "shared_object_id"}


def fingerprint(graph: Graph) -> str:
    """Returns a digest of the layers of a model, of their connections and of the shapes of their weights.

    Names of layers do not count, because Keras counts them up in a process, nor do values of weights.
    """
    calls = []
    numbers = {id(one): number for number, one in enumerate(graph.operations())}
    for node in graph.nodes:
        one = node.operation
        config = one.get_config() if isinstance(one, keras.Layer) else {}
        shapes = [tuple(weight.shape) for weight in getattr(one, "weights", ())]
        arguments = replace_refs((node.args, node.kwargs), lambda index: f"tensor {index}")
        calls.append([numbers[id(one)], type(one).__name__, _stable(config), shapes, arguments, node.outputs])
    ends = replace_refs((graph.inputs, graph.outputs), lambda index: f"tensor {index}")
    text = json.dumps([calls, graph.shapes, ends], default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stable(config: Any) -> Any:
    if isinstance(config, dict):
        return {str(key): _stable(value) for key, value in config.items() if key not in _VOLATILE}
    return [_stable(value) for value in config] if isinstance(config, (list, tuple)) else config


class State:
    """Where a schedule is.

    Args:
        folder: where it is saved; if it contains a state, this is loaded.
        graph, model: before the first removal.
        options: of all removals.
        **numbers: others that must be the same to continue.

    Attributes:
        epoch: finished epochs of all iterations.
        removals: finished removals.
        whole: the model before the first removal; None if there is nothing in the folder.
        skip: patterns of the names of the layers that stay whole, in the model before the first removal.
        history: see `Slim`.

    Raises:
        InputError: the folder contains the state of another schedule, or a damaged one.
    """

    def __init__(
        self, folder: Path | None, graph: Graph, model: keras.Model, options: Options, **numbers: float
    ) -> None:
        meant = [one for part in skipped(graph, model, options.skip).values() for one in part]
        stay = {number: one for number, one in enumerate(graph.operations()) if one in meant}
        self.skip = [glob.escape(one.name) for one in stay.values()]
        self.epoch, self.removals = 0, 0
        self.whole: Whole | None = None
        self.history: dict[str, list[float]] = {}
        self.folder = folder
        if folder is None:
            return
        given = {name: value for name, value in vars(options).items() if isinstance(value, str | int | float)}
        # Not by name, because Keras counts up the names of a model that is created again.
        self.about = {"model": fingerprint(graph), **numbers, **given, "skip": list(stay)}
        make_folder(folder)
        self._remedy = f"delete {folder}, or give another folder, to start again"
        self._is_loadable = False
        if (folder / "schedule.json").exists():
            self._read(folder / "schedule.json")

    def _read(self, file: Path) -> None:
        try:
            content = json.loads(read_text(file))
            self.epoch, self.removals, self.history, self.skip = (
                content[name] for name in ("epoch", "removals", "history", "skip")
            )
            self.whole, found = Whole(**content["whole"]), dict(content["about"])
        except (ValueError, TypeError, LookupError) as error:
            raise InputError(f"{file} is damaged ({error}): {self._remedy}") from error
        for name, value in self.about.items():
            before = found.get(name)
            if before == value:
                continue
            if name == "model":
                problem = f"the schedule in {self.folder} is of a model with other layers or sizes"
            elif name == "skip":
                problem = f"skip names other layers than in the schedule in {self.folder}"
            else:
                problem = f"{name} is {value}, but the schedule in {self.folder} has {before}"
            raise InputError(f"{problem}: give the same to continue it, or another folder")

    def load(self) -> keras.Model:
        """The model, compiled.

        Raises:
            InputError: its file is missing or damaged.
        """
        return load_model(self._model_file, self._remedy, compiled=True)

    def save(self, model: keras.Model) -> None:
        """Saves the model, then what is known about it, then deletes older models.

        Raises:
            InputError: the model could not be loaded again.
        """
        if self.folder is None or self.whole is None:
            return
        with atomic_path(self._model_file) as temporary:
            self._save(model, temporary)
        content = {"about": self.about, "epoch": self.epoch, "removals": self.removals, "skip": self.skip}
        content |= {"whole": asdict(self.whole), "history": self.history}
        atomic_write(self.folder / "schedule.json", json.dumps(content))
        for file in self.folder.glob("epoch_*_removals_*.keras"):
            if file != self._model_file:
                file.unlink(missing_ok=True)

    def _save(self, model: keras.Model, path: Path) -> None:
        """Saves the model; the first time, before any training, checks that it can be loaded."""
        if self._is_loadable:
            model.save(path)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Keras warns of, such as a lambda, is refused
                model.save(path)
            load_model(path, "", compiled=True)
        except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise InputError(
                f"folder= needs a model that can be loaded again, but {model.name} cannot"
                f" ({reason(cause)}): register its layers, loss and metrics with"
                " keras.saving.register_keras_serializable, use no Lambda, or leave folder= out"
            ) from error
        self._is_loadable = True

    @property
    def _model_file(self) -> Path:
        assert self.folder is not None
        return self.folder / f"epoch_{self.epoch}_removals_{self.removals}.keras"
