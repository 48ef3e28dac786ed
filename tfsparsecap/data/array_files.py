"""Reading the shape and the first rows of arrays in untrusted `.npy` and `.npz` files."""

import contextlib
import functools
import io
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from tfsparsecap.errors import InputError
from tfsparsecap.files import BROKEN_ARRAYS

#: Suffixes of the supported files.
ENDINGS = (".npy", ".npz")

# In bytes; most headers have 128. NumPy also rejects longer ones, because parsing them may take very long.
_LONGEST_HEADER = 10_000


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype


@dataclass(slots=True)
class ArrayFile:
    """An array in an open file; made by `open_array`.

    Attributes:
        shape, dtype: of the whole array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    _fortran_order: bool
    _read: Callable[[int], bytes]

    def first(self, rows: int) -> np.ndarray:
        """The first `rows` rows, read-only; can be called once.

        Further rows are not read unless the array has Fortran order.
        """
        stored = self.shape if self._fortran_order else (rows, *self.shape[1:])
        data = _exactly(self._read, math.prod(stored) * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype).reshape(stored, order="F" if self._fortran_order else "C")[
            :rows
        ]


@contextlib.contextmanager
def open_array(path: str | os.PathLike) -> Iterator[ArrayFile]:
    """Opens the array in a `.npy` file, or the only one in an `.npz` file, and reads its header only.

    Nothing is unpickled.

    Args:
        path: the file, whose suffix determines the format.

    Raises:
        InputError: the file cannot be read, is damaged or truncated, contains Python objects or several
            arrays. Damaged values raise it when they are read in the block.

    Examples:
        >>> np.save("six.npy", np.arange(6.0).reshape(3, 2))
        >>> with open_array("six.npy") as array:
        ...     print(array.shape, array.first(1).tolist())
        (3, 2) [[0.0, 1.0]]
    """
    path = os.fspath(path)
    try:
        with _opened(path) as (read, size):
            head = _header_bytes(read)
            shape, fortran_order, dtype = _parsed(head)
            if dtype.hasobject:
                raise InputError(f"{path} contains Python objects, which are not read: save it as numbers")
            needed = len(head) + math.prod(shape) * dtype.itemsize
            if size < needed:
                raise InputError(
                    f"{path} is truncated, {size} of {needed} bytes: download or create it again"
                )
            yield ArrayFile(shape, dtype, fortran_order, read)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no {path}: check the path") from error
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: give it read permission") from error
    except BROKEN_ARRAYS as error:
        about = str(error) or type(error).__name__
        raise InputError(f"{path} is damaged ({about:.200}): download or create it again") from error


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[Callable[[int], bytes], int]]:
    """A function that reads the next bytes of an array file, and its size."""
    if path.endswith(".npz"):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise InputError(f"{path} contains {len(members)} arrays: save only the one that is needed")
            with archive.open(members[0]) as stream:
                yield stream.read, members[0].file_size
    else:
        with open(path, "rb", buffering=0) as stream:
            yield stream.read, os.fstat(stream.fileno()).st_size


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    parts = []
    while count > 0:
        part = read(count)
        if not part:
            raise EOFError("it ends too early")
        parts.append(part)
        count -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _header_bytes(read: Callable[[int], bytes]) -> bytes:
    head = _exactly(read, 10)
    if not head.startswith(npy.MAGIC_PREFIX):
        raise ValueError("it does not begin like a .npy file")
    if head[6] > 1:
        head += _exactly(read, 2)
    length = int.from_bytes(head[8:], "little")
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header has {length} bytes")
    return head + _exactly(read, length)


# Arrays of one shape have equal headers, and parsing takes longer than reading.
@functools.lru_cache(maxsize=1024)
def _parsed(head: bytes) -> _Header:
    stream = io.BytesIO(head)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"its format is version {version}")
    # Version 3 differs from version 2 only in the encoding of column names.
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    header = _Header(*read(stream))
    if min(header.shape, default=0) < 0:
        raise ValueError(f"its shape is {header.shape}")
    return header
