"""How a pruning method learns what the model scores on validation data."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.method import PruningMethod

#: Keras's callbacks that write down the state of a training, which must have heard of the epoch by then.
_SAVING = tuple(
    getattr(keras.callbacks, name)
    for name in ("BackupAndRestore", "ModelCheckpoint", "OrbaxCheckpoint")
    if hasattr(keras.callbacks, name)
)


class Feedback(keras.callbacks.Callback):
    """Tells a pruning method the logs of each epoch, and stops the training when it says so.

    `fit` of a pruned model adds it by itself, behind the callbacks that it is given but before those of
    Keras's that save the model. Elsewhere, or with callbacks of your own that save, it comes after every
    callback that adds to the logs, and before those that save the model with its optimizer.

    Args:
        method: whose `on_validation_end` is called.
        unsure: whether the logs will have what the method looks for; looks at those of the first epoch that
            has validation, and warns where they have not.

    Example:
        >>> import tfsparsecap as sc
        >>> callbacks = [Feedback(sc.Relevance(lower_bound=0.9, metric="validation_CIDEr"))]
    """

    def __init__(self, method: PruningMethod, *, unsure: bool = False):
        super().__init__()
        self.method, self.unsure = method, unsure

    def on_epoch_end(self, epoch, logs=None):
        logs = dict(logs or {})
        if self.unsure and any(name.startswith("val_") for name in logs):
            self._look(logs)
        if self.method.on_validation_end(logs):
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.unsure:
            self._look(logs or {})

    def _look(self, logs: Mapping[str, float]) -> None:
        self.unsure = False
        try:
            self.method.check_metric(logs)
        except InputError as error:
            warnings.warn(f"as far as the first epochs tell: {error}", stacklevel=2)


def with_feedback(model: keras.Model, given: Mapping[str, Any]) -> Any:
    """The callbacks of a `fit`, with a `Feedback` behind them and those of Keras's that save behind that.

    Where all logs come from the model itself, it is checked first that there will be what the method looks
    for: one batch is evaluated to see which names there are. What callbacks of the user will add is not
    known then, and neither are the names where data can be read only once: what turns out to be missing is
    warned of.

    Args:
        model: a pruned model, whose method has a `on_validation_end` of its own.
        given: arguments of `fit` by name.

    Returns:
        A list, or the `CallbackList` that was given, which gets the `Feedback` and the new order.

    Raises:
        InputError: the method looks for something that the logs will not have.
    """
    callbacks = given.get("callbacks")
    own = list(_flat(callbacks))
    if any(isinstance(callback, Feedback) and callback.method is model.pruning for callback in own):
        return callbacks
    names = None
    if not any(_may_add(callback) for callback in own):
        names = names_of_logs(model, given)
    if names is not None:
        model.pruning.check_metric(names)
    feedback = Feedback(model.pruning, unsure=names is None)
    saving = [callback for callback in own if isinstance(callback, _SAVING)]
    order = [*(callback for callback in own if not isinstance(callback, _SAVING)), feedback, *saving]
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        return order
    callbacks.callbacks[:] = order
    feedback.set_model(model)
    feedback.set_params(callbacks.params)
    return callbacks


def names_of_logs(model: keras.Model, given: Mapping[str, Any]) -> list[str] | None:
    """What the logs of an epoch will be called, as far as the model makes them; None where that is not known.

    Args:
        model: compiled.
        given: arguments of `fit` by name.
    """
    validation, validates = given.get("validation_data"), True
    if validation is None:
        # A split is cut off the training data; without validation the names are those of the training.
        validation = given.get("x"), given.get("y"), given.get("sample_weight")
        validates = bool(given.get("validation_split"))
    x, y, weights = keras.utils.unpack_x_y_sample_weight(validation)
    if isinstance(x, Iterator) or x is None:
        return None
    logs = model.evaluate(
        x,
        y,
        sample_weight=weights,
        batch_size=given.get("validation_batch_size") or given.get("batch_size"),
        steps=getattr(model, "steps_per_execution", 1),
        verbose=0,
        return_dict=True,
    )
    if not isinstance(logs, dict) or not logs:
        return None
    validated = [f"val_{name}" for name in logs] if validates else []
    return [*logs, *validated, *model.pruning.logs()]


def _may_add(callback: keras.callbacks.Callback) -> bool:
    """Whether nobody knows what a callback adds to the logs: it is the user's, or calls what is."""
    of_keras = type(callback).__module__.split(".")[0] == "keras"
    return not of_keras or isinstance(callback, keras.callbacks.LambdaCallback)


def _flat(callbacks: Any) -> list[keras.callbacks.Callback]:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks.callbacks
    return keras.tree.flatten(callbacks) if callbacks else []
