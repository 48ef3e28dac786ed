"""SPICE: what its program is given, what is made of its answer, and the program itself if at hand."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.spice import spice
from tfsparsecap.metrics.spice_jars import spice_jars

REFERENCES = {
    "x": ["a dog runs over the grass", "the brown dog is running"],
    "y": ["two men sit on a bench"],
    "z": ["a café in japan"],
}
CAPTIONS = {"z": "un café 日本", "x": "a brown dog runs", "y": ""}
#: Stands for SPICE: the score of a caption is the number of its words over that of the first reference's,
#: and the images come in another order.
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


def test_scores_are_those_of_the_images_that_they_are_for(commands, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", PROGRAM + WRITE)
    expected = (4 / 6 + 0 / 6 + 3 / 4) / 3
    assert spice(REFERENCES, CAPTIONS, tmp_path / "jars") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("del out[0]", "no score for 1 of 3 images"),
        ("out[0]['scores']['All']['f'] = None", "no score for 1 of 3 images"),
        ("out = [{'image': 1}]", "SPICE wrote nothing that can be read"),
        ("out = {}", "no score for 3 of 3 images"),
        ("sys.exit('Exception in thread \"main\" java.lang.OutOfMemoryError')", "OutOfMemoryError"),
        ("sys.exit()", "SPICE wrote nothing that can be read"),
    ],
)
def test_what_is_no_score_of_every_image_is_told(commands, tmp_path, monkeypatch, change, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", f"{PROGRAM}\n{change}\n{WRITE}")
    with pytest.raises(InputError, match=message):
        spice(REFERENCES, CAPTIONS, tmp_path / "jars")


def test_a_cache_that_cannot_be_made_is_done_without(commands, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands("java", PROGRAM + 'assert "-cache" not in given\n' + WRITE)
    assert spice(REFERENCES, CAPTIONS, tmp_path / "jars") > 0


@pytest.mark.slow
def test_the_program_itself_gives_what_its_paper_says(with_java, tmp_path, monkeypatch):
    try:
        jars = spice_jars()
    except InputError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # (dog), (dog, brown), (dog, run) are right; of the references (grass) and (dog, run over, grass) are not
    # there: precision 3 of 3, recall 3 of 5.
    references, captions = {"x": REFERENCES["x"]}, {"x": CAPTIONS["x"]}
    assert spice(references, captions, jars) == pytest.approx(0.75)
    # From what it has parsed by now; nothing is right in the others.
    assert spice(REFERENCES, CAPTIONS, jars) == pytest.approx(0.75 / 3)
