"""The captioners that come with the package."""

from pathlib import Path

import pytest

import tfsparsecap.captioning.captioners
from tfsparsecap.captioning.captioners import NAMES, captioner_path
from tfsparsecap.captioning.inference import load
from tfsparsecap.errors import InputError

PHOTOGRAPHS = Path(__file__).resolve().parents[3] / "docs" / "images" / "photographs"


def test_each_name_is_a_file():
    files = Path(tfsparsecap.captioning.captioners.__file__).parent.glob("*.tflite")
    assert sorted(NAMES) == sorted(file.stem for file in files)
    assert all(captioner_path(name).is_file() for name in NAMES)


def test_files_and_folders_in_the_working_directory_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").mkdir()
    (tmp_path / "small").touch()
    assert [captioner_path(name) for name in NAMES] == [Path("good"), Path("small")]
    for path in ("other", "./good", "runs/good", "good.tflite", Path("a/b")):
        assert captioner_path(path) == Path(path)


def test_they_caption_photographs_and_the_first_is_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = [captions[0].text for captions in load().generate(PHOTOGRAPHS)]
    assert first == [captions[0].text for captions in load(NAMES[0]).generate(PHOTOGRAPHS)]
    assert len({*first}) == 4 and min(len(text.split()) for text in first) > 3
    captions = load("small").generate(PHOTOGRAPHS / "astronaut.jpg")
    assert captions[0].text and 0 < captions[0].confidence < 1


@pytest.mark.parametrize("name", ["excellent", "runs/good"])
def test_unknown_names_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"cannot read {name}: No such file .* good or small"):
        load(name)
