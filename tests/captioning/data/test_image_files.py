"""Finding the files of images by other spellings of their names."""

import unicodedata

import pytest

from tfsparsecap.captioning.data.image_files import ImageFiles


@pytest.fixture
def files(tmp_path):
    for name in ("b\u00e4r.png", "Images/cafe\u0301/a.png", "2014/c.png", "back\\slash.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return ImageFiles(tmp_path, ["2014", "nowhere"])


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("caf\u00e9\\a.png", "Images/cafe\u0301/a.png"),
        (unicodedata.normalize("NFD", "b\u00e4r.png"), "b\u00e4r.png"),
        ("c.png", "2014/c.png"),
        ("elsewhere/c.png", "2014/c.png"),
        ("back\\slash.png", "back\\slash.png"),
    ],
)
def test_other_spellings_name_the_same_file(files, tmp_path, name, found):
    assert files.find(name) == tmp_path / found


@pytest.mark.parametrize("name", ["", "2014", "a.png", "a\0/b.png", "a caption. " * 999, "\udce9/x.png"])
def test_what_is_no_file_is_not_found(files, name):
    assert files.find(name) is None
