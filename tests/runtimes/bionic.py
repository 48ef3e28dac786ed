"""Patches Android libraries so that glibc can load them; the copies are for tests only."""

import struct

_LOADED_SEGMENT, _DYNAMIC_SEGMENT = 1, 2
# Tags of the dynamic section: required libraries, their names, and versions of symbols.
_NEEDED, _NAMES = 1, 5
_VERSIONS = {0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}


def without_bionic(library: bytes, stand_in: str | None = None) -> bytes:
    """Removes the dependencies of a library on Android's libc, libm, libdl and liblog.

    Its imports are then resolved in the program that loads it and in that program's libraries: `bionic.c` and
    glibc.

    Args:
        library: content of a 64-bit little-endian ELF file.
        stand_in: a dependency to keep if another program, such as a JVM, loads the library: a library with
            this name then provides `bionic.c` (`jvm_agent.c`).

    Raises:
        ValueError: the content is not such a file.

    Example:
        >>> patched = without_bionic(Path("libtensorflowlite_jni.so").read_bytes())
    """
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (headers,) = struct.unpack_from("<Q", library, 32)
    (count,) = struct.unpack_from("<H", library, 56)
    segments = [struct.unpack_from("<IIQQQQ", library, headers + 56 * number) for number in range(count)]
    for kind, _, start, _, _, size in segments:
        if kind == _DYNAMIC_SEGMENT:
            entries = list(struct.iter_unpack("<QQ", library[start : start + size]))
            names = _file_offset(segments, dict(entries)[_NAMES])
            kept = [
                (tag, value)
                for tag, value in entries
                if tag not in _VERSIONS and (tag != _NEEDED or _text(library, names + value) == stand_in)
            ]
            section = b"".join(struct.pack("<QQ", *entry) for entry in kept).ljust(size, b"\0")
            return library[:start] + section + library[start + size :]
    raise ValueError("an ELF file without a dynamic section")


def _file_offset(segments: list[tuple], address: int) -> int:
    """Position in the file of an address of the loaded library."""
    for kind, _, start, loaded_at, _, size in segments:
        if kind == _LOADED_SEGMENT and loaded_at <= address < loaded_at + size:
            return start + address - loaded_at
    raise ValueError(f"an ELF file without anything at its own address {address:#x}")


def _text(library: bytes, start: int) -> str:
    return library[start : library.index(b"\0", start)].decode()
