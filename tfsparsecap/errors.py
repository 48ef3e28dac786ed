"""The exception for wrong input."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """Input that cannot be used. The message is one sentence: what is wrong, where, and what to do.

    The command lines print the message without a traceback and exit with code 2.
    """


def unknown_name(what: str, given: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is not one of `choices`; it suggests the most similar choice.

    Examples:
        >>> print(unknown_name("metric", "SPICES", ["BLEU", "SPICE"]))
        there is no metric 'SPICES': did you mean SPICE?
        >>> print(unknown_name("metric", "accuracy", ["BLEU", "SPICE"]))
        there is no metric 'accuracy': choose one of BLEU, SPICE
    """
    names = {choice.lower(): choice for choice in choices}
    similar = difflib.get_close_matches(str(given).lower(), names, n=1)
    hint = f"did you mean {names[similar[0]]}?" if similar else f"choose one of {', '.join(names.values())}"
    return InputError(f"there is no {what} {given!r}: {hint}")


@contextmanager
def error_prefix(prefix: object) -> Iterator[None]:
    """Puts `PREFIX: ` before the message of an InputError in the block."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{prefix}: {error}") from error
