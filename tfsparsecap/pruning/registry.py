"""Pruning methods by name: `METHODS` is the one list of them."""

import difflib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.schedule import Schedule

METHODS: dict[str, type[PruningMethod]] = {}


def register(name: str) -> Callable[[type[PruningMethod]], type[PruningMethod]]:
    """Class decorator: makes a method known under `name`, and serialisable by Keras."""

    def decorate(cls: type[PruningMethod]) -> type[PruningMethod]:
        METHODS[name] = cls
        return keras.saving.register_keras_serializable("tfsparsecap")(cls)

    return decorate


def factory(name: str) -> Callable[..., PruningMethod]:
    """A function that makes the method `name` from flat options, those of its schedule among them.

    Settings files give options this way (`pruning.begin=0.1`). The function's signature and annotations are
    those of the method's class, with the schedule's options in place of `schedule`.

    Examples:
        >>> factory("magnitude")(sparsity=0.5, total_steps=100, begin=0.25).schedule.begin
        0.25
    """
    cls = METHODS[name]
    parameters = dict(inspect.signature(cls).parameters)
    annotations = typing.get_type_hints(cls.__init__)
    if "schedule" in parameters:
        fields = inspect.signature(Schedule).parameters
        parameters |= {option: fields[option] for option in cls.schedule_options}
        del parameters["schedule"]
        annotations |= typing.get_type_hints(Schedule)

    def make(**options: Any) -> PruningMethod:
        schedule = {option: options.pop(option) for option in cls.schedule_options if option in options}
        named: dict[str, Any] = {"schedule": Schedule(**schedule)} if schedule else {}
        return cls(**options, **named)

    kept = [
        one.replace(kind=one.KEYWORD_ONLY) for one in parameters.values() if one.kind is not one.VAR_KEYWORD
    ]
    variadic = [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    make.__signature__ = inspect.Signature([*kept, *variadic])  # type: ignore[attr-defined]
    make.__annotations__ = {name: hint for name, hint in annotations.items() if name in parameters}
    return make


def get(method: PruningMethod | str, **options: Any) -> PruningMethod:
    """A method from itself or from its name and options.

    Raises:
        InputError: no method of that name; an unknown option, or a required one is missing.

    Examples:
        >>> get("supermask", sparsity=0.9, total_steps=100, begin=0.2).updates.first
        20
    """
    if isinstance(method, PruningMethod):
        if options:
            raise InputError(
                f"options {sorted(options)} are for methods given by name: pass them to"
                f" {type(method).__name__}"
            )
        return method
    if method not in METHODS:
        near = difflib.get_close_matches(str(method), METHODS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {sorted(METHODS)}"
        raise InputError(f"no pruning method {method!r}; {hint}")
    make = factory(method)
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise InputError(
            f"pruning method {method!r}: {error}; its options are {', '.join(signature.parameters)}"
        ) from None
    return make(**options)
