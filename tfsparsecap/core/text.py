"""Formatting of numbers and names for tables, reports and figures, and comparison of words."""

import re
import unicodedata

#: Unicode's Default_Ignorable_Code_Point, as a regular expression.
INVISIBLE = (
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_INVISIBLE = re.compile(INVISIBLE)
# A character of Chinese, Japanese, Thai, Lao, Burmese or Khmer with its marks.
_WITHOUT_SPACES = re.compile(
    "([\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u1000-\u102a\u1780-\u17b3"
    "\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
    "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b6-\u17d3\u3099\u309a\u30fc]*)"
)
_PUNCTUATION = str.maketrans("\u2018\u2019\u02bc\u2010\u2011", "'''--")


def percent(fraction: float) -> str:
    """`0.975` as "97.5 %"."""
    return f"{round(100 * fraction, 6):g} %"


def one_line(text: str) -> str:
    """Text without line breaks and non-printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def normalised(text: str) -> str:
    """Text in which equal words are equal strings, those of vocabularies.

    NFKC and lower case, ASCII apostrophes and hyphens, no invisible characters.

    Examples:
        >>> normalised("The DOG\u2019s \ufb01sh")
        "the dog's fish"
    """
    text = _INVISIBLE.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", text.lower()).translate(_PUNCTUATION)


def spaced(text: str) -> str:
    """Text with spaces around each character of a script without spaces, so that scores compare characters.

    Examples:
        >>> spaced("two \u72ac\u304c").split()
        ['two', '\u72ac', '\u304c']
    """
    return text if text.isascii() else _WITHOUT_SPACES.sub(r" \1 ", text)
