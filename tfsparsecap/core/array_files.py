"""Reading the shape and the first rows of arrays in untrusted `.npy` and `.npz` files."""

import contextlib
import io
import math
import os
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.lib import format as npy

from tfsparsecap.core.files import DAMAGE, check_input_file
from tfsparsecap.errors import InputError

#: Suffixes of the supported files.
ENDINGS = (".npy", ".npz")
# By version; version 3 differs from version 2 only in the encoding of column names.
_HEADER_READERS = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,
}


#: Examples that are taken from arrays and files: enough for the calibration and the check of an export.
MOST_READ = 256


def spread(count: int, most: int = MOST_READ) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread, because data may be sorted.

    Examples:
        >>> spread(10, 4), spread(2)
        ([0, 3, 6, 9], [0, 1])
    """
    return np.linspace(0, count - 1, min(count, most)).astype(int).tolist()


@dataclass(slots=True)
class ArrayFile:
    """An array in an open file; made by `open_array`.

    Attributes:
        shape, dtype: of the whole array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    _fortran_order: bool
    _stream: IO[bytes]

    def first(self, rows: int) -> np.ndarray:
        """The first `rows` rows, read-only; can be called once.

        Further rows are not read unless the array has Fortran order.
        """
        stored = self.shape if self._fortran_order else (rows, *self.shape[1:])
        data = self._stream.read(math.prod(stored) * self.dtype.itemsize)
        return np.frombuffer(data, self.dtype).reshape(stored, order="F" if self._fortran_order else "C")[
            :rows
        ]

    def spread(self) -> np.ndarray:
        """At most `MOST_READ` rows, evenly spread; can be called once."""
        rows = spread(self.shape[0])
        if self._fortran_order or len(rows) == self.shape[0]:
            return self.first(self.shape[0])[rows]
        start, size = self._stream.tell(), math.prod(self.shape[1:]) * self.dtype.itemsize
        parts = []
        for row in rows:
            self._stream.seek(start + row * size)
            parts.append(self._stream.read(size))
        return np.frombuffer(b"".join(parts), self.dtype).reshape(len(rows), *self.shape[1:])


@contextlib.contextmanager
def open_array(path: str | os.PathLike, content: bytes | None = None) -> Iterator[ArrayFile]:
    """Opens the array in a `.npy` file, or the only one in an `.npz` file, and reads its header only.

    Nothing is unpickled.

    Args:
        path: the file, whose suffix determines the format.
        content: of a file that is part of another one; `path` only names it then.

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
        with _opened(path, content) as (stream, size):
            shape, fortran_order, dtype = array_header(stream)
            if dtype.hasobject:
                raise InputError(f"{path} contains Python objects, which are not read: save it as numbers")
            needed = stream.tell() + math.prod(shape) * dtype.itemsize
            if size < needed:
                raise InputError(
                    f"{path} is truncated, {size} of {needed} bytes: download or create it again"
                )
            yield ArrayFile(shape, dtype, fortran_order, stream)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no {path}: check the path") from error
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: give it read permission") from error
    except DAMAGE as error:
        about = str(error) or type(error).__name__
        raise InputError(f"{path} is damaged ({about:.200}): download or create it again") from error


@contextlib.contextmanager
def _opened(path: str, content: bytes | None) -> Iterator[tuple[IO[bytes], int]]:
    """The bytes of an array file, and their number."""
    if content is None:
        check_input_file(path, sys.maxsize)
    if path.endswith(".npz"):
        with zipfile.ZipFile(path if content is None else io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise InputError(f"{path} contains {len(members)} arrays: save only the one that is needed")
            with archive.open(members[0]) as stream:
                yield stream, members[0].file_size
    elif content is not None:
        yield io.BytesIO(content), len(content)
    else:
        with open(path, "rb", buffering=0) as stream:
            yield stream, os.fstat(stream.fileno()).st_size


def array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and type of an array in an open `.npy` file; leaves the stream at its values.

    Raises one of `files.DAMAGE` for a damaged header.

    Examples:
        >>> import io
        >>> stream = io.BytesIO()
        >>> np.save(stream, np.zeros((2, 3), "float32"))
        >>> _ = stream.seek(0)
        >>> array_header(stream)
        ((2, 3), False, dtype('float32'))
    """
    shape, fortran_order, dtype = _HEADER_READERS[npy.read_magic(stream)](stream)
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape is {shape}")
    return shape, fortran_order, dtype
