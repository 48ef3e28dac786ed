"""Pruning methods by name or object."""

import difflib
import inspect

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.method import PruningMethod

METHODS: dict[str, type[PruningMethod]] = {}

#: What an option may be given as, for the sentence that says it is missing.
_SUCH_AS = {
    "sparsity": "sparsity=0.9",
    "total_steps": "total_steps=epochs * steps_per_epoch",
    "lower_bound": "lower_bound=0.9",
    "metric": 'metric="val_accuracy"',
}


def register(name: str):
    """Class decorator: makes a method known under `name`, and serialisable."""

    def decorate(cls: type[PruningMethod]) -> type[PruningMethod]:
        METHODS[name] = cls
        return keras.saving.register_keras_serializable("tfsparsecap")(cls)

    return decorate


def get(method: PruningMethod | str, **options) -> PruningMethod:
    """A method from itself or from its name and options.

    Raises:
        InputError: no method of that name; an option that it does not have, or one missing that it needs.

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
    _check_options(method, options)
    return METHODS[method](**options)


def _check_options(name: str, options: dict) -> None:
    parameters = dict(inspect.signature(METHODS[name]).parameters)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            near = difflib.get_close_matches(option, parameters, n=1)
            raise InputError(
                f"the pruning method {name!r} has no option {option!r}; "
                + (f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(parameters)}")
            )
    missing = [
        option
        for option, parameter in parameters.items()
        if parameter.default is parameter.empty and option not in options
    ]
    if missing:
        raise InputError(
            f"the pruning method {name!r} needs {' and '.join(missing)}: give"
            f" {', '.join(_SUCH_AS.get(option, f'{option}=') for option in missing)}"
        )
