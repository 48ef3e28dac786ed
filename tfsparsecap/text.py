"""Formatting of numbers and names for tables, reports and figures, and comparison of words."""

import re
import unicodedata

_PUNCTUATION = str.maketrans("\u2018\u2019\u02bc\u2010\u2011", "'''--")


def percent(fraction: float) -> str:
    """`0.975` as "97.5 %"."""
    return f"{round(100 * fraction, 6):g} %"


def short_count(number: float) -> str:
    """`1_234_567` as "1.2 M", `310_544` as "311 k", `954` as "954"."""
    # 999 600 is "1.0 M", not "1000 k".
    if number >= 999_500:
        return f"{number / 1e6:.1f} M"
    return f"{number / 1e3:.0f} k" if number >= 999.5 else f"{number:.0f}"


def one_line(text: str) -> str:
    """Text without line breaks and non-printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def escaped(text: str) -> str:
    """Escapes text so that Markdown displays it literally, even in a table.

    Examples:
        >>> print(escaped("SMP | 16x1"))
        SMP \\| 16x1
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~&$])", r"\\\1", one_line(text))


def folded(text: str) -> str:
    """Text in which equal words are equal strings: NFKC and case folding, ASCII apostrophes and hyphens.

    Examples:
        >>> folded("Stra\u00dfe") == folded("STRASSE")
        True
    """
    return unicodedata.normalize("NFKC", text).casefold().translate(_PUNCTUATION)
