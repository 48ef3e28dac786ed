"""Iterative slimming: remove some channels, fine-tune, repeat; and the regularizer that comes before."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.errors import InputError, check_number
from tfsparsecap.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.keras_internals import nested_layers
from tfsparsecap.saved_models import load_model
from tfsparsecap.slimming.plan import SlimPlan, cost_of, slim_plan


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
    if not found:
        raise InputError(f"{model.name} has no batch normalisation with a gamma to regularize")
    return model


def whole_cost(model: keras.Model, ratio: float, *, budget: str = "channels", **options: Any) -> float:
    """Returns what `ratio` is a share of. Raises InputError if so much cannot be removed, as `slim` does."""
    return getattr(slim_plan(model, ratio, budget=budget, **options).before, budget)


def next_plan(
    model: keras.Model, removed: float, whole: float, *, budget: str = "channels", **options: Any
) -> SlimPlan | None:
    """Plans the next iteration of a schedule.

    Args:
        model: after the iterations before.
        removed: share of the whole model that is to be gone after this iteration.
        whole: `whole_cost` of the model before the first iteration.
        budget, options: of `slim_plan`.

    Returns:
        None if nothing is left to remove, because of multiples of channels.
    """
    now = getattr(cost_of(model, options.get("skip", ())), budget)
    share = 1 - (1 - removed) * whole / now
    return slim_plan(model, share, budget=budget, **options) if share > 0 else None


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
        **options: other options of `slim`: budget, criterion, multiple, skip, keep, samples, loss, fold.

    Attributes:
        plans: what each iteration removed.
        history: metric -> its value after each epoch.

    Raises:
        InputError: `ratio` or `iterations` is out of range.

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
        self.options = options
        self.plans: list[SlimPlan] = []
        self.history: dict[str, list[float]] = {}

    def fit(
        self,
        model: keras.Model,
        *data: Any,
        epochs: int,
        folder: str | Path | None = None,
        callbacks: Callable[[], list[keras.callbacks.Callback]] | None = None,
        **arguments: Any,
    ) -> keras.Model:
        """Removes channels and fine-tunes, `iterations` times.

        Args:
            model: a compiled model. It is left untouched: its first iteration works on a smaller copy.
            *data: as in Keras's `fit`: a data set, or inputs and targets.
            epochs: of all iterations together, at least one for each. The last iteration gets half of them,
                or more, see `first_epochs`.
            folder: where the state is saved after each epoch. If it contains one, training continues there.
            callbacks: creates callbacks for each iteration.
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
        saved = None if folder is None else _Saved(Path(folder), self, epochs)
        borders = [*first_epochs(epochs, self.iterations), epochs]
        whole, done, started = None, 0, False
        if saved is not None and saved.state is not None:
            model, (done, whole, self.history) = saved.model(), saved.state
            started = True
        while done < self.iterations:
            if not started:
                whole, model = self._remove(model, done + 1, whole)
                if saved is not None:
                    saved.save(model, done, whole, self.history)
            mine = [] if callbacks is None else callbacks()
            if saved is not None:
                mine.append(keras.callbacks.BackupAndRestore(str(saved.backup)))
            first, last = borders[done : done + 2]
            logs = model.fit(*data, initial_epoch=first, epochs=last, callbacks=mine, **arguments).history
            for name, values in logs.items():
                self.history.setdefault(name, []).extend(float(value) for value in values)
            done, started = done + 1, False
            if saved is not None and done == self.iterations:
                saved.save(model, done, whole, self.history)
        return model

    def _remove(self, model: keras.Model, iteration: int, whole: float | None) -> tuple[float, keras.Model]:
        """Removes what is left to remove until the end of an iteration."""
        if whole is None:  # whether the last iteration can reach the ratio
            whole = whole_cost(model, self.ratio, **self.options)
        plan = next_plan(model, self.ratio * iteration / self.iterations, whole, **self.options)
        if plan is None:
            return whole, model
        self.plans.append(plan)
        return whole, plan.apply(keep_optimizer=True)


class _Saved:
    """The state of a schedule in a folder: the model at the start of an iteration, and Keras's backup."""

    def __init__(self, folder: Path, schedule: Slim, epochs: int) -> None:
        self.folder, self.backup = folder, folder / "backup"
        options = {
            key: value for key, value in schedule.options.items() if isinstance(value, (str, int, float))
        }
        self.about = {"ratio": schedule.ratio, "iterations": schedule.iterations, "epochs": epochs, **options}
        make_folder(folder)
        self._remedy = f"delete {folder}, or give another folder, to start again"
        self.state: tuple[int, float, dict] | None = None
        file = folder / "schedule.json"
        if file.exists():
            try:
                content = json.loads(read_text(file))
                self.state = content["iteration"], content["whole"], content["history"]
                about = content["about"]
            except (ValueError, TypeError, LookupError) as error:
                raise InputError(f"{file} is damaged ({error}): {self._remedy}") from error
            if about != self.about:
                raise InputError(
                    f"{folder} contains another schedule, {about}: give a new folder, or delete it"
                )

    def model(self) -> keras.Model:
        assert self.state is not None
        return load_model(self._model_file(self.state[0]), self._remedy, compiled=True)

    def save(self, model: keras.Model, iteration: int, whole: float | None, history: dict) -> None:
        """Saves the model before the training of an iteration, then what follows from it."""
        with atomic_path(self._model_file(iteration)) as temporary:
            model.save(temporary)
        if self.state is not None or iteration:
            shutil.rmtree(self.backup, ignore_errors=True)
        content = {"about": self.about, "iteration": iteration, "whole": whole, "history": history}
        atomic_write(self.folder / "schedule.json", json.dumps(content))
        if iteration:
            self._model_file(iteration - 1).unlink(missing_ok=True)

    def _model_file(self, iteration: int) -> Path:
        return self.folder / f"iteration_{iteration}.keras"
