"""Archives for SPICE: found, fetched by a Maven that is none, or named; nothing is downloaded."""

import hashlib
import os

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics import spice_jars as module
from tfsparsecap.metrics.spice_jars import JARS, cache_folder, spice_jars

#: Stands for Maven: writes the artifact's name as the archive's content.
MAVEN = """
import sys
from pathlib import Path
given = dict(argument[2:].split("=", 1) for argument in sys.argv if argument.startswith("-D"))
group, artifact, version, *rest = given["artifact"].split(":")
name = "-".join([artifact, version, *rest[1:]]) + ".jar"
Path(given["outputDirectory"], name).write_text(given["artifact"])
"""


@pytest.fixture
def small(monkeypatch):
    """Archives that hold what `MAVEN` writes."""
    jars = {name: (of, hashlib.sha256(of.encode()).hexdigest()) for name, (of, _) in JARS.items()}
    monkeypatch.setattr(module, "JARS", jars)
    return jars


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tfsparsecap" / "spice"


def test_what_lies_there_is_taken_as_it_is(commands, monkeypatch, tmp_path):
    for name in JARS:
        (tmp_path / name).write_bytes(b"")
    assert spice_jars(tmp_path, fetch=True) == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=r"there is no stanford.*--spice fetches that once \(387 MB"):
        spice_jars()


def test_only_what_is_missing_is_fetched(commands, small, tmp_path, capfd):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "rhino-1.7.15.jar").write_text("mine")
    commands("mvn", MAVEN)
    assert spice_jars(tmp_path / "jars", fetch=True) == tmp_path / "jars"
    assert "fetching 3 archives for SPICE" in capfd.readouterr().err
    held = {file.name: file.read_text() for file in (tmp_path / "jars").iterdir()}
    assert held == {name: of for name, (of, _) in small.items()} | {"rhino-1.7.15.jar": "mine"}


@pytest.mark.parametrize(
    ("maven", "message"),
    [
        (None, "there is no mvn to fetch .*install Maven, or put them into"),
        ("import sys; print('[ERROR] no route to host'); sys.exit(1)", "could not fetch .*no route to host"),
        ("import sys; sys.exit(1)", "Maven could not fetch stanford-corenlp-3.6.0.jar"),
        ("pass", "Maven could not fetch stanford-corenlp-3.6.0.jar: it was not there"),
        (MAVEN.replace('write_text(given["artifact"])', 'write_text("x")'), "another file than it was"),
        (MAVEN.replace("group,", "if 'rhino' in given['artifact']: sys.exit(1)\ngroup,"), "fetch rhino-1"),
    ],
)
def test_what_cannot_be_fetched_is_told_and_leaves_nothing_behind(commands, small, tmp_path, maven, message):
    if maven is not None:
        commands("mvn", maven)
    folder = tmp_path / "jars"
    with pytest.raises(InputError, match=message):
        spice_jars(folder, fetch=True)
    # What came whole before it stays.
    assert not folder.exists() or all(file.name in JARS for file in folder.iterdir())


def test_a_maven_that_hangs_is_stopped(commands, small, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_SECONDS", 1)
    commands("mvn", "import time; time.sleep(300)")
    with pytest.raises(InputError, match="Maven was stopped after 1 s: is there a network"):
        spice_jars(tmp_path, fetch=True)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_named(commands, small, tmp_path):
    commands("mvn", MAVEN)
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot write into"):
        spice_jars(tmp_path / "jars", fetch=True)


def test_a_folder_that_is_a_file_is_named(commands, small, tmp_path):
    commands("mvn", MAVEN)
    (tmp_path / "jars").write_text("")
    with pytest.raises(InputError, match="cannot write into"):
        spice_jars(tmp_path / "jars", fetch=True)
