"""The format of PyTorch checkpoints before version 1.6: several pickles, then the bytes of the tensors.

The pickles are a magic number, the version of the format, facts about the machine, the saved object, and the
list of storages. For each storage follow the number of its elements, int64, and their bytes.
"""

from typing import Any, BinaryIO

import numpy as np

from tfsparsecap.core.weight_files.pickle_machine import STORAGE_TYPES, PickleMachine, Storage

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
