"""Arguments that users give."""

import math
from typing import Any

from tfsparsecap.errors import InputError


def as_number(name: str, value: Any) -> float:
    """A number as a float.

    Args:
        name: of the argument, for the message.
        value: as given.

    Raises:
        InputError: it is no number, or not a finite one.

    Example:
        >>> as_number("sparsity", "0.5")
        0.5
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a number: got {value!r}")
    return number
