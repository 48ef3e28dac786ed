"""METEOR, computed by the Java program that comes with pycocoevalcap."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.meteor import meteor as pycocoevalcap_meteor
from tqdm import tqdm

from tfsparsecap.metrics.java import start_java


def meteor(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], progress: bool = False
) -> float:
    """METEOR 1.5 for English over all images, as in published COCO scores, from 0 to 1.

    Equal to pycocoevalcap's, which hangs if its Java program ends early.

    Args:
        references: image -> its references, words separated by spaces.
        captions: the same images -> the caption.
        progress: show a progress bar.

    Raises:
        InputError: Java is not installed, or the program fails.

    Reference:
        Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
        Language", WMT 2014.

    Examples:
        >>> round(meteor({1: ["a dog runs on grass"]}, {1: "a dog runs on grass"}), 3)  # doctest: +SKIP
        1.0
    """
    jar = Path(pycocoevalcap_meteor.__file__).with_name(pycocoevalcap_meteor.METEOR_JAR)
    arguments = ["-jar", str(jar), "-", "-", "-stdio", "-l", "en", "-norm"]
    seconds = 300 + len(captions)
    with start_java(arguments, program="METEOR", seconds=seconds, folder=jar.parent, gigabytes=2) as process:
        to_meteor, from_meteor = process.stdin, process.stdout
        assert to_meteor is not None and from_meteor is not None

        def send(*parts: str) -> None:
            to_meteor.write(" ||| ".join(parts) + "\n")
            to_meteor.flush()

        def receive() -> str:
            line = from_meteor.readline()
            if not line:
                raise ValueError("it ended too early")
            return line.strip()

        statistics = []
        images = tqdm(captions, unit="image", desc="METEOR", disable=not progress, leave=False)
        for image in images:
            texts = [text.replace("|||", "").replace("  ", " ") for text in references[image]]
            send("SCORE", *texts, captions[image].replace("|||", "").replace("  ", " "))
            statistics.append(receive())
        send("EVAL", *statistics)
        # A score for each image, then the one over all images.
        for _ in statistics:
            receive()
        return float(receive())
