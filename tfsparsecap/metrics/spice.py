"""SPICE of captions, by the program that pycocoevalcap brings, with what it lacks on a Java of today."""

import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.spice import spice as pycocoevalcap_spice

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import run_java
from tfsparsecap.metrics.spice_jars import cache_folder

# Parts of Java that SPICE's libraries reach into, which Java 17 and later forbid unless they are named.
_OPENED = ("lang", "util", "util.concurrent", "math", "net", "text", "io", "nio")


def spice(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], jars: Path, progress: bool = False
) -> float:
    """SPICE over all images, as the published COCO scores have it, from 0 to 1: their mean F-measure.

    It parses each sentence, some ten a second; what it has parsed is kept in the cache folder, where the
    database library that SPICE brings runs (x86-64), so that other captions of the same images take less.

    Args:
        references: image -> its references, words parted by spaces.
        captions: the same images -> the caption, likewise.
        jars: the folder that `spice_jars.spice_jars` gives.
        progress: show how long it has taken so far.

    Raises:
        InputError: there is no Java, it fails, or SPICE has no score for an image.

    Reference:
        Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016.
    """
    sources = Path(pycocoevalcap_spice.__file__).parent
    rows = [
        {"image_id": number, "test": caption, "refs": list(references[image])}
        for number, (image, caption) in enumerate(captions.items())
    ]
    paths = (sources / pycocoevalcap_spice.SPICE_JAR, sources / "lib" / "*", jars.absolute() / "*")
    seconds = 900 + 3 * sum(1 + len(row["refs"]) for row in rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.json").write_text(json.dumps(rows), encoding="utf-8")
        run_java(
            [
                *(f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in _OPENED),
                *("-cp", os.pathsep.join(map(str, paths)), "edu.anu.spice.SpiceScorer", "in.json"),
                *("-out", "out.json", "-subset", "-silent", *_kept_parses()),
            ],
            what="SPICE",
            seconds=seconds,
            folder=folder,
            gigabytes=8,
            progress=progress,
        )
        try:
            found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
            scores = {row["image_id"]: row["scores"]["All"]["f"] for row in found}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"SPICE wrote nothing that can be read ({error})") from error
    values = [scores.get(number) for number in range(len(rows))]
    without = sum(not isinstance(value, int | float) for value in values)
    if without:
        raise InputError(f"SPICE has no score for {without} of {len(rows)} images")
    return sum(values) / len(values)


def _kept_parses() -> list[str]:
    """Arguments that keep parsed sentences for the next time."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    folder = cache_folder() / "parsed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return []
    return ["-cache", str(folder)] if os.access(folder, os.W_OK) else []
