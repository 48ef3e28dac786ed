"""The options of `sc.slim` and `sc.Slim`, and their checks."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import keras
import tensorflow as tf

from tfsparsecap.core.chosen_layers import entries_of
from tfsparsecap.errors import InputError, check_number, check_whole, unknown_name
from tfsparsecap.slimming.channel_choice import BUDGETS
from tfsparsecap.slimming.importance import CRITERIA

#: Batches of a generator of samples, which are kept in memory.
MOST_BATCHES = 256


@dataclass(frozen=True)
class Options:
    """How channels are chosen and removed, see `slim`.

    `criterion` gets its default, `skip` becomes a tuple, and `samples` something that can be read several
    times.

    Raises:
        InputError: a value is out of range or of the wrong type, or has no effect.
    """

    budget: str = "channels"
    criterion: str | None = None
    multiple: int = 8
    skip: str | keras.Layer | Iterable[str | keras.Layer] = ()
    keep: float = 0.1
    samples: Any = None
    latency: Callable[[keras.Model], float] | None = None

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise unknown_name("budget", self.budget, BUDGETS)
        if self.criterion is not None and self.criterion not in CRITERIA:
            raise unknown_name("importance criterion", self.criterion, CRITERIA)
        check_whole("multiple", self.multiple, at_least=1)
        check_number("keep", self.keep, at_least=0, below=1)
        if self.latency is not None and not callable(self.latency):
            raise InputError(
                f"latency is {self.latency!r:.100}: give a function that takes a model and returns its"
                " latency, such as tfsparsecap_export.model_latency"
            )
        if self.latency is not None and self.budget != "latency":
            raise InputError(
                f'latency= does nothing with the budget "{self.budget}": leave it out, or give'
                ' budget="latency"'
            )
        object.__setattr__(self, "skip", entries_of(self.skip))
        object.__setattr__(self, "samples", _repeatable(self.samples))

    def measured(self, model: keras.Model) -> float:
        """Returns the latency that the function `latency` measures.

        Raises:
            InputError: it is no number above 0.
        """
        assert self.latency is not None
        return check_number("the result of latency=", self.latency(model), above=0)

    @classmethod
    def named(cls, owner: str, options: dict[str, Any]) -> Self:
        """The options of a function or class that takes them by name.

        Raises:
            InputError: there is no such option, or it is out of range.
        """
        names = [field.name for field in fields(cls)]
        for name in options:
            if name not in names:
                raise unknown_name(f"option of {owner}", name, names)
        return cls(**options)

    def check_without_ratio(self) -> None:
        """Raises InputError if one of the options that only a ratio needs is not its default."""
        for field in fields(self):
            value = getattr(self, field.name)
            is_default = value is field.default or (field.default is not None and value == field.default)
            if not is_default and field.name not in ("multiple", "skip"):
                raise InputError(
                    f"{field.name}= does nothing with ratio=None, which removes only channels that no kernel"
                    " uses: leave one of the two out"
                )


def _repeatable(samples: Any) -> Any:
    """Batches of samples that can be read more than once, and that end."""
    is_keras, is_tf = isinstance(samples, keras.utils.PyDataset), isinstance(samples, tf.data.Dataset)
    if (is_keras and samples.num_batches is None) or (
        is_tf and samples.cardinality() == tf.data.INFINITE_CARDINALITY
    ):
        raise InputError("samples is a data set without end: give a list of a few of its batches")
    if is_keras:  # its own iterator does not end
        samples = map(samples.__getitem__, range(samples.num_batches))
    if samples is None or (isinstance(samples, Iterable) and not isinstance(samples, (str, bytes, Iterator))):
        return samples
    if not isinstance(samples, Iterator):
        raise InputError(f"samples is {samples!r:.100}: give a list of batches, each as the model takes it")
    batches = list(itertools.islice(samples, MOST_BATCHES + 1))
    if len(batches) > MOST_BATCHES:
        raise InputError(
            f"samples gives more than {MOST_BATCHES} batches: give a list of a few, such as"
            " list(itertools.islice(samples, 4))"
        )
    return batches
