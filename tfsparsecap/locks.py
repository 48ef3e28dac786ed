"""Locks on files. They end with the process that holds them, even if it is killed."""

import errno
import fcntl
import os
from pathlib import Path

#: The file system has no locks (some network file systems).
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


def lock_file(path: str | os.PathLike, *, create: bool = True) -> int | None:
    """Opens and locks a file, whose content does not matter, or an existing folder.

    The holder may delete the file before it releases the lock: others verify that what they have locked is
    still the file at `path`.

    Args:
        create: create the file if it does not exist.

    Returns:
        A file descriptor: closing it releases the lock. None if somebody else holds the lock.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks (see `NO_LOCKS`).

    Examples:
        >>> descriptor = lock_file("one.lock")
        >>> lock_file("one.lock") is None
        True
        >>> os.close(descriptor)
    """
    while True:
        # Not through a symbolic link, which could create a file somewhere else; a pipe must not block.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_RDONLY if Path(path).is_dir() else os.O_RDWR
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), 0o666)
        try:
            if not try_lock(descriptor):
                os.close(descriptor)
                return None
            if is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was deleted between opening and locking


def try_lock(descriptor: int) -> bool:
    """Locks an open file; False if somebody else holds the lock. Raises OSError if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # some file systems report EACCES
        return False
    return True


def is_at(descriptor: int, path: str | os.PathLike) -> bool:
    """Whether an open file is the one at `path`, and not a file that was deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).lstat())
    except FileNotFoundError:
        return False
