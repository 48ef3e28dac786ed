"""`InputError`, the exception for wrong input; checks that raise it; warnings at the caller's line."""

import difflib
import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

# Characters of a message at most, and how many of them stand before what is left out of a longer one.
_LONGEST, _FIRST = 600, 400
# Characters of another error's message that a message quotes.
_LONGEST_REASON = 300


class InputError(ValueError):
    """Input that cannot be used. The message is one sentence: what is wrong, where, and what to do.

    The command lines print the message without a traceback and exit with code 2. Messages quote files, so
    that line breaks and characters that a terminal obeys are replaced, and the middle of a long one is left
    out.

    Examples:
        >>> print(InputError("there is no file \x1b[2J: check the path"))
        there is no file ?[2J: check the path
    """

    def __init__(self, sentence: object = "") -> None:
        super().__init__(short_line(str(sentence)))


def warn_caller(message: str) -> None:
    """Warns (`UserWarning`) at the line that called this package, through Keras or not.

    Examples:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_caller("the blocks are smaller")
        >>> str(caught[0].message)
        'the blocks are smaller'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_library(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_library(module: object) -> bool:
    return str(module).split(".")[0] in ("tfsparsecap", "tfsparsecap_export", "keras", "tensorflow")


def short_line(text: str) -> str:
    """A text that quotes files as one line of printable characters, without the middle if it is long."""
    text = "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_FIRST]} … {text[len(text) - (_LONGEST - _FIRST - 3) :]}"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type if it has none: a reason for a message.

    It is without Keras's colours and introduction, TensorFlow's location, and its full stop. Of a longer one,
    and of one that introduces the next line, only whole sentences.

    Examples:
        >>> first_line(ValueError("no such axis\\n\\nArguments received: …"))
        'no such axis'
        >>> first_line(MemoryError())
        'MemoryError'
    """
    lines = re.sub(r"\x1b\[\d+m|\{\{function_node .*?\}\} ?", "", str(error)).splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.startswith("Exception encountered")]
    line = (said or [type(error).__name__])[0]
    if len(line) <= _LONGEST_REASON and not line.endswith(":"):
        return line.rstrip(".")
    line = line[:_LONGEST_REASON]
    sentences, end, _ = line.rpartition(". ")
    return sentences if end else line.rstrip(":")


class WorkerLost(RuntimeError):
    """Another process of a training on several machines has ended or does not answer. The message is one
    sentence.

    The command lines print the message without a traceback and exit with code 3.
    """


def unknown_name(what: str, name: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is not one of `choices`; it suggests the most similar choice.

    Examples:
        >>> print(unknown_name("metric", "SPICES", ["BLEU", "SPICE"]))
        there is no metric 'SPICES': did you mean SPICE?
        >>> print(unknown_name("metric", "accuracy", ["BLEU", "SPICE"]))
        there is no metric 'accuracy': choose one of BLEU, SPICE
    """
    names = {choice.lower(): choice for choice in choices}
    similar = difflib.get_close_matches(str(name).lower(), names, n=1)
    hint = f"did you mean {names[similar[0]]}?" if similar else f"choose one of {', '.join(names.values())}"
    return InputError(f"there is no {what} {name!r}: {hint}")


def check_number(
    name: str,
    value: Any,
    *,
    whole: bool = False,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> float:
    """Returns a user's value of the argument `name` as a float.

    Raises:
        InputError: it is not a finite number within the limits.

    Examples:
        >>> check_number("sparsity", 0, at_least=0, below=1)
        0.0
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    limits = {"of at least": at_least, "above": above, "of at most": at_most, "below": below}
    inside = (
        math.isfinite(number)
        and not (whole and number % 1)
        and (at_least is None or number >= at_least)
        and (above is None or number > above)
        and (at_most is None or number <= at_most)
        and (below is None or number < below)
    )
    if not inside:
        kind = "a whole number" if whole else "a number"
        words = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if limit is not None)
        raise InputError(f"{name} is {value!r}: give {kind} {words}".rstrip())
    return number


def check_whole(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> int:
    """Returns a user's value of the argument `name` as an int.

    Raises:
        InputError: it is not a whole number within the limits.

    Examples:
        >>> check_whole("patience", 0, at_least=1)
        Traceback (most recent call last):
        tfsparsecap.errors.InputError: patience is 0: give a whole number of at least 1
    """
    return int(check_number(name, value, whole=True, at_least=at_least, at_most=at_most))


@contextmanager
def error_prefix(prefix: object) -> Iterator[None]:
    """Puts `PREFIX: ` before the message of an InputError in the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{prefix}: {error}") from error
