"""Registry of pruning methods by name."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

import keras

from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.schedule import Schedule

METHODS: dict[str, type[PruningMethod]] = {}


def register(name: str) -> Callable[[type[PruningMethod]], type[PruningMethod]]:
    """Class decorator: registers a method under `name`, and with Keras for serialisation."""

    def decorate(cls: type[PruningMethod]) -> type[PruningMethod]:
        METHODS[name] = cls
        keras.saving.register_keras_serializable("tfsparsecap")(cls)
        return cls

    return decorate


def factory(name: str) -> Callable[..., PruningMethod]:
    """Returns a function that makes the method `name` from flat options, including those of its schedule.

    Configuration files give options this way (`pruning.begin=0.1`). The function has the signature and
    annotations of the method's class, with the schedule's options instead of `schedule`.

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

    by_name = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters.values()]
    make.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    make.__annotations__ = {name: hint for name, hint in annotations.items() if name in parameters}
    return make


def get(method: PruningMethod | str, **options: Any) -> PruningMethod:
    """Returns the method itself, or makes one from its name and options.

    Raises:
        InputError: no method has that name; an option is unknown, or a required one is missing.

    Examples:
        >>> get("supermask", sparsity=0.9, total_steps=100, begin=0.2).updates.first
        20
    """
    if isinstance(method, PruningMethod):
        if options:
            raise InputError(
                f"options {sorted(options)} are only for methods given by name: pass them to"
                f" {type(method).__name__}"
            )
        return method
    if method not in METHODS:
        raise unknown_name("pruning method", method, METHODS)
    make = factory(method)
    signature = inspect.signature(make)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise InputError(
            f"pruning method {method!r}: {error}; its options are {', '.join(signature.parameters)}"
        ) from None
    return make(**options)
