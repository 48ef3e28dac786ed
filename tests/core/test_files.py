"""Files are written atomically, and everything that can go wrong is reported in one sentence."""

import errno
import json
import os
import signal
import tempfile

import pytest

from tfsparsecap.core.files import (
    LARGEST_INPUT,
    atomic_path,
    atomic_write,
    cache_folder,
    check_input_file,
    csv_text,
    make_folder,
    read_bytes,
    read_json,
    read_text,
    remove_leftovers,
    temporary_folder,
    write_errors,
)
from tfsparsecap.errors import InputError


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path):
    path = tmp_path / "notes.txt"
    atomic_write(path, "old")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and temporary.suffix == ".txt"
    atomic_write(path, b"new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


@pytest.mark.filterwarnings("ignore:.*fork")
def test_leftovers_of_killed_processes_are_deleted_and_those_of_living_ones_stay(tmp_path):
    path = tmp_path / f"{'features-' * 20}.npy"

    def start():
        """A process that writes a file, and waits; the process and its temporary file."""
        before, (reading, writing) = set(tmp_path.iterdir()), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with atomic_path(path) as temporary:
                    temporary.write_text("half")
                    os.write(writing, b"x")
                    signal.pause()
            finally:
                os._exit(1)
        os.close(writing)
        assert os.read(reading, 1)
        (temporary,) = set(tmp_path.iterdir()) - before
        return child, temporary

    (killed, left), (living, used) = start(), start()
    own = tmp_path / ".tfsparsecap-notes.txt"  # not a name that `atomic_path` gives
    own.write_text("mine")
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    assert left.is_file() and left.suffix == ".npy"
    atomic_write(tmp_path / "other.txt", "x")
    assert set(tmp_path.iterdir()) == {used, own, tmp_path / "other.txt"}
    os.kill(living, signal.SIGKILL)
    os.waitpid(living, 0)
    atomic_write(path, "whole")
    assert set(tmp_path.iterdir()) == {path, own, tmp_path / "other.txt"}


def test_a_temporary_folder_is_renamed_or_deleted(tmp_path):
    with temporary_folder(tmp_path / "drawings") as folder:
        (folder / "one").mkdir()
        remove_leftovers(tmp_path)  # it is in use
        folder.rename(tmp_path / "drawings")
    assert [path.name for path in tmp_path.rglob("*")] == ["drawings", "one"]
    with pytest.raises(RuntimeError), temporary_folder(tmp_path / "other") as folder:
        (folder / "one").mkdir()
        raise RuntimeError
    (tmp_path / ".tfsparsecap-killed-abcdefgh" / "one").mkdir(parents=True)
    with temporary_folder(tmp_path / "other"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["drawings"]


def test_a_temporary_folder_that_another_process_deletes_at_once_is_made_again(tmp_path, monkeypatch):
    make, made = tempfile.mkdtemp, []

    def make_and_lose(**options):
        made.append(make(**options))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr("tfsparsecap.core.files.tempfile.mkdtemp", make_and_lose)
    with temporary_folder(tmp_path / "drawings") as folder:
        assert folder.is_dir() and str(folder) == made[1]


def test_leftovers_that_cannot_be_deleted_stay(tmp_path, monkeypatch):
    left = tmp_path / ".tfsparsecap-a-abcdefgh.txt"
    left.write_text("half")

    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("tfsparsecap.core.files.fcntl.flock", no_locks)
    atomic_write(tmp_path / "b.txt", "whole")  # works without locks
    assert left.is_file() and (tmp_path / "b.txt").read_text() == "whole"
    remove_leftovers(tmp_path / "absent")
    monkeypatch.undo()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


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


def test_a_full_disk_and_other_errors_of_the_system_are_reported():
    for number, sentence in (
        (errno.ENOSPC, "the disk is full while writing scores: free some space"),
        (errno.EDQUOT, "the disk is full while writing scores"),
        (errno.EIO, "cannot write scores: .*; choose a folder you can write to"),
    ):
        with pytest.raises(InputError, match=sentence), write_errors("scores"):
            raise OSError(number, os.strerror(number))
    with pytest.raises(OSError, match="from a library"), write_errors("scores"):
        raise OSError("from a library")


def test_folders_are_created_or_the_reason_is_reported(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot create the folder .*file.study: .*choose another one"):
        make_folder(tmp_path / "file" / "study")


def test_text_is_read_as_utf_8_with_any_line_ends(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffcafé\r\ntwo\n".encode())
    assert read_text(path) == "café\ntwo\n"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"lines\.txt is not UTF-8 text at byte 3: save it as UTF-8"):
        read_text(path)
    with pytest.raises(InputError, match=r"cannot read .*absent: No such file or directory; check the path"):
        read_text(tmp_path / "absent")


@pytest.mark.parametrize("content", [b"", b'{"a": ', b'"\xff"', b"[" * 100_000, b"1" + b"0" * 5000])
def test_files_that_are_not_json_are_reported(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json is not JSON \(.*\): give another file"):
        read_json(path, "give another file")


def test_json_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('\ufeff{"a": 1}', encoding="utf-8")
    assert read_json(path, "") == {"a": 1}
    assert read_json(path, "", object_pairs_hook=list) == [("a", 1)]
    with pytest.raises(InputError, match=r"cannot read .*; give another file"):
        read_json(tmp_path, "give another file")


def test_names_that_are_not_utf_8_are_written_with_escapes(tmp_path):
    content = {"image": os.fsdecode(b"caf\xe9.png")}
    atomic_write(tmp_path / "a.json", json.dumps(content, ensure_ascii=False))
    assert read_json(tmp_path / "a.json", "") == content
    atomic_write(tmp_path / "a.csv", csv_text([content]))
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == "image\ncaf\\udce9.png\n"


def test_csv_has_a_column_for_each_key():
    assert csv_text([{"a": 1}, {"b": "x,y", "a": 2}]) == 'a,b\n1,\n2,"x,y"\n'


def test_caches_are_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tfsparsecap"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tfsparsecap"


def test_devices_pipes_and_very_large_files_are_not_read(tmp_path):
    """Reading them would never end, or fill the memory."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zero.json"):
        for read in (read_text, lambda path: read_json(path, "give another")):
            with pytest.raises(
                InputError, match=rf"cannot read .*{name}: it is a device or a pipe; give a file"
            ):
                read(tmp_path / name)
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(LARGEST_INPUT + 1)  # takes no space on the disk
    with pytest.raises(InputError, match=r"sparse\.json: it is larger than 4,096 MB"):
        read_text(tmp_path / "sparse.json")
    check_input_file(tmp_path)
    check_input_file(tmp_path / "absent.json")


def test_paths_that_no_file_can_have_are_reported(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for name, reason in (
        ("a\0b", "is not a path"),
        ("a" * 300, "File name too long"),
        ("loop/a", "Too many levels"),
    ):
        with pytest.raises(InputError, match=reason) as error:
            read_bytes(tmp_path / name, "check the path")
        assert "\0" not in str(error.value) and len(str(error.value)) < 500


def test_deep_json_and_long_numbers_are_reported(tmp_path):
    for content in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, "1" * 5000):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(InputError, match="is not JSON"):
            read_json(tmp_path / "a.json", "give another")
