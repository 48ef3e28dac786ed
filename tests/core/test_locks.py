"""Locks between processes: one holder, released when its process ends, deleted by the holder."""

import errno
import fcntl
import os
import signal

import pytest

from tfsparsecap.core.locks import locked
from tfsparsecap.errors import InputError


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
    monkeypatch.setattr("tfsparsecap.core.locks._POLL_SECONDS", 0)

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
