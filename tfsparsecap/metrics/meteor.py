"""METEOR of captions, by the program that pycocoevalcap brings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.meteor import meteor as pycocoevalcap_meteor
from tqdm import tqdm

from tfsparsecap.metrics.java import started_java

_BETWEEN = " ||| "


def meteor(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], progress: bool = False
) -> float:
    """METEOR 1.5 for English over all images, as the published COCO scores have it, from 0 to 1.

    Equal to pycocoevalcap's, which waits for ever where its Java ends early.

    Args:
        references: image -> its references, words parted by spaces.
        captions: the same images -> the caption, likewise.
        progress: show a progress bar.

    Raises:
        InputError: there is no Java, or it fails.

    Reference:
        Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
        Language", WMT 2014.

    Example:
        >>> round(meteor({1: ["a dog runs on grass"]}, {1: "a dog runs on grass"}), 3)
        1.0
    """
    jar = Path(pycocoevalcap_meteor.__file__).with_name(pycocoevalcap_meteor.METEOR_JAR)
    arguments = ["-jar", str(jar), "-", "-", "-stdio", "-l", "en", "-norm"]
    seconds = 300 + len(captions)
    with started_java(arguments, what="METEOR", seconds=seconds, folder=jar.parent, gigabytes=2) as process:

        def answer() -> str:
            line = process.stdout.readline()
            if not line:
                raise ValueError("it ended too early")
            return line.strip()

        def ask(*parts: str) -> None:
            process.stdin.write(_BETWEEN.join(parts) + "\n")
            process.stdin.flush()

        found = []
        for image, caption in tqdm(
            captions.items(), unit="image", desc="METEOR", disable=not progress, leave=False
        ):
            texts = [text.replace("|||", "").replace("  ", " ") for text in (*references[image], caption)]
            ask("SCORE", *texts)
            found.append(answer())
        ask("EVAL", *found)
        # A score for each image, then the one of them all.
        for _ in found:
            answer()
        return float(answer())
