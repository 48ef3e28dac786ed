"""Archives of Java that SPICE needs and pycocoevalcap lacks: fetched when asked for, kept in the cache."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

from tfsparsecap.errors import InputError

#: File -> Maven's name of it, and its SHA-256. Rhino is a JavaScript engine: Java has none
#: of its own since version 15.
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
#: Of all of them.
MEGABYTES = 387
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SECONDS = 3600


def cache_folder() -> Path:
    """Where the archives are kept, and what SPICE has parsed: in `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfsparsecap" / "spice"


def spice_jars(
    folder: str | os.PathLike | None = None, *, fetch: bool = False, progress: bool = False
) -> Path:
    """The folder with the archives that SPICE needs.

    Args:
        folder: where they lie, or shall; None is `cache_folder()`.
        fetch: fetch what is not there, with Maven (`mvn`, which has to be installed): 387 MB.
        progress: show how long that has taken so far.

    Raises:
        InputError: some are not there and were not to be fetched, or could not be.

    Example:
        >>> spice_jars(fetch=True)  # doctest: +SKIP
        PosixPath('.cache/tfsparsecap/spice')
    """
    chosen = cache_folder() if folder is None else Path(folder)
    missing = [name for name in JARS if not (chosen / name).is_file()]
    if not missing:
        return chosen
    if not fetch:
        raise InputError(
            f"there is no {', '.join(missing)} in {chosen}: --spice fetches that once ({MEGABYTES} MB"
            " in all), or --spice-jars names another folder"
        )
    maven = shutil.which("mvn")
    if maven is None:
        raise InputError(
            f"there is no mvn to fetch {', '.join(missing)} with: install Maven, or put them into {chosen}"
        )
    print(
        f"fetching {len(missing)} archives for SPICE into {chosen}, once: up to {MEGABYTES} MB",
        file=sys.stderr,
    )
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=chosen, prefix=".fetching-") as temporary:
            for name in missing:
                _fetch(maven, name, Path(temporary), progress)
                (Path(temporary) / name).replace(chosen / name)
    except OSError as error:
        raise InputError(f"cannot write into {chosen} ({error.strerror}): name another folder") from error
    return chosen


def _fetch(maven: str, name: str, folder: Path, progress: bool) -> None:
    coordinates, digest = JARS[name]
    command = [maven, "-q", "-B", _COPY, f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"]
    deadline = tqdm(
        desc=f"fetching {name}", bar_format="{desc}: {elapsed}", disable=not progress, leave=False
    )
    with (
        deadline as bar,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        try:
            said = _waited_for(process, bar)
        except BaseException:
            process.kill()
            raise
    if process.returncode or not (folder / name).is_file():
        lines = [line for line in said.decode(errors="replace").splitlines() if "ERROR" in line]
        reason = (lines or ["it was not there"])[0].strip()[:200]
        raise InputError(f"Maven could not fetch {name}: {reason}")
    with (folder / name).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise InputError(f"what Maven fetched as {name} is another file than it was: its SHA-256 is {found}")


def _waited_for(process: subprocess.Popen, bar: tqdm) -> bytes:
    for _ in range(_SECONDS):
        try:
            return process.communicate(timeout=1)[0]
        except subprocess.TimeoutExpired:
            bar.update()
    raise InputError(f"Maven was stopped after {_SECONDS} s: is there a network?")
