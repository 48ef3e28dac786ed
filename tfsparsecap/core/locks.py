"""Locks between processes. They end with the process that holds them, even if it is killed."""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tfsparsecap.core.files import NO_LOCKS, is_at, make_folder
from tfsparsecap.errors import InputError

#: Without a lock the block runs: in a folder that is not writable its first write reports that.
_UNLOCKED = (*NO_LOCKS, errno.EACCES, errno.EPERM, errno.EROFS)
_POLL_SECONDS = 0.5


@contextlib.contextmanager
def locked(path: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Runs the block while no other process does so with the same lock file, which is deleted at the end.

    Args:
        path: the lock file, whose content does not matter; its folder is created.
        busy: called if somebody else holds the lock. It raises an error, or returns to wait.

    Raises:
        InputError: the folder cannot be created, or the file cannot be opened.

    Examples:
        >>> with locked(Path("one.lock"), lambda: print("waiting")):
        ...     Path("one.lock").is_file()
        True
    """
    descriptors: list[int] = []
    lock = FileLock(path, fallback_to_soft=False, on_acquired=descriptors.append)
    while not lock.is_locked:
        make_folder(path.parent)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            busy()
            time.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            continue  # the last holder has just removed the folder
        except OSError as error:
            if error.errno in _UNLOCKED:
                break
            raise InputError(
                f"cannot lock {path}: {error.strerror}; remove it, if no other process uses it"
            ) from error
    try:
        yield
    finally:
        if lock.is_locked:
            # Before the release: whoever opens the file in between notices that it has no name any more.
            with contextlib.suppress(OSError):
                if is_at(descriptors[-1], path):
                    path.unlink()
            lock.release()
