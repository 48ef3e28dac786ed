"""The same photograph in two splits."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.data import load
from tfsparsecap.captioning.data.copies import copies_across_splits
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.errors import InputError


def records(folder, **files):
    """Records of files named SPLIT_…, with their content."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [Record(name, folder / name, ("a dog",), name.split("_")[0]) for name in files]


def names(pairs):
    return [(one.image_id, two.image_id) for one, two in pairs]


def test_equal_files_in_two_splits_are_found(tmp_path):
    found = records(
        tmp_path,
        train_a=b"1" * 9000,
        train_b=b"2" * 9000,
        train_c=b"2" * 9000,  # within a split
        validation_d=b"3" + b"1" * 8999,  # equal size and end
        test_e=b"1" * 9000,
        test_f=b"1" * 8999,
        test_g=b"7",
        validation_h=b"7",
        train_i=b"7",
        test_empty=b"",
        train_empty=b"",
    )
    assert names(copies_across_splits(found)) == [("train_a", "test_e"), ("test_g", "validation_h")]


def test_files_that_cannot_be_read_are_left_out(tmp_path):
    (tmp_path / "folder").mkdir()
    paths = (Path("nowhere"), Path("a\0b"), tmp_path / "folder")
    found = [Record(f"{path}{split}", path, ("x",), split) for path in paths for split in ("train", "test")]
    assert copies_across_splits(found) == []


def test_a_photograph_in_two_splits_is_refused(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"photograph")
    (tmp_path / "b.jpg").write_bytes(b"photograph")
    (tmp_path / "captions.csv").write_text("image,caption,split\na.jpg,a dog,train\nb.jpg,a dog,test\n")
    message = (
        r"has 1 photograph in two splits, a\.jpg \(train\) is b\.jpg \(test\): put both into one split, or"
        r" remove one of them$"
    )
    with pytest.raises(InputError, match=message):
        load("table", tmp_path)
    (tmp_path / "captions.csv").write_text("image,caption,split\na.jpg,a dog,train\nb.jpg,a dog,train\n")
    assert len(load("table", tmp_path).records) == 2


def test_copies_in_ms_cocos_splits_are_a_note(tmp_path):
    (tmp_path / "annotations").mkdir()
    for number, split in enumerate(("train", "val")):
        (tmp_path / f"{number}.jpg").write_bytes(b"photograph")
        (tmp_path / "annotations" / f"captions_{split}2014.json").write_text(
            f'{{"images": [{{"id": {number}, "file_name": "{number}.jpg"}}],'
            f' "annotations": [{{"image_id": {number}, "caption": "a dog"}}]}}'
        )
    data = load("coco", tmp_path)
    assert len(data.records) == 2
    assert data.notes[-1].endswith("has 1 photograph in two splits, 0 (train) is 1 (validation)")


@pytest.mark.parametrize("name", ["flickr8k", "coco_everyday"])
def test_published_splits_have_no_copies(shared, name):
    data = load("flickr" if name == "flickr8k" else "table", shared(f"data/{name}"))
    assert data.split("test")
