"""SPICE, computed by the Java program that comes with pycocoevalcap, and the archives that it lacks."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.spice import spice as pycocoevalcap_spice

from tfsparsecap.captioning.metrics.java import run_java
from tfsparsecap.core.files import cache_folder, make_folder, temporary_folder, write_errors
from tfsparsecap.errors import InputError

#: File -> its Maven coordinates and SHA-256. Rhino is a JavaScript engine, which Java has not included since
#: version 15.
JARS = {
    "stanford-corenlp-3.6.0.jar": (
        "edu.stanford.nlp:stanford-corenlp:3.6.0",
        "d341d5863276f55782c5ef73212222d6b3b48e02ae1951ab6de7618d28b12742",
    ),
    "stanford-corenlp-3.6.0-models.jar": (
        "edu.stanford.nlp:stanford-corenlp:3.6.0:jar:models",
        "d285157bd7887ee3018094b5dbae092e49088b023361ccdb550ee1daf9b2c9bd",
    ),
    "rhino-1.7.15.jar": (
        "org.mozilla:rhino:1.7.15",
        "2427fdcbc149ca0a25ccfbb7c71b01f39ad42708773a47816cd2342861766b63",
    ),
    "rhino-engine-1.7.15.jar": (
        "org.mozilla:rhino-engine:1.7.15",
        "b7bbb6724812a8ba6c650cf4a1e655a24af4d73a321add5a64a54c2d5963ce00",
    ),
}
#: Size of all archives.
MEGABYTES = 387
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_FETCH_SECONDS = 3600
# Java packages that SPICE's libraries access by reflection; Java 17 and later require them to be opened.
_OPENED = ("lang", "util", "util.concurrent", "math", "net", "text", "io", "nio")


def jar_folder() -> Path:
    """Where archives and parsed sentences are kept."""
    return cache_folder() / "spice"


def spice(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], jars: Path, progress: bool = False
) -> float:
    """SPICE over all images, as in published COCO scores, from 0 to 1: the mean F-measure.

    It parses about ten sentences per second. On x86-64 the parses are kept in the cache folder, so that other
    captions of the same images take less time.

    Args:
        references: image -> its references, words separated by spaces.
        captions: the same images -> the caption.
        jars: the folder returned by `spice_jars`.
        progress: print to stderr that it has started.

    Raises:
        InputError: Java is not installed, SPICE fails, or it returns no score for an image.

    Reference:
        Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016.
    """
    sources = Path(pycocoevalcap_spice.__file__).parent
    rows = [
        {"image_id": number, "test": caption, "refs": list(references[image])}
        for number, (image, caption) in enumerate(captions.items())
    ]
    paths = (sources / pycocoevalcap_spice.SPICE_JAR, sources / "lib" / "*", jars.absolute() / "*")
    sentences = sum(1 + len(references[image]) for image in captions)
    if progress:
        print(f"SPICE parses up to {sentences} sentences, about ten per second", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.json").write_text(json.dumps(rows), encoding="utf-8")
        run_java(
            [
                *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
                *("-cp", os.pathsep.join(map(str, paths)), "edu.anu.spice.SpiceScorer", "in.json"),
                *("-out", "out.json", "-subset", "-silent", *_cache_arguments()),
            ],
            program="SPICE",
            seconds=900 + 3 * sentences,
            folder=folder,
            gigabytes=8,
        )
        try:
            results = json.loads((folder / "out.json").read_text(encoding="utf-8"))
            scores = {result["image_id"]: result["scores"]["All"]["f"] for result in results}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"SPICE wrote no readable result ({error})") from error
    values = [scores.get(number) for number in range(len(rows))]
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values):
        raise InputError(f"SPICE returned no score for {len(values) - len(numbers)} of {len(rows)} images")
    return sum(numbers) / len(numbers)


def _cache_arguments() -> list[str]:
    """Arguments that keep parsed sentences; the database library that SPICE uses for it needs x86-64."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    folder = jar_folder() / "parsed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return []
    return ["-cache", str(folder)] if os.access(folder, os.W_OK) else []


def spice_jars(folder: str | os.PathLike | None = None, *, fetch: bool = False) -> Path:
    """The folder with the archives that SPICE needs and pycocoevalcap lacks.

    Args:
        folder: where they are; None is `jar_folder()`.
        fetch: download missing ones with Maven (`mvn`, which must be installed): 387 MB in all.

    Raises:
        InputError: archives are missing and `fetch` is not set, or they cannot be downloaded.

    Examples:
        >>> spice_jars(fetch=True)  # doctest: +SKIP
        PosixPath('.cache/tfsparsecap/spice')
    """
    folder = jar_folder() if folder is None else Path(folder)
    missing = [name for name in JARS if not (folder / name).is_file()]
    if not missing:
        return folder
    if not fetch:
        raise InputError(
            f"{', '.join(missing)} are missing in {folder}: pass --spice to download them once"
            f" ({MEGABYTES} MB in all), or --spice-jars to name another folder"
        )
    maven = shutil.which("mvn")
    if maven is None:
        raise InputError(
            f"cannot download {', '.join(missing)}: mvn is not installed; install Maven, or put them into"
            f" {folder}"
        )
    print(
        f"downloading {len(missing)} archives for SPICE into {folder}: up to {MEGABYTES} MB", file=sys.stderr
    )
    make_folder(folder)
    with write_errors(folder), temporary_folder(folder / "fetching") as temporary:
        for name in missing:
            _fetch(maven, name, temporary)
            (temporary / name).replace(folder / name)
    return folder


def _fetch(maven: str, name: str, folder: Path) -> None:
    coordinates, digest = JARS[name]
    command = [maven, "-q", "-B", _COPY, f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"Maven was stopped after {_FETCH_SECONDS} s: check the network connection"
        ) from error
    if done.returncode or not (folder / name).is_file():
        lines = [line for line in done.stdout.decode(errors="replace").splitlines() if "ERROR" in line]
        reason = (lines or ["it wrote no file"])[0].strip()[:200]
        raise InputError(f"Maven could not download {name}: {reason}")
    with (folder / name).open("rb") as file:
        file_digest = hashlib.file_digest(file, "sha256").hexdigest()
    if file_digest != digest:
        raise InputError(
            f"Maven downloaded another file as {name}: its SHA-256 is {file_digest}, not {digest}"
        )
