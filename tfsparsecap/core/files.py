"""Reading and writing files: atomic writes, locks, and one sentence for everything that can go wrong."""

import contextlib
import csv
import errno
import fcntl
import io
import json
import lzma
import os
import re
import shutil
import stat
import struct
import tempfile
import time
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.errors import InputError

#: What NumPy, zipfile and Pillow raise for damaged or malicious files.
DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, SyntaxError, LookupError, OverflowError, MemoryError),
    *(RuntimeError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: The file system has no locks (some network file systems).
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
#: Bytes of a file that is read as a whole; the captions of MS-COCO have 0.15 GB.
LARGEST_INPUT = 4 << 30
# Temporary files have names that nobody else gives, so that those of killed processes can be deleted.
_TEMPORARY = ".tfsparsecap-"
_TEMPORARY_NAME = re.compile(re.escape(_TEMPORARY) + r".*-[a-z0-9_]{8}(\.[^.]*)?")
_LONGEST_STEM = 40


def check_input_file(path: str | os.PathLike, largest: int = LARGEST_INPUT) -> None:
    """Checks a file that is about to be read as a whole. What does not exist, or is a folder, passes.

    Args:
        path: the file.
        largest: maximum size in bytes.

    Raises:
        InputError: it is a device or a pipe, which may never end, or is too large.
        OSError: the path cannot be used.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    except ValueError as error:  # a path with NUL
        raise InputError(f"{os.fspath(path)!r:.200} is not a path: correct it") from error
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise InputError(f"cannot read {path}: it is a device or a pipe; give a file")
    if stat.S_ISREG(status.st_mode) and status.st_size > largest:
        raise InputError(f"cannot read {path}: it is larger than {largest >> 20:,} MB; give another file")


def read_bytes(path: str | os.PathLike, remedy: str, largest: int = LARGEST_INPUT) -> bytes:
    """The content of a file.

    Args:
        path: the file.
        remedy: end of the message.
        largest: maximum size in bytes.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        check_input_file(path, largest)
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path!s:.300}: {error.strerror or error}; {remedy}") from error


def read_text(path: str | os.PathLike) -> str:
    """The content of a text file in UTF-8, without a byte order mark; line ends become "\\n".

    Raises:
        InputError: the file cannot be read or is not UTF-8.
    """
    content = read_bytes(path, "check the path")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text at byte {error.start}: save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: str | os.PathLike, remedy: str, **options: Any) -> Any:
    """The content of a JSON file in UTF-8.

    Args:
        path: the file.
        remedy: end of the messages, such as "give a file in COCO's format".
        options: of `json.loads`.

    Raises:
        InputError: the file cannot be read or is not JSON.
    """
    content = read_bytes(path, remedy)
    try:
        return json.loads(content, **options)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): {remedy}") from error


def cache_folder() -> Path:
    """The folder of this package's caches: in `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfsparsecap"


def make_folder(path: Path) -> None:
    """Creates a folder and its parents if they do not exist. Raises InputError if that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {path}: {error.strerror}; choose another one") from error


@contextlib.contextmanager
def write_errors(path: str | os.PathLike) -> Iterator[None]:
    """Raises InputError for errors of the operating system while `path` is written in the block."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise InputError(
                f"the disk is full while writing {path}: free some space there; nothing that existed was"
                " changed"
            ) from error
        if error.errno is None:
            raise
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose a folder you can write to"
        ) from error


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
    temporary = descriptor = None
    try:
        with write_errors(path):
            remove_leftovers(path.parent)
            temporary, descriptor = _temporary_file(path)
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(descriptor, 0o666 & ~umask)  # mkstemp creates files that only their owner can read
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


def _temporary_file(path: Path) -> tuple[Path, int]:
    """A new file next to `path`, and a descriptor that locks it while its process lives."""
    while True:
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=f"{_TEMPORARY}{path.stem[:_LONGEST_STEM]}-", suffix=path.suffix
        )
        if _is_ours(descriptor, name):
            return Path(name), descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


@contextlib.contextmanager
def temporary_folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a new folder next to `path`, which may be renamed to it; otherwise it is deleted at the end.

    Examples:
        >>> with temporary_folder("drawings") as folder:
        ...     _ = (folder / "one.txt").write_text("1")
        ...     _ = folder.rename("drawings")
    """
    path = Path(path)
    remove_leftovers(path.parent)
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{_TEMPORARY}{path.stem[:_LONGEST_STEM]}-"))
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process took it for a leftover before it was opened
        if _is_ours(descriptor, folder):
            break
        os.close(descriptor)  # another process took it for a leftover before it was locked
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Deletes the temporary files and folders in a folder that killed processes have left there.

    Those of living processes are locked, and stay.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        leftovers = [Path(entry.path) for entry in entries if _TEMPORARY_NAME.fullmatch(entry.name)]
        for leftover in leftovers:
            with contextlib.suppress(OSError):  # no locks, or not ours: then it stays
                # Not through a symbolic link; a pipe must not block.
                flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(leftover, flags | (os.O_RDONLY if leftover.is_dir() else os.O_RDWR))
                try:
                    if _lock(descriptor) and is_at(descriptor, leftover):
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
                finally:
                    os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Locks an open file; False if another process holds the lock. Raises OSError if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # some file systems report EACCES
        return False
    return True


def _is_ours(descriptor: int, path: str | os.PathLike) -> bool:
    """Locks a new file; False if another process has taken it for a leftover. Without locks, none does."""
    try:
        return _lock(descriptor) and is_at(descriptor, path)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return True
        raise


def is_at(descriptor: int, path: str | os.PathLike) -> bool:
    """Whether an open file is the one at `path`, and not a file that was deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).lstat())
    except FileNotFoundError:
        return False


def check_regular_file(path: Path) -> None:
    """Raises InputError if `path` exists but is not a regular file, so that it must not be replaced."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"cannot write {path}: it is {what}; choose another name")


def atomic_write(path: str | os.PathLike, content: str | bytes) -> None:
    """Writes text or bytes to `path` atomically. Errors are those of `atomic_path`.

    Text is written in UTF-8; what file names that are not UTF-8 contain is written as `\\udc80` to `\\udcff`,
    from which JSON restores it.
    """
    with atomic_path(path) as temporary:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8", errors="backslashreplace")
        else:
            temporary.write_bytes(content)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a column for each key."""
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def check_suffix(path: Path, suffix: str) -> None:
    """Raises InputError if the name of a file to be written does not end in the suffix of its format."""
    if path.suffix.lower() != suffix:
        raise InputError(f"cannot write {path} as a {suffix} file: give a name that ends in {suffix}")


def check_output(path: Path) -> None:
    """Raises InputError if no file can be written at `path`; what exists there is unchanged."""
    with write_errors(path):
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
        check_regular_file(path)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


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
    from filelock import FileLock, Timeout  # not installed for exports alone

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
