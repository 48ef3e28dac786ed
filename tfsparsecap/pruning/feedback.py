"""Callbacks of pruned models: they give validation scores to the method, and warn of emptied layers."""

import difflib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.core.keras_internals import restart_averages
from tfsparsecap.errors import InputError, warn_caller
from tfsparsecap.pruning.method import PruningMethod

#: Keras's callbacks that save the training state; the method must get the epoch's logs before them.
_SAVING = tuple(
    getattr(keras.callbacks, name)
    for name in ("BackupAndRestore", "ModelCheckpoint", "OrbaxCheckpoint")
    if hasattr(keras.callbacks, name)
)

#: Options that keep some weights in each layer -> what to set them to.
_REMEDIES = {"allocation": 'allocation="uniform"', "minimum_density": "a larger minimum_density"}


class ValidationDriven:
    """Mixin for methods that prune by a validation score: `class Mine(ValidationDriven, PruningMethod)`.

    `fit` of a pruned model adds a `Feedback` callback for such methods; a custom loop must call
    `on_validation_end`.
    """

    #: Name of the score in an epoch's logs.
    metric: str
    #: Whether the last `on_validation_end` has changed weights; averages of the weights then start again.
    changed_weights: bool = False

    @property
    def finished(self) -> bool:
        """Whether the method has ended the training."""
        return False

    def on_validation_end(self, logs: Mapping[str, float]) -> bool:
        """Receives the scores of an epoch. Called after each epoch, between two compiled steps.

        It may only change variables made by `add_state`, so that a resumed training is identical.

        Args:
            logs: name -> value; without validation scores if the epoch had no validation.

        Returns:
            True to stop the training.
        """
        raise NotImplementedError

    def check_metric(self, names: Iterable[str]) -> None:
        """Checks before training that the logs will contain `metric`.

        Args:
            names: names in the logs.

        Raises:
            InputError: `metric` is not among them.
        """
        names = sorted(set(names))
        if self.metric in names:
            return
        near = difflib.get_close_matches(self.metric, names, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "set metric= to one of them"
        if self.metric.startswith("val_") and not any(name.startswith("val_") for name in names):
            advice = "give fit validation_data= or validation_split="
        raise InputError(
            f"{type(self).__name__} prunes by the metric {self.metric!r}, which this training does not have:"
            f" its logs contain {', '.join(names) or 'no metric at all'}; {advice}"
        )


class Feedback(keras.callbacks.Callback):
    """Passes the logs of each epoch to a pruning method, which may stop the training.

    `fit` of a pruned model adds it after your callbacks but before Keras's callbacks that save the model. If
    you add it yourself, or have custom saving callbacks, it must come after every callback that adds to the
    logs, and before those that save the model with its optimizer.

    Args:
        method: a pruning method with `on_validation_end`.
        check_later: whether to warn, in the first epoch with a validation, if the logs lack the method's
            metric. For logs whose names are not known before training.

    Examples:
        >>> import tfsparsecap as sc
        >>> callbacks = [Feedback(sc.Relevance(lower_bound=0.9, metric="validation_CIDEr"))]
    """

    def __init__(self, method: ValidationDriven, *, check_later: bool = False) -> None:
        super().__init__()
        self.method, self.check_later = method, check_later

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = dict(logs or {})
        if self.check_later and any(name.startswith("val_") for name in logs):
            self._check(logs)
        if self.method.on_validation_end(logs):
            self.model.stop_training = True
        if self.method.changed_weights:
            restart_averages(self.model.optimizer)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self.check_later:
            self._check(logs or {})

    def _check(self, logs: Mapping[str, float]) -> None:
        self.check_later = False
        try:
            self.method.check_metric(logs)
        except InputError as error:
            warnings.warn(f"judging by the first epochs, {error}", stacklevel=2)


def warn_of_emptied(
    name: str, method: PruningMethod, warned_paths: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Warns of kernels and tables that keep less than 1 % of their weights while all keep 5 % or more.

    Args:
        name: name of the model.
        method: its pruning method.
        warned_paths: paths of weights that were named before.

    Returns:
        The paths of all weights that have been named.
    """
    open_counts = [
        (weight.path, int(gate.open_count()), gate.size)
        for weight, gate in zip(method.weights, method.gates, strict=True)
    ]
    if sum(count for _, count, _ in open_counts) < 0.05 * method.gated_size:
        return warned_paths
    empty = {
        path: (count, size)
        for path, count, size in open_counts
        if count < 0.01 * size and path not in warned_paths
    }
    if empty:
        listed = "; ".join(
            f"{path} keeps {count:,} of {size:,}" for path, (count, size) in islice(empty.items(), 3)
        )
        listed += f" and {len(empty) - 3} more" * (len(empty) > 3)
        config = method.get_config()
        other = "".join(f", or set {remedy}" for option, remedy in _REMEDIES.items() if option in config)
        layer = next(iter(empty)).rpartition("/")[0]
        warn_caller(
            f"{name} has hardly any weights left in some layers: {listed}; name these layers in skip, such as"
            f" {layer!r}{other}"
        )
    return warned_paths | empty.keys()


class WatchEmptied(keras.callbacks.Callback):
    """Warns at the end of the epoch in which pruning has emptied a layer, once for each layer.

    It also warns after the first epoch if no optimizer step has reached the method.

    `fit` of a pruned model adds it.

    Args:
        name: name of the model.
        method: its pruning method.

    Examples:
        >>> import tfsparsecap as sc
        >>> callbacks = [WatchEmptied("classifier", sc.Supermask(0.9, total_steps=100))]
    """

    def __init__(self, name: str, method: PruningMethod) -> None:
        super().__init__()
        self._name, self._method, self._warned_paths = name, method, frozenset[str]()
        self._has_steps = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._has_steps and not int(tf.convert_to_tensor(self._method.steps_done)):
            warn_caller(
                f"an epoch of training has not pruned {self._name}, because another optimizer updates it:"
                " train with the one of compile, or with those that model.pruning.wrap(optimizer) returns"
            )
        self._has_steps = True
        self._warned_paths = warn_of_emptied(self._name, self._method, self._warned_paths)


def pruning_callbacks(name: str, method: PruningMethod) -> list[keras.callbacks.Callback]:
    """What a training loop other than `fit` needs for a pruned model."""
    feedback = [Feedback(method)] if isinstance(method, ValidationDriven) else []
    return [WatchEmptied(name, method), *feedback]


def with_callbacks(model: keras.Model, arguments: Mapping[str, Any]) -> Any:
    """Returns the callbacks for `fit`: the given ones, those of a pruned model, and Keras's saving callbacks.

    If all logs come from the model itself, the method's metric is checked first: one batch is evaluated to
    get the names. They are not known in advance if custom callbacks add logs, or if the data can be read only
    once; `Feedback` then checks later.

    Args:
        model: a pruned model.
        arguments: arguments of `fit` by name.

    Returns:
        A list, or the given `CallbackList`, in the new order.

    Raises:
        InputError: the logs will not contain the method's metric.
    """
    callbacks, method = arguments.get("callbacks"), model.pruning
    own = callbacks.callbacks if isinstance(callbacks, keras.callbacks.CallbackList) else callbacks
    own = keras.tree.flatten(own) if own else []
    is_watched = any(isinstance(callback, WatchEmptied) for callback in own)
    added = [] if is_watched else [WatchEmptied(model.name, method)]
    if isinstance(method, ValidationDriven) and not any(
        isinstance(callback, Feedback) and callback.method is method for callback in own
    ):
        names = None if any(map(_may_add_logs, own)) else names_of_logs(model, arguments)
        if names is not None:
            method.check_metric(names)
        added.append(Feedback(method, check_later=names is None))
    first = [callback for callback in own if not isinstance(callback, _SAVING)]
    order = [*first, *added, *(callback for callback in own if isinstance(callback, _SAVING))]
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        return order
    callbacks.callbacks[:] = order
    for callback in added:
        callback.set_model(model)
        callback.set_params(callbacks.params)
    return callbacks


def names_of_logs(model: keras.Model, arguments: Mapping[str, Any]) -> list[str] | None:
    """Returns the names of the logs that the model makes in an epoch; None if they are not known.

    Args:
        model: a compiled model.
        arguments: arguments of `fit` by name.
    """
    validation, validates = arguments.get("validation_data"), True
    if validation is None:
        # A validation split is part of the training data; without validation, use the names in training.
        validation = arguments.get("x"), arguments.get("y"), arguments.get("sample_weight")
        validates = bool(arguments.get("validation_split"))
    x, y, weights = keras.utils.unpack_x_y_sample_weight(validation)
    if isinstance(x, Iterator) or x is None:
        return None
    logs = model.evaluate(
        x,
        y,
        sample_weight=weights,
        batch_size=arguments.get("validation_batch_size") or arguments.get("batch_size"),
        steps=getattr(model, "steps_per_execution", 1),
        verbose=0,
        return_dict=True,
    )
    if not isinstance(logs, dict) or not logs:
        return None
    validated = [f"val_{name}" for name in logs] if validates else []
    return [*logs, *validated, *model.pruning.logs()]


def _may_add_logs(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback may add to the logs: it is custom, or calls custom functions."""
    of_keras = type(callback).__module__.split(".")[0] == "keras"
    return not of_keras or isinstance(callback, keras.callbacks.LambdaCallback)
