"""Reads PyTorch checkpoints without PyTorch and without executing anything in the file.

Since PyTorch 1.6 a checkpoint is a zip archive: `data.pkl` is a pickle that describes the tensors, `data/KEY`
contain their bytes. A pickle is a program for a stack machine, and Python's machine calls any function that
it names. The machine below implements only the instructions that weights need, on inert values.
"""

import math
import mmap
import os
import pickletools
import re
import struct
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfsparsecap.errors import InputError

# NumPy types of the storages of weights; a bfloat16 is the upper half of a float32.
_TYPES = {"Float": "f4", "Double": "f8", "Half": "f2", "BFloat16": "u2", "Long": "i8", "Int": "i4"}
_TYPES |= {"Short": "i2", "Char": "i1", "Byte": "u1", "Bool": "u1"}
_STORAGES = {f"torch.{kind}Storage": dtype for kind, dtype in _TYPES.items()}
# Other names that a pickle of weights may contain. Names are compared, never looked up.
_NAMES = {"collections.OrderedDict", "torch.Size", "torch.serialization._get_layout", "torch.sparse_coo"}
_NAMES |= {f"torch._utils._rebuild_{kind}" for kind in ("tensor_v2", "parameter", "sparse_tensor")}
#: Keys under which training scripts store the state dict beside other things.
_USUAL_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "net", "weights")

# Pickle instructions that push their argument, instructions that push a constant, and the number of values
# that others take from the stack (None: all since the last mark).
_PUSH_ARGUMENT = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES"}
_PUSH_ARGUMENT |= {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_PUSH_CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_POP_COUNTS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": None, "APPEND": 1, "APPENDS": None}
_POP_COUNTS |= {"SETITEM": 2, "SETITEMS": None, "STACK_GLOBAL": 2, "BINPERSID": 1, "REDUCE": 2, "BUILD": 1}

# Far above any checkpoint of a captioner; they keep a malicious file from exhausting memory or time.
_MAX_ELEMENTS, _MAX_AXES, _MAX_DEPTH, _MAX_ENTRIES, _MAX_INSTRUCTIONS = 10**9, 32, 8, 100_000, 2_000_000
_MAX_PICKLE_BYTES, _MAX_UNPACKED_BYTES = 16 << 20, 64 << 20

#: The pickled magic number at the start of the format before PyTorch 1.6.
_LEGACY = b"\x8a\x0a" + 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
#: What zipfile, zlib and pickletools raise on damaged or malicious files.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, OverflowError, RuntimeError, EOFError)
_ALONE = "save model.state_dict() alone with torch.save"


def read_checkpoint(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the weights in a file that `torch.save` wrote (PyTorch 1.6 or later).

    Nothing that the file names is imported or called. The state dict may be the saved object or part of a
    dict, under a key such as "model" or "state_dict"; everything else in the file is ignored.

    Args:
        path: the checkpoint, .pth or .pt.

    Returns:
        The state dict in its order, as separate arrays in C order. Sparse tensors become dense, with
        duplicate entries added; bfloat16 becomes float32, and all other types are kept.

    Raises:
        InputError: the file is missing, damaged or in another format, contains no state dict or several,
            names anything but weights, or would need an absurd amount of memory.

    Example:
        >>> weights = read_checkpoint("model_best_pruned_sparse.pth")
        >>> weights["embed.0.weight"].shape, weights["embed.0.weight"].dtype
        ((3000, 96), dtype('float32'))
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise _RejectedFile("is no ordinary file: give a PyTorch checkpoint")
        with path.open("rb") as file:
            _check_format(file)
            entries = _Entries(zipfile.ZipFile(file), path.stat().st_size)
            saved = _Machine().run(entries.read("data.pkl", _MAX_PICKLE_BYTES))
            return _arrays(_named_tensors(saved), entries)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a checkpoint") from error
    except MemoryError as error:
        raise InputError(f"{path} needs more memory than is available") from error
    except _RejectedFile as error:
        raise InputError(f"{path} {error}") from None
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged ({_short(str(error))}): copy or download it again") from error


class _RejectedFile(Exception):
    """The rest of a message that begins with the file name. (A ValueError means damage.)"""


def _short(text: str) -> str:
    """Makes text from the file safe for messages: short, and without terminal control characters."""
    return text[:200].encode("unicode_escape").decode("ascii") + ("..." if len(text) > 200 else "")


def _check_format(file: BinaryIO) -> None:
    """Refuses files that are no zip archive, and archives with too many entries."""
    head = file.read(64)
    if _LEGACY in head:
        raise _RejectedFile("is in the format from before PyTorch 1.6: torch.load it and torch.save it again")
    if not head.startswith(b"PK"):
        raise _RejectedFile("is no PyTorch checkpoint (no zip archive): give a file that torch.save wrote")
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if sum(1 for _ in re.finditer(rb"PK\x01\x02", content)) > _MAX_ENTRIES:
            raise _RejectedFile(f"contains more than {_MAX_ENTRIES:,} files, unlike any checkpoint: {_ALONE}")


class _Entries:
    """The files in the archive; together they may not be larger than a valid archive's."""

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self.archive, names = archive, set(archive.namelist())
        roots = [name.removesuffix("data.pkl") for name in names if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise _RejectedFile(
                "is no PyTorch checkpoint (no data.pkl, or several): give what torch.save wrote"
            )
        self.root = roots[0]
        if self.root + "constants.pkl" in names:
            raise _RejectedFile(f"is a TorchScript program: open it with torch.jit.load and {_ALONE}")
        # Files can overlap in the archive, and compressed ones can grow a thousandfold.
        self.left = {zipfile.ZIP_STORED: size, zipfile.ZIP_DEFLATED: _MAX_UNPACKED_BYTES}
        order = self.read("byteorder", 6) if self.root + "byteorder" in names else b"little"
        self.byteorder = {b"little": "<", b"big": ">"}.get(order)
        if self.byteorder is None:
            raise ValueError("its byte order is neither little nor big")

    def read(self, name: str, largest: int = 1 << 63) -> bytes:
        """Returns the bytes of one file, at most `largest`."""
        entry = self.archive.NameToInfo.get(self.root + name)
        if entry is None:
            raise ValueError(f"its part {name} is missing")
        if entry.flag_bits & 1 or entry.compress_type not in self.left:
            raise _RejectedFile(
                f"is encrypted, or compressed as torch.save never does ({_short(name)}): {_ALONE}"
            )
        self.left[entry.compress_type] -= entry.file_size
        if self.left[entry.compress_type] < 0 or entry.file_size > largest:
            raise _RejectedFile(
                f"is larger when unpacked than a checkpoint can be ({_short(name)}): {_ALONE}"
            )
        with self.archive.open(entry) as member:
            content = member.read(entry.file_size)
        if len(content) != entry.file_size:
            raise ValueError(f"{name} is shorter than it says")
        return content


class _Global(str):
    """A name in the pickle, which is never resolved."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """A range of elements in the archive."""

    kind: str
    key: str
    length: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A view of a storage; offset and stride count elements."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sparse:
    """A sparse COO tensor: indices int64 [axes, entries], values [entries, ...]."""

    indices: _Tensor
    values: _Tensor
    size: tuple[int, ...]


_KINDS = (_Tensor, _Sparse)


class _Machine:
    """Implements the pickle instructions that weights need, and no others."""

    def __init__(self):
        self.stack, self.below, self.memo = [], [], {}

    def run(self, program: bytes) -> Any:
        """Returns the object that the pickle describes."""
        for count, (instruction, argument, _) in enumerate(pickletools.genops(program)):
            if count == _MAX_INSTRUCTIONS:
                raise _RejectedFile(f"describes its tensors in more than {count:,} steps: {_ALONE}")
            self._step(instruction.name, argument)
        return self._top()

    def _step(self, name: str, argument: Any) -> None:
        items = self._take(_POP_COUNTS[name]) if name in _POP_COUNTS else []
        match name:
            case _ if name in _PUSH_ARGUMENT:
                self.stack.append(argument)
            case _ if name in _PUSH_CONSTANT:
                self.stack.append(_PUSH_CONSTANT[name])
            case "EMPTY_LIST" | "EMPTY_DICT":
                self.stack.append([] if name == "EMPTY_LIST" else {})
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self._top()
            case "BINGET" | "LONG_BINGET":
                if argument not in self.memo:
                    raise ValueError(f"the pickle has no value {argument}")
                self.stack.append(self.memo[argument])
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                self.stack.append(tuple(items))
            case "APPEND" | "APPENDS":
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                _set_items(self._top(dict), items)
            case "GLOBAL" | "STACK_GLOBAL":
                self.stack.append(_global(items or argument.split(" ", 1)))
            case "BINPERSID":
                self.stack.append(_storage(items[0]))
            case "REDUCE":
                self.stack.append(_call(*items))
            case "BUILD":
                # PyTorch stores module versions in an attribute of the state dict.
                if not isinstance(items[0], dict) or items[0].keys() != {"_metadata"}:
                    raise _foreign("give an object attributes")
                self._top(dict)
            case "INST":
                raise _foreign(f"call {argument.replace(' ', '.', 1)}")
            case _ if name not in ("PROTO", "FRAME", "STOP"):
                raise _foreign(f"use the pickle instruction {name}")

    def _top(self, kind: type = object) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise ValueError("a pickle instruction lacks its target")
        return self.stack[-1]

    def _take(self, count: int | None) -> list:
        """Pops the last `count` values of the stack, or all since the last mark."""
        if len(self.stack) < (count or 0) or (count is None and not self.below):
            raise ValueError("a pickle instruction lacks its arguments")
        if count is not None:
            return [self.stack.pop() for _ in range(count)][::-1]
        items, self.stack = self.stack, self.below.pop()
        return items


def _foreign(wish: str) -> _RejectedFile:
    wish += ", unlike any checkpoint of weights; nothing was executed"
    return _RejectedFile(f"tries to {wish}: if the file is yours, {_ALONE}")


def _set_items(target: dict, items: list) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Hashing other keys can take forever or overflow the C stack.
        if not isinstance(key, str) and not (isinstance(key, int) and abs(key) < 1 << 31):
            raise _foreign("use keys that are neither text nor small numbers")
        target[key] = value


def _global(path: list) -> _Global:
    name = ".".join(part if isinstance(part, str) else "?" for part in path)
    if name not in _NAMES and name not in _STORAGES:
        raise _foreign(f"call {_short(name)}")
    return _Global(name)


def _storage(reference: Any) -> _Storage:
    match reference:
        case ("storage", _Global() as kind, str() as key, str(), int() as length) if kind in _STORAGES:
            return _Storage(kind, key, length)
    raise ValueError("the pickle refers to something that is not a storage")


def _call(function: Any, arguments: Any) -> Any:
    """Returns the inert value that represents the result of a known call."""
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise ValueError("the pickle calls something that is not a function")
    match (function.removeprefix("torch._utils._rebuild_"), *arguments[:8]):
        case ("collections.OrderedDict",):
            return {}
        case ("torch.Size", tuple() as size):
            return size
        case ("torch.serialization._get_layout", str() as layout):
            return _Global(layout)
        case ("parameter", _Tensor() | _Sparse() as data, _, _):
            return data
        case ("tensor_v2", _Storage() as storage, offset, size, stride, _, _, *lazy) if not any(lazy):
            _check_counts((offset,), size, stride)
            return _Tensor(storage, offset, size, stride)
        case ("sparse_tensor", "torch.sparse_coo", (_Tensor() as indices, _Tensor() as values, size, *_)):
            _check_counts(size)
            return _Sparse(indices, values, size)
        case ("sparse_tensor", _Global() as layout, _) if layout != "torch.sparse_coo":
            raise _RejectedFile(
                f"contains the unsupported layout {_short(layout)}: save the tensor after to_dense()"
            )
    raise _RejectedFile(f"calls {_short(function)} in an unknown way: {_ALONE}")


def _check_counts(*groups: Any) -> None:
    for group in groups:
        fits = isinstance(group, tuple) and len(group) <= _MAX_AXES
        if not fits or not all(type(count) is int and 0 <= count < 1 << 63 for count in group):
            raise ValueError("a tensor has a size, stride or offset that is negative or absurd")


def _named_tensors(saved: Any) -> dict[str, _Tensor | _Sparse]:
    """Returns the tensors of the state dict in the saved object."""
    found = _state_dicts(saved, "", set()) if isinstance(saved, dict) else []
    if not found:
        raise _RejectedFile(f"contains no state dict, a dict of names and tensors: {_ALONE}")
    if len(found) > 1:
        places = " and ".join(place or "the top" for place, _ in found[:5])
        raise _RejectedFile(f"contains several dicts of tensors, at {places}: {_ALONE}")
    tensors = {name: value for name, value in found[0][1].items() if isinstance(value, _KINDS)}
    if not all(isinstance(name, str) for name in tensors):
        raise _RejectedFile(f"contains tensors under numbers instead of names: {_ALONE}")
    return tensors


def _state_dicts(saved: dict, place: str, seen: set[int], depth: int = 0) -> list[tuple[str, dict]]:
    """Returns the dicts that contain tensors with axes, each with the keys that lead to it."""
    found, usual = [], []
    seen.add(id(saved))
    for key, value in saved.items():
        if isinstance(key, str) and isinstance(value, dict) and id(value) not in seen and depth < _MAX_DEPTH:
            below = _state_dicts(value, f"{place}[{_short(key)}]", seen, depth + 1)
            (usual if key in _USUAL_KEYS else found).extend(below)
    # Scalars are no weights, unless there is nothing else.
    sizes = [value.size for value in saved.values() if isinstance(value, _KINDS)]
    if any(sizes) or (sizes and not place and not found and not usual):
        found.append((place, saved))
    return usual or found


def _arrays(tensors: dict[str, _Tensor | _Sparse], entries: _Entries) -> dict[str, np.ndarray]:
    """Returns the tensors' values. Each storage is read once and freed after its last tensor."""
    parts = {name: [t.indices, t.values] if isinstance(t, _Sparse) else [t] for name, t in tensors.items()}
    uses = Counter(part.storage.key for group in parts.values() for part in group)
    left, held, arrays = _MAX_ELEMENTS, {}, {}
    for name, tensor in tensors.items():
        for size in {tensor.size, *(part.size for part in parts[name])}:
            left -= math.prod(max(1, n) for n in size)
        if left < 0:
            raise _RejectedFile(
                f"has over {_MAX_ELEMENTS:,} numbers when dense (at {_short(name)}): {_ALONE}"
            )
        read = []
        for part in parts[name]:
            key = part.storage.key
            if key not in held:
                held[key] = entries.read(f"data/{key}")
            uses[key] -= 1
            read.append(_strided(name, part, held[key] if uses[key] else held.pop(key), entries.byteorder))
        arrays[name] = _dense(name, tensor.size, *read) if isinstance(tensor, _Sparse) else read[0]
    return arrays


def _strided(name: str, tensor: _Tensor, content: bytes, byteorder: str) -> np.ndarray:
    """Returns a copy of a tensor, which is a strided view of its storage."""
    kind, length = tensor.storage.kind, tensor.storage.length
    dtype = np.dtype(_STORAGES[kind]).newbyteorder(byteorder)
    if len(tensor.size) != len(tensor.stride):
        raise ValueError(f"tensor {name} has different numbers of sizes and strides")
    # The stride of an axis of length 1 is arbitrary.
    steps = [step if n > 1 else 0 for n, step in zip(tensor.size, tensor.stride, strict=True)]
    end = tensor.offset + 1 + sum((n - 1) * step for n, step in zip(tensor.size, steps, strict=True))
    if 0 in tensor.size:
        array = np.empty(tensor.size, dtype)
    elif end > length or end * dtype.itemsize > len(content):
        raise ValueError(f"tensor {name} reaches beyond its storage")
    else:
        steps = [step * dtype.itemsize for step in steps]
        array = np.ndarray(tensor.size, dtype, content, tensor.offset * dtype.itemsize, steps)
    array = array.astype(dtype.newbyteorder("="), order="C")
    if kind == "torch.BFloat16Storage":
        return np.left_shift(array, np.uint32(16), out=np.empty(array.shape, np.uint32)).view(np.float32)
    if kind == "torch.BoolStorage":
        return np.not_equal(array, 0, out=np.empty(array.shape, np.bool_))
    return array


def _dense(name: str, size: tuple[int, ...], indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns a sparse tensor as a dense one, duplicates added; `indices` [axes, entries]."""
    axes = len(indices) if indices.ndim == 2 and indices.dtype == np.int64 else len(size) + 1
    if axes > len(size) or values.shape != (indices.shape[1], *size[axes:]):
        raise ValueError(f"the indices, values and size of tensor {name} do not fit each other")
    places = np.zeros(len(values), np.int64)
    for axis, n in zip(indices, size, strict=False):
        if axis.size and not 0 <= axis.min() <= axis.max() < n:
            raise ValueError(f"an index of tensor {name} lies outside its size")
        places = places * n + axis
    dense = np.zeros((math.prod(size[:axes]), *size[axes:]), values.dtype)
    np.add.at(dense, places, values)
    return dense.reshape(size)
