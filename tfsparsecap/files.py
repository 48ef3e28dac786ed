"""Atomic writing of files, and the exceptions that damaged array files raise."""

import contextlib
import errno
import lzma
import os
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from tfsparsecap.errors import InputError

#: Exceptions that NumPy and zipfile raise for damaged `.npy` and `.npz` files.
BROKEN_ARRAYS = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    SyntaxError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary path next to `path` to write to, and renames it to `path` if the block succeeds.

    The temporary file keeps the suffix of `path`, because some writers (`keras.Model.save`) depend on it.

    Raises:
        InputError: the folder does not exist or is not writable, `path` is a folder or a device, or the disk
            is full. A file that exists at `path` is unchanged then.

    Examples:
        >>> with atomic_path("notes.txt") as temporary:
        ...     _ = temporary.write_text("all or nothing")
    """
    path = Path(path)
    check_regular_file(path)
    temporary = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(descriptor)
        temporary = Path(name)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp creates files that only their owner can read
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"the disk is full while writing {path}: free some space there; nothing that existed was "
                "changed"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EPERM):
            raise InputError(
                f"cannot write {path}: {error.strerror}; choose a folder you can write to"
            ) from error
        raise
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_regular_file(path: Path) -> None:
    """Raises InputError if `path` exists but is not a regular file, so that it must not be replaced."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"cannot write {path}: it is {what}; choose another name")


def atomic_write(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes text (UTF-8) or bytes to `path` atomically. Errors are those of `atomic_path`."""
    with atomic_path(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            temporary.write_bytes(content)
