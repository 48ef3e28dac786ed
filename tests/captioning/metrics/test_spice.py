"""SPICE with a fake program and, if its archives are there, the real one; downloads with a fake Maven."""

import hashlib

import pytest

from tfsparsecap.captioning.metrics import spice as spice_module
from tfsparsecap.captioning.metrics.spice import JARS, jar_folder, spice, spice_jars
from tfsparsecap.errors import InputError

REFERENCES = {
    "x": ["a dog runs over the grass", "the brown dog is running"],
    "y": ["two men sit on a bench"],
    "z": ["a café in japan"],
}
CAPTIONS = {"z": "un café 日本", "x": "a brown dog runs", "y": ""}
#: A fake SPICE: the score of a caption is the number of its words divided by that of its first reference;
#: it returns the images in another order.
PROGRAM = """
import json, sys
given = sys.argv[1:]
assert "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED" in given
assert given[given.index("-cp") + 1].endswith("/jars/*") and "-subset" in given and "-silent" in given
rows = json.load(open(given[given.index("edu.anu.spice.SpiceScorer") + 1], encoding="utf-8"))
out = [
    {"image_id": row["image_id"],
     "scores": {"All": {"f": len(row["test"].split()) / len(row["refs"][0].split())}}}
    for row in reversed(rows)
]
"""
WRITE = 'json.dump(out, open(given[given.index("-out") + 1], "w"))'


def test_scores_are_matched_to_images(commands, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", PROGRAM + WRITE)
    expected = (4 / 6 + 0 / 6 + 3 / 4) / 3
    assert spice(REFERENCES, CAPTIONS, tmp_path / "jars") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("del out[0]", "returned no score for 1 of 3 images"),
        ("out[0]['scores']['All']['f'] = None", "returned no score for 1 of 3 images"),
        ("out = [{'image': 1}]", "SPICE wrote no readable result"),
        ("out = {}", "returned no score for 3 of 3 images"),
        ("sys.exit('Exception in thread \"main\" java.lang.OutOfMemoryError')", "OutOfMemoryError"),
        ("sys.exit()", "SPICE wrote no readable result"),
    ],
)
def test_results_without_all_scores_are_reported(commands, tmp_path, monkeypatch, change, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", f"{PROGRAM}\n{change}\n{WRITE}")
    with pytest.raises(InputError, match=message):
        spice(REFERENCES, CAPTIONS, tmp_path / "jars")


def test_spice_runs_without_a_jar_folder(commands, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", PROGRAM + 'assert "-cache" not in given\n' + WRITE)
    assert spice(REFERENCES, CAPTIONS, tmp_path / "jars") > 0


@pytest.mark.slow
def test_the_real_program_scores_as_the_paper_defines(with_java, tmp_path, monkeypatch):
    try:
        jars = spice_jars()
    except InputError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # (dog), (dog, brown), (dog, run) are right; of the references (grass) and (dog, run over, grass) are not
    # there: precision 3 of 3, recall 3 of 5.
    references, captions = {"x": REFERENCES["x"]}, {"x": CAPTIONS["x"]}
    assert spice(references, captions, jars) == pytest.approx(0.75)
    # This uses the cached parses; the other captions match nothing.
    assert spice(REFERENCES, CAPTIONS, jars) == pytest.approx(0.75 / 3)


#: A fake Maven that writes the artifact's name as the archive's content.
MAVEN = """
import sys
from pathlib import Path
given = dict(argument[2:].split("=", 1) for argument in sys.argv if argument.startswith("-D"))
group, artifact, version, *rest = given["artifact"].split(":")
name = "-".join([artifact, version, *rest[1:]]) + ".jar"
Path(given["outputDirectory"], name).write_text(given["artifact"])
"""


@pytest.fixture
def fake_jars(monkeypatch):
    """Archives with the content that `MAVEN` writes."""
    jars = {name: (of, hashlib.sha256(of.encode()).hexdigest()) for name, (of, _) in JARS.items()}
    monkeypatch.setattr(spice_module, "JARS", jars)
    return jars


def test_the_cache_is_in_the_users_jar_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jar_folder() == tmp_path / "tfsparsecap" / "spice"


def test_existing_archives_are_used(commands, monkeypatch, tmp_path):
    for name in JARS:
        (tmp_path / name).write_bytes(b"")
    assert spice_jars(tmp_path, fetch=True) == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=r"stanford.* are missing .*--spice to download them once \(387 MB"):
        spice_jars()


def test_only_missing_archives_are_downloaded(commands, fake_jars, tmp_path, capfd):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "rhino-1.7.15.jar").write_text("mine")
    commands("mvn", MAVEN)
    assert spice_jars(tmp_path / "jars", fetch=True) == tmp_path / "jars"
    assert "downloading 3 archives for SPICE" in capfd.readouterr().err
    content = {file.name: file.read_text() for file in (tmp_path / "jars").iterdir()}
    assert content == {name: of for name, (of, _) in fake_jars.items()} | {"rhino-1.7.15.jar": "mine"}


@pytest.mark.parametrize(
    ("maven", "message"),
    [
        (None, "cannot download .* mvn is not installed; install Maven, or put them into"),
        ("import sys; print('[ERROR] no route to host'); sys.exit(1)", "not download .*no route to host"),
        ("import sys; sys.exit(1)", "Maven could not download stanford-corenlp-3.6.0.jar"),
        ("pass", "Maven could not download stanford-corenlp-3.6.0.jar: it wrote no file"),
        (MAVEN.replace('write_text(given["artifact"])', 'write_text("x")'), "downloaded another file"),
        (MAVEN.replace("group,", "if 'rhino' in given['artifact']: sys.exit(1)\ngroup,"), "download rhino-1"),
    ],
)
def test_failed_downloads_are_reported_and_leave_nothing(commands, fake_jars, tmp_path, maven, message):
    if maven is not None:
        commands("mvn", maven)
    folder = tmp_path / "jars"
    with pytest.raises(InputError, match=message):
        spice_jars(folder, fetch=True)
    # Archives that were complete before stay.
    assert not folder.exists() or all(file.name in JARS for file in folder.iterdir())


def test_a_maven_that_hangs_is_killed(commands, fake_jars, monkeypatch, tmp_path):
    monkeypatch.setattr(spice_module, "_FETCH_SECONDS", 1)
    commands("mvn", "import time; time.sleep(300)")
    with pytest.raises(InputError, match="Maven was stopped after 1 s: check the network"):
        spice_jars(tmp_path, fetch=True)


def test_a_folder_that_is_a_file_is_reported(commands, fake_jars, tmp_path):
    commands("mvn", MAVEN)
    (tmp_path / "jars").write_text("")
    with pytest.raises(InputError, match="cannot create the folder"):
        spice_jars(tmp_path / "jars", fetch=True)
