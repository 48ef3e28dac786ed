"""Locks on files: one holder, released when its process ends, safe to delete by the holder."""

import os
import signal

import pytest

from tfsparsecap.locks import is_at, lock_file, try_lock


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path):
    path = tmp_path / "one.lock"
    first = lock_file(path)
    assert lock_file(path) is None
    os.close(first)
    again = lock_file(path)
    assert again is not None and path.exists()
    os.close(again)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_lock_ends_with_its_process_even_if_that_is_killed(tmp_path):
    path, (reading, writing) = tmp_path / "one.lock", os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock_file(path)
            os.write(writing, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1)
    assert lock_file(path) is None
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(lock_file(path))


def test_a_file_that_its_holder_deletes_locks_nothing(tmp_path):
    path = tmp_path / "one.lock"
    first = lock_file(path)
    second = os.open(path, os.O_RDWR)  # waits for the first
    path.unlink()
    os.close(first)
    assert try_lock(second) and not is_at(second, path)
    third = lock_file(path)  # another file
    assert third is not None and is_at(third, path)
    os.close(second)
    os.close(third)


def test_files_are_not_created_through_links_or_if_they_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        lock_file(tmp_path / "absent", create=False)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        lock_file(tmp_path / "link")
    assert not (tmp_path / "target").exists()
