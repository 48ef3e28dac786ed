"""The light tokenizer for scores, which needs no Java and agrees with the PTB tokenizer on most captions."""

import functools
import re
import unicodedata

from tfsparsecap.core.text import normalised, spaced

# Tags such as <unk>, numbers with separators, words with inner hyphens and full stops, symbols. As in the
# Penn Treebank "isn't" is two words (is, n't), and so are "dog's" (dog, 's) and "cannot" (can, not).
_PATTERN = (
    r"<\w+>|n't\b|'(?:s|re|ve|ll|d|m)\b|\d+(?:[.,:]\d+)+|can(?=not\b)|\w+?(?=n't\b)|\w+(?:[-.]\w+)*"
    r"|[&#%$@+*=]"
)
_TOKENS = re.compile(_PATTERN)


@functools.cache
def _tokens_with_marks() -> re.Pattern[str]:
    """`_TOKENS` for words with combining marks, such as Hindi's vowels, which are not in `\\w`; slower."""
    marks = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(_PATTERN.replace(r"\w", rf"[\w{marks}]").replace(r"\b", rf"(?![\w{marks}])"))


def light_tokenize(caption: str) -> str:
    """The words of a caption, separated by spaces, without case and punctuation; does not need Java.

    Letters are normalised as in vocabularies (`text.normalised`): a generated caption can equal a reference.
    In scripts without spaces, such as Chinese, each character is a word (`text.spaced`).

    Agrees with `java.ptb_tokenize` on 40 434 of Flickr8k's 40 455 captions; differs on abbreviations ("Jr.")
    and on brackets, which the PTB tokenizer turns into words ("-lrb-").

    Examples:
        >>> light_tokenize('Two dogs , one of them the man\\'s, play in "the snow".')
        "two dogs one of them the man 's play in the snow"
    """
    words = spaced(normalised(caption))
    return " ".join((_TOKENS if words.isascii() else _tokens_with_marks()).findall(words))
