"""Reads PyTorch checkpoints without PyTorch and without executing anything in the file.

Since PyTorch 1.6 a checkpoint is a zip archive: `data.pkl` is a pickle that describes the tensors, `data/KEY`
contain their bytes. The format before has several pickles: a magic number, the version of the format, facts
about the machine, the saved object, and the list of storages; then, for each storage, the number of its
elements, int64, and their bytes. `pickle_machine.py` reads the pickles.
"""

import math
import os
import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfsparsecap.core.weight_files.pickle_machine import (
    SAVE_STATE_DICT,
    STORAGE_TYPES,
    TENSORS,
    PickleMachine,
    RejectedFile,
    SparseTensor,
    Storage,
    Tensor,
    printable,
)
from tfsparsecap.errors import InputError

#: The first pickle of a file.
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C


class LegacyFile:
    """The saved object, and the bytes of its storages, of an open file.

    Attributes:
        saved: the object as `PickleMachine` describes it.
        byteorder: `"<"` or `">"`, as in NumPy.
    """

    def __init__(self, file: BinaryIO, size: int):
        machine = PickleMachine()
        magic, version, system, self.saved, keys = (machine.run(file) for _ in range(5))
        if (magic, version) != (MAGIC_NUMBER, 1001):
            raise ValueError("its version is unknown")
        little = not isinstance(system, dict) or system.get("little_endian", True)
        self.file, self.byteorder = file, "<" if little else ">"
        self.places: dict[str, tuple[int, int]] = {}
        if not isinstance(keys, list) or not set(machine.storages) <= set(map(str, keys)):
            raise ValueError("its list of storages does not contain all tensors")
        place = file.tell()
        for key in keys:
            storage = machine.storages.get(key)
            file.seek(place)
            header = file.read(8)
            count = int.from_bytes(header, "little" if little else "big", signed=True)
            if not isinstance(storage, Storage) or len(header) < 8 or count != storage.length:
                raise ValueError(f"storage {key!r} is missing or has another length")
            length = count * np.dtype(STORAGE_TYPES[storage.kind]).itemsize
            self.places[key] = place + 8, length
            place += 8 + length
            if place > size:
                raise ValueError("the file ends within a storage")

    def read(self, name: str, largest: Any = None) -> bytes:
        """Returns the bytes of the storage `data/KEY`."""
        place, length = self.places[name.removeprefix("data/")]
        self.file.seek(place)
        return self.file.read(length)


#: Keys under which training scripts store the state dict beside other things.
_USUAL_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "net", "weights")

# Far above any network for a phone; they keep a malicious file from exhausting memory or time.
_MAX_ELEMENTS, _MAX_DEPTH = 10**9, 8
_MAX_PICKLE_BYTES, _MAX_UNPACKED_BYTES = 16 << 20, 64 << 20

#: The pickled magic number at the start of the format before PyTorch 1.6.
_LEGACY = b"\x8a\x0a" + MAGIC_NUMBER.to_bytes(10, "little")
#: What zipfile, zlib and pickletools raise on damaged or malicious files.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, OverflowError, RuntimeError, EOFError)


def read_checkpoint(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the weights in a file that `torch.save` wrote.

    Nothing that the file names is imported or called. The state dict may be the saved object, or part of a
    dict under a key such as "model" or "state_dict"; everything else in the file is ignored.

    Args:
        path: the checkpoint, .pth or .pt.

    Returns:
        The state dict in its order, as separate arrays in C order. Sparse tensors become dense, with
        duplicate entries added; bfloat16 becomes float32, and all other types are kept.

    Raises:
        InputError: the file is missing, damaged or in another format, contains no state dict or several,
            refers to anything but weights, or would need too much memory.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise RejectedFile("is not a regular file: give a PyTorch checkpoint")
        with path.open("rb") as file:
            size = path.stat().st_size
            if _is_legacy(file):
                legacy = LegacyFile(file, size)
                return _arrays(_named_tensors(legacy.saved), legacy)
            entries = _Entries(zipfile.ZipFile(file), size)
            saved = PickleMachine().run(entries.read("data.pkl", _MAX_PICKLE_BYTES))
            return _arrays(_named_tensors(saved), entries)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a checkpoint") from error
    except MemoryError as error:
        raise InputError(f"{path} needs more memory than is available") from error
    except RejectedFile as error:
        raise InputError(f"{path} {error}") from None
    except _DAMAGE as error:
        raise InputError(f"{path} is damaged ({printable(str(error))}): copy or download it again") from error


def _is_legacy(file: BinaryIO) -> bool:
    """Whether a file is in the format before PyTorch 1.6; rejects other formats."""
    head = file.read(64)
    file.seek(0)
    if _LEGACY in head:
        return True
    if not head.startswith(b"PK"):
        raise RejectedFile(
            "is not a PyTorch checkpoint (not a zip archive): give a file that torch.save wrote"
        )
    return False


class _Entries:
    """The files in the archive; their total size is limited to that of a valid archive."""

    def __init__(self, archive: zipfile.ZipFile, size: int):
        self.archive, names = archive, set(archive.namelist())
        roots = [name.removesuffix("data.pkl") for name in names if name.endswith("/data.pkl")]
        if len(roots) != 1:
            raise RejectedFile(
                "is not a PyTorch checkpoint (no data.pkl, or several): give what torch.save wrote"
            )
        self.root = roots[0]
        if self.root + "constants.pkl" in names:
            raise RejectedFile(f"is a TorchScript program: open it with torch.jit.load and {SAVE_STATE_DICT}")
        # Files can overlap in the archive, and compressed ones can grow a thousandfold.
        self.remaining_bytes = {zipfile.ZIP_STORED: size, zipfile.ZIP_DEFLATED: _MAX_UNPACKED_BYTES}
        order = self.read("byteorder", 6) if self.root + "byteorder" in names else b"little"
        if order not in (b"little", b"big"):
            raise ValueError("its byte order is neither little nor big")
        self.byteorder = "<" if order == b"little" else ">"

    def read(self, name: str, largest: int = 1 << 63) -> bytes:
        """Returns the bytes of one file, at most `largest`."""
        entry = self.archive.NameToInfo.get(self.root + name)
        if entry is None:
            raise ValueError(f"its part {name} is missing")
        if entry.flag_bits & 1 or entry.compress_type not in self.remaining_bytes:
            raise RejectedFile(
                f"is encrypted, or compressed as torch.save never does ({printable(name)}): {SAVE_STATE_DICT}"
            )
        self.remaining_bytes[entry.compress_type] -= entry.file_size
        if self.remaining_bytes[entry.compress_type] < 0 or entry.file_size > largest:
            raise RejectedFile(
                f"is larger when unpacked than a checkpoint can be ({printable(name)}): {SAVE_STATE_DICT}"
            )
        with self.archive.open(entry) as member:
            content = member.read(entry.file_size)
        if len(content) != entry.file_size:
            raise ValueError(f"{name} is shorter than declared")
        return content


def _named_tensors(saved: Any) -> dict[str, Tensor | SparseTensor]:
    """Returns the tensors of the state dict in the saved object."""
    state_dicts = _state_dicts(saved, "", set()) if isinstance(saved, dict) else []
    if not state_dicts:
        raise RejectedFile(f"contains no state dict, a dict of names and tensors: {SAVE_STATE_DICT}")
    if len(state_dicts) > 1:
        places = " and ".join(place or "the top" for place, _ in state_dicts[:5])
        raise RejectedFile(f"contains several dicts of tensors, at {places}: {SAVE_STATE_DICT}")
    tensors = {name: value for name, value in state_dicts[0][1].items() if isinstance(value, TENSORS)}
    if not all(isinstance(name, str) for name in tensors):
        raise RejectedFile(f"contains tensors under numbers instead of names: {SAVE_STATE_DICT}")
    return tensors


def _state_dicts(saved: dict, place: str, seen: set[int], depth: int = 0) -> list[tuple[str, dict]]:
    """Returns the dicts that contain tensors with axes, each with the keys that lead to it."""
    state_dicts: list[tuple[str, dict]] = []
    usual_dicts: list[tuple[str, dict]] = []
    seen.add(id(saved))
    for key, value in saved.items():
        if isinstance(key, str) and isinstance(value, dict) and id(value) not in seen and depth < _MAX_DEPTH:
            below = _state_dicts(value, f"{place}[{printable(key)}]", seen, depth + 1)
            (usual_dicts if key in _USUAL_KEYS else state_dicts).extend(below)
    # Scalars are not weights, unless there is nothing else.
    sizes = [value.size for value in saved.values() if isinstance(value, TENSORS)]
    if any(sizes) or (sizes and not place and not state_dicts and not usual_dicts):
        state_dicts.append((place, saved))
    return usual_dicts or state_dicts


def _arrays(
    tensors: dict[str, Tensor | SparseTensor], entries: _Entries | LegacyFile
) -> dict[str, np.ndarray]:
    """Returns the tensors' values. Each storage is read once and freed after its last tensor."""
    parts = {
        name: [t.indices, t.values] if isinstance(t, SparseTensor) else [t] for name, t in tensors.items()
    }
    uses = Counter(part.storage.key for group in parts.values() for part in group)
    remaining_elements, storages, arrays = _MAX_ELEMENTS, {}, {}
    for name, tensor in tensors.items():
        for size in {tensor.size, *(part.size for part in parts[name])}:
            remaining_elements -= math.prod(max(1, n) for n in size)
        if remaining_elements < 0:
            raise RejectedFile(
                f"has over {_MAX_ELEMENTS:,} numbers when dense (at {printable(name)}): {SAVE_STATE_DICT}"
            )
        read = []
        for part in parts[name]:
            key = part.storage.key
            if key not in storages:
                storages[key] = entries.read(f"data/{key}")
            uses[key] -= 1
            content = storages[key] if uses[key] else storages.pop(key)
            read.append(_strided(name, part, content, entries.byteorder))
        arrays[name] = _dense(name, tensor.size, *read) if isinstance(tensor, SparseTensor) else read[0]
    return arrays


def _strided(name: str, tensor: Tensor, content: bytes, byteorder: str) -> np.ndarray:
    """Returns a copy of a tensor, which is a strided view of its storage."""
    kind, length = tensor.storage.kind, tensor.storage.length
    dtype = np.dtype(byteorder + STORAGE_TYPES[kind])
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
