"""Warnings of layers that pruning leaves without weights."""

from typing import Any

import keras

from tfsparsecap.errors import warn_caller
from tfsparsecap.pruning.feedback import Feedback, ValidationDriven
from tfsparsecap.pruning.method import PruningMethod

#: Options that keep some weights in each layer -> what to set them to.
_REMEDIES = {"allocation": 'allocation="uniform"', "minimum_density": "a larger minimum_density"}


def warn_of_emptied(name: str, method: PruningMethod, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Warns of kernels and tables that keep less than 1 % of their weights while all keep 5 % or more.

    Args:
        name: name of the model.
        method: its pruning method.
        known: paths of weights that were named before.

    Returns:
        The paths of all weights that have been named.
    """
    left = [
        (weight.path, int(gate.open_count()), gate.size)
        for weight, gate in zip(method.weights, method.gates, strict=True)
    ]
    if sum(count for _, count, _ in left) < 0.05 * method.gated_size:
        return known
    empty = {path: (count, size) for path, count, size in left if count < 0.01 * size and path not in known}
    if empty:
        listed = "; ".join(f"{path} keeps {count:,} of {size:,}" for path, (count, size) in empty.items())
        config = method.get_config()
        other = "".join(f", or set {remedy}" for option, remedy in _REMEDIES.items() if option in config)
        warn_caller(f"{name} has hardly any weights left in some layers: {listed}; name them in skip{other}")
    return known | empty.keys()


class WatchEmptied(keras.callbacks.Callback):
    """Warns at the end of the epoch in which pruning has emptied a layer, once for each layer.

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
        self._name, self._method, self._known = name, method, frozenset[str]()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._known = warn_of_emptied(self._name, self._method, self._known)


def pruning_callbacks(name: str, method: PruningMethod) -> list[keras.callbacks.Callback]:
    """What a training loop other than `fit` needs for a pruned model."""
    feedback = [Feedback(method)] if isinstance(method, ValidationDriven) else []
    return [WatchEmptied(name, method), *feedback]
