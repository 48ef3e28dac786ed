"""Captions to words as the COCO evaluation sees them: by Stanford's tokenizer, or lightly, without Java."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pycocoevalcap.tokenizer import ptbtokenizer

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import run_java

# What the COCO evaluation takes for punctuation.
_SIGNS = frozenset(ptbtokenizer.PUNCTUATIONS)

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

    Equals pycocoevalcap's tokenizer, of which it runs the program; see `java.find_java` for the Java that it
    takes.

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
    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    main = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "captions.txt"
        file.write_bytes("\n".join(lines).encode("utf-8", "replace"))
        seconds = 300 + len(lines) / 100
        output = run_java([*main, str(file)], what="the PTB tokenizer", seconds=seconds)
    tokenized = output.split("\n")
    if len(tokenized) != len(lines):
        raise InputError(
            f"the PTB tokenizer gave {len(tokenized)} lines for {len(lines)} captions: choose tokenizer"
            ' "light", and look for characters in the captions that are none'
        )
    return [" ".join(word for word in line.rstrip().split(" ") if word not in _SIGNS) for line in tokenized]
