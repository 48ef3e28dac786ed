"""Iterative slimming: remove some channels, fine-tune, repeat; and the regularizer that comes before."""

import glob
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
from keras.callbacks import Callback

from tfsparsecap.errors import InputError, check_number, unknown_name
from tfsparsecap.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.keras_internals import nested_layers
from tfsparsecap.saved_models import load_model
from tfsparsecap.slimming.groups import layers_of
from tfsparsecap.slimming.plan import Options, SlimPlan, plan_removal, whole_of
from tfsparsecap.slimming.selection import Whole


def regularize_gammas(model: keras.Model, strength: float = 1e-4) -> keras.Model:
    """Adds `strength * sum(gamma²)` of all batch normalisations to the loss of a built model, in place.

    The paper trains with it before it removes channels: unimportant ones end with a small gamma.

    Args:
        model: a built model; compile it afterwards.
        strength: of the regularizer; 0 removes it.

    Returns:
        `model`.

    Raises:
        InputError: no batch normalisation has a gamma.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(4), keras.layers.BatchNormalization()]
        >>> [float(loss) for loss in regularize_gammas(keras.Sequential(layers), 0.5).losses]
        [2.0]
    """
    strength = check_number("strength", strength, at_least=0)
    regularizer = keras.regularizers.L2(strength) if strength else None
    found = False
    for layer in nested_layers(model):
        gamma = getattr(layer, "gamma", None)
        if isinstance(layer, keras.layers.BatchNormalization) and gamma is not None:
            layer.gamma_regularizer = gamma.regularizer = regularizer
            found = True
    if strength and not found:
        raise InputError(f"{model.name} has no batch normalisation with a gamma to regularize")
    return model


def first_epochs(epochs: int, iterations: int) -> list[int]:
    """Returns the epoch, from 0, at which each iteration of a schedule begins.

    The channels are gone after half of the epochs, so that the final network is trained for the other half;
    with fewer than `2 * (iterations - 1)` epochs, after one epoch for each iteration.

    Args:
        epochs: of all iterations together, `iterations` or more.
        iterations: their number, 1 or more.

    Examples:
        >>> first_epochs(16, 5), first_epochs(6, 5), first_epochs(3, 1)
        ([0, 2, 4, 6, 8], [0, 1, 2, 3, 4], [0])
    """
    return [max(number, number * epochs // (2 * max(1, iterations - 1))) for number in range(iterations)]


class Slim:
    """Removes channels in several iterations and fine-tunes after each (RTIC, iterative channel pruning).

    `fit` of Keras trains a compiled graph with weights of fixed shapes, so a callback cannot replace the
    model inside it: `Slim(...).fit(model, data, epochs=…)` calls it once for each iteration and returns the
    slim model. The optimizer's state of the channels that stay carries over.

    Args:
        ratio: share to remove in total.
        iterations: number T of iterations; each removes the same amount of the whole model.
        **options: other options of `slim`: budget, criterion, multiple, skip, keep, samples, loss, latency,
            fold. `keep` is a share of the channels before the first iteration.

    Attributes:
        plans: what each iteration removed, without iterations of an interrupted call of `fit`.
        history: metric -> its value after each epoch.

    Raises:
        InputError: `ratio`, `iterations` or an option is out of range, or there is no such option.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = keras.Sequential(layers)
        >>> model.compile("adam", "mse")
        >>> data = keras.ops.ones((4, 8)), keras.ops.ones((4, 2))
        >>> small = Slim(0.5, iterations=2).fit(model, *data, epochs=2, verbose=0)
        >>> small.layers[0].units
        32
    """

    def __init__(self, ratio: float = 0.5, iterations: int = 5, **options: Any) -> None:
        self.ratio = check_number("ratio", ratio, above=0, below=1)
        self.iterations = check_number("iterations", iterations, whole=True, at_least=1)
        names = [field.name for field in fields(Options)]
        for name in options:
            if name not in names:
                raise unknown_name("option of Slim", name, names)
        self.options = Options(**options)
        self.plans: list[SlimPlan] = []
        self.history: dict[str, list[float]] = {}

    def fit(
        self,
        model: keras.Model,
        *data: Any,
        epochs: int,
        folder: str | Path | None = None,
        callbacks: Sequence[Callback] | Callable[[], Sequence[Callback]] | None = None,
        **arguments: Any,
    ) -> keras.Model:
        """Removes channels and fine-tunes, `iterations` times.

        Args:
            model: a compiled model. It is left untouched: its first iteration works on a smaller copy.
            *data: as in Keras's `fit`: a data set, or inputs and targets.
            epochs: of all iterations together, at least one for each. The last iteration gets half of them,
                or more, see `first_epochs`.
            folder: where the state is saved after each epoch. If it contains one, training continues there.
            callbacks: of each iteration, or a function that creates new ones for it.
            **arguments: others of Keras's `fit`.

        Returns:
            The slim model, compiled.

        Raises:
            InputError: the model is not compiled, there are fewer epochs than iterations, the folder belongs
                to another schedule, or as in `slim`.
        """
        if not model.compiled:
            raise InputError(f"{model.name} is not compiled: call model.compile before Slim.fit")
        epochs = check_number("epochs", epochs, whole=True, at_least=1)
        if epochs < self.iterations:
            raise InputError(
                f"epochs is {epochs}, fewer than the {self.iterations} iterations: each needs at least one"
            )
        # By name, because the layers of the iterations' copies are others.
        options = replace(self.options, skip=_names(model, self.options.skip))
        about = {"ratio": self.ratio, "iterations": self.iterations, "epochs": epochs}
        given = vars(options).items()
        about |= {name: value for name, value in given if isinstance(value, str | int | float)}
        about |= {"skip": list(options.skip)}
        state = _State(Path(folder) if folder is not None else None, about)
        if state.whole is None:
            state.whole = whole_of(model, self.ratio, options)
        else:
            model = state.load()
        self.history = state.history
        for number, (first, last) in enumerate(pairwise([*first_epochs(epochs, self.iterations), epochs])):
            if state.removals == number:
                share = self.ratio * (number + 1) / self.iterations
                plan = plan_removal(model, share, options, state.whole)
                if plan is not None:
                    self.plans.append(plan)
                    model = plan.apply(keep_optimizer=True)
                state.removals = number + 1
                state.save(model)
            if state.epoch < last:
                mine = [*(callbacks() if callable(callbacks) else callbacks or ()), _EachEpoch(state)]
                start = max(first, state.epoch)
                model.fit(*data, initial_epoch=start, epochs=last, callbacks=mine, **arguments)
                state.epoch = last  # a callback may have stopped before
        state.save(model)
        return model


def _names(model: keras.Model, skip: str | keras.Layer | Iterable[str | keras.Layer]) -> tuple[str, ...]:
    """Patterns of the names of layers; objects that are no layers of the model are refused by name later."""
    found = (one if isinstance(one, str) else glob.escape(one.name) for one in layers_of(model, skip))
    return tuple(found)


class _EachEpoch(Callback):
    """Adds an epoch to the state and saves it."""

    def __init__(self, state: "_State") -> None:
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        for name, value in (logs or {}).items():
            self.state.history.setdefault(name, []).append(float(value))
        self.state.epoch = epoch + 1
        self.state.save(self.model)


class _State:
    """Where a schedule is, in memory and in a folder, if there is one.

    Attributes:
        epoch: finished epochs of all iterations.
        removals: finished removals.
        whole: the model before the first removal; None if there is nothing in the folder.
        history: see `Slim`.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self.folder, self.about = folder, about
        self.epoch, self.removals = 0, 0
        self.whole: Whole | None = None
        self.history: dict[str, list[float]] = {}
        if folder is None:
            return
        make_folder(folder)
        self._remedy = f"delete {folder}, or give another folder, to start again"
        file = folder / "schedule.json"
        if not file.exists():
            return
        try:
            content = json.loads(read_text(file))
            self.epoch, self.removals, self.history = (
                content["epoch"],
                content["removals"],
                content["history"],
            )
            self.whole, found = Whole(**content["whole"]), content["about"]
        except (ValueError, TypeError, LookupError) as error:
            raise InputError(f"{file} is damaged ({error}): {self._remedy}") from error
        if found != about:
            raise InputError(f"{folder} contains another schedule, {found}: give a new folder, or delete it")

    def load(self) -> keras.Model:
        """The model, compiled.

        Raises:
            InputError: its file is missing or damaged.
        """
        return load_model(self._model_file, self._remedy, compiled=True)

    def save(self, model: keras.Model) -> None:
        """Saves the model, then what is known about it, then deletes older models."""
        if self.folder is None or self.whole is None:
            return
        with atomic_path(self._model_file) as temporary:
            model.save(temporary)
        content = {"about": self.about, "epoch": self.epoch, "removals": self.removals}
        content |= {"whole": asdict(self.whole), "history": self.history}
        atomic_write(self.folder / "schedule.json", json.dumps(content))
        for file in self.folder.glob("epoch_*_removals_*.keras"):
            if file != self._model_file:
                file.unlink(missing_ok=True)

    @property
    def _model_file(self) -> Path:
        assert self.folder is not None
        return self.folder / f"epoch_{self.epoch}_removals_{self.removals}.keras"
