"""Pruning methods by name or object."""

import difflib

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.method import PruningMethod

METHODS: dict[str, type[PruningMethod]] = {}


def register(name: str):
    """Class decorator: makes a method known under `name`, and serialisable."""

    def decorate(cls: type[PruningMethod]) -> type[PruningMethod]:
        METHODS[name] = cls
        return keras.saving.register_keras_serializable("tfsparsecap")(cls)

    return decorate


def get(method: PruningMethod | str, **options) -> PruningMethod:
    """A method from itself or from its name and options.

    Raises:
        InputError: no method of that name.

    Example:
        >>> get("supermask", sparsity=0.9, total_steps=100).sparsity
        0.9
    """
    if isinstance(method, PruningMethod):
        if options:
            raise InputError(
                f"options {sorted(options)} are arguments of a method given by name: give them to "
                f"{type(method).__name__} itself"
            )
        return method
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, n=1)
        raise InputError(
            f"no pruning method {method!r}; "
            + (f"did you mean {near[0]!r}?" if near else f"choose one of {sorted(METHODS)}")
        )
    return METHODS[method](**options)
