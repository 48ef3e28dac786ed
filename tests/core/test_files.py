"""Files are written atomically, and everything that can go wrong is reported in one sentence."""

import errno
import fcntl
import json
import os
import signal

import pytest

from tfsparsecap.core.files import (
    LARGEST_INPUT,
    atomic_path,
    atomic_write,
    cache_folder,
    csv_text,
    locked,
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

    (killed, leftover), (living, used) = start(), start()
    own = tmp_path / ".tfsparsecap-notes.txt"  # not a name that `atomic_path` gives
    own.write_text("mine")
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    assert leftover.is_file() and leftover.suffix == ".npy"
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


def test_text_is_read_as_utf_8_with_any_line_ends(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffcafé\r\ntwo\n".encode())
    assert read_text(path) == "café\ntwo\n"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match=r"lines\.txt is not UTF-8 text at byte 3: save it as UTF-8"):
        read_text(path)
    with pytest.raises(InputError, match=r"cannot read .*absent: No such file or directory; check the path"):
        read_text(tmp_path / "absent")


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


def test_caches_are_in_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tfsparsecap"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tfsparsecap"


def in_no_folder(path):
    atomic_write(path / "notes.txt", "x")


def below_a_file(path):
    path.write_text("")
    make_folder(path / "study")


def a_json(content):
    def read(path):
        path.write_bytes(content)
        read_json(path, "give another file")

    return read


def over_a_pipe(path):
    os.mkfifo(path)
    atomic_write(path, "x")


def over_a_folder(path):
    path.mkdir()
    atomic_write(path, "x")


def of_a_pipe(path):
    os.mkfifo(path)
    read_text(path)


def of_a_device(path):
    path.symlink_to("/dev/zero")
    read_json(path, "give another")


def of_a_very_large_file(path):
    with path.open("wb") as file:
        file.truncate(LARGEST_INPUT + 1)  # takes no space on the disk
    read_text(path)


def in_a_loop(path):
    path.symlink_to(path.name)
    read_bytes(path / "a", "check the path")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (in_no_folder, "cannot write .*choose a folder you can write to"),
        (below_a_file, r"cannot create the folder .*a\.json.study: .*choose another one"),
        (over_a_folder, r"cannot write .*a\.json: it is a folder; choose another name"),
        (over_a_pipe, r"cannot write .*a\.json: it is not a regular file; choose another name"),
        # Reading these would never end, or fill the memory.
        (of_a_pipe, r"cannot read .*a\.json: it is a device or a pipe; give a file"),
        (of_a_device, r"cannot read .*a\.json: it is a device or a pipe; give a file"),
        (of_a_very_large_file, r"a\.json: it is larger than 4,096 MB"),
        (in_a_loop, "Too many levels"),
        (lambda path: read_bytes(path.with_name("a\0b"), "check the path"), "is not a path"),
        (lambda path: read_bytes(path.with_name("a" * 300), "check the path"), "File name too long"),
        *(
            (a_json(content), r"a\.json is not JSON \(.*\): give another file")
            for content in (b"", b'{"a": ', b'"\xff"', b"[" * 100_000, b"1" + b"0" * 5000)
        ),
    ],
)
def test_paths_and_contents_that_cannot_be_used_are_refused(tmp_path, use, message):
    with pytest.raises(InputError, match=message) as error:
        use(tmp_path / "a.json")
    assert "\0" not in str(error.value) and len(str(error.value)) < 500


class Busy(Exception):
    pass


def refuse():
    raise Busy


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_lock_ends_with_its_process_even_if_that_is_killed(tmp_path):
    path, (reading, writing) = tmp_path / "new" / "one.lock", os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with locked(path, refuse):
                os.write(writing, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1)
    with pytest.raises(Busy), locked(path, refuse):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(path, refuse):
        assert path.is_file()
    assert not path.exists()


def test_a_lock_is_awaited_until_its_holder_has_deleted_it(tmp_path, monkeypatch):
    path = tmp_path / "one.lock"
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    monkeypatch.setattr("tfsparsecap.core.files._POLL_SECONDS", 0)

    def busy():
        path.unlink()
        os.close(holder)

    with locked(path, busy):
        assert path.is_file()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EROFS])
def test_without_locks_the_block_runs(tmp_path, monkeypatch, number):
    def no_locks(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with locked(tmp_path / "one.lock", refuse):
        pass


def test_files_are_not_created_through_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with (
        pytest.raises(InputError, match=r"cannot lock .*link: .*symbolic links; remove it"),
        locked(tmp_path / "link", refuse),
    ):
        pass
    assert not (tmp_path / "target").exists()
