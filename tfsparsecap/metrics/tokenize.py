"""Tokenisation for scores: the PTB tokenizer, as in the COCO evaluation, or a light one without Java."""

import functools
import re
import tempfile
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import run_java
from tfsparsecap.text import folded, spaced

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

    Letters are normalised as in vocabularies (`text.folded`): a generated caption can equal a reference. In
    scripts without spaces, such as Chinese, each character is a word (`text.spaced`).

    Agrees with `ptb_tokenize` on 40 434 of Flickr8k's 40 455 captions; differs on abbreviations ("Jr.") and
    on brackets, which `ptb_tokenize` turns into words ("-lrb-").

    Examples:
        >>> light_tokenize('Two dogs , one of them the man\\'s, play in "the snow".')
        "two dogs one of them the man 's play in the snow"
    """
    words = spaced(folded(caption))
    return " ".join((_TOKENS if words.isascii() else _tokens_with_marks()).findall(words))


def ptb_tokenize(captions: Iterable[str]) -> list[str]:
    """Tokenises captions as for published COCO scores: Stanford's PTBTokenizer, lower case, no punctuation.

    Equals pycocoevalcap's tokenizer, whose Java program it runs.

    Raises:
        InputError: Java is not installed, or the program fails.

    Examples:
        >>> ptb_tokenize(["A dog's ball."])
        ["a dog 's ball"]
    """
    from pycocoevalcap.tokenizer import ptbtokenizer  # files caption images without it

    # The program reads and writes one caption per line.
    lines = [" ".join(caption.split()) for caption in captions]
    if not lines:
        return []
    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    main = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "captions.txt"
        file.write_bytes("\n".join(lines).encode("utf-8", "replace"))
        seconds = 300 + len(lines) / 100
        output = run_java([*main, str(file)], program="the PTB tokenizer", seconds=seconds)
    tokenized = output.split("\n")
    if len(tokenized) != len(lines):
        raise InputError(
            f"the PTB tokenizer returned {len(tokenized)} lines for {len(lines)} captions: remove control"
            ' characters from the captions, or choose the tokenizer "light"'
        )
    words = [line.rstrip().split(" ") for line in tokenized]
    removed = frozenset(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(word for word in line if word not in removed) for line in words]
