"""Writing files so that a crash or a full disk leaves what was there before; what broken ones raise."""

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

#: What NumPy, zipfile and json raise for broken `.npy` and `.npz` files.
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
    """Gives a temporary path beside `path` to write to; renames it to `path` when the block ends well.

    The temporary file keeps the suffix of `path`, because some writers (`keras.Model.save`) look at it.

    Raises:
        InputError: the folder does not exist or is not writable, `path` is no file but a folder or a device,
            or the disk is full; `path` is as it was.

    Example:
        >>> with atomic_path("notes.txt") as temporary:
        ...     _ = temporary.write_text("whole or not at all")
    """
    path = Path(path)
    check_no_other(path)
    temporary = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(descriptor)
        temporary = Path(name)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files that only their owner can read
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


def check_no_other(path: Path) -> None:
    """Raises InputError where something is at `path` that no file should take the place of."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise InputError(f"cannot write {path}: it is {what}; choose another name")


def atomic_write(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes text (UTF-8) or bytes to `path` whole or not at all. Raises as `atomic_path` does."""
    with atomic_path(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            temporary.write_bytes(content)
