"""Files are written atomically, and only regular files are overwritten."""

import os

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path, atomic_write


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path):
    path = tmp_path / "notes.txt"
    atomic_write(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and temporary.suffix == ".txt"
    atomic_write(path, b"new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_folders_and_devices_are_not_overwritten(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("folder", "a folder"), ("pipe", "not a regular file")):
        with pytest.raises(InputError, match=f"cannot write .*{name}: it is {what}; choose another name"):
            atomic_write(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 2


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*choose a folder you can write to"):
        atomic_write(tmp_path / "absent" / "notes.txt", "x")
