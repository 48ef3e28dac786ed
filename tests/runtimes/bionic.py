"""Android libraries made loadable under glibc: a copy for tests, which goes into no app."""

import struct

_LOADED_SEGMENT, _DYNAMIC_SEGMENT = 1, 2
# Of the dynamic section: libraries to load besides, their names, and versions of symbols.
_NEEDED, _NAMES = 1, 5
_VERSIONS = {0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}


def without_bionic(library: bytes, stand_in: str | None = None) -> bytes:
    """A library that no longer asks for Android's libc, libm, libdl and liblog.

    What it imports is then looked up in the program that loads it and the libraries of that: `bionic.c` and
    glibc.

    Args:
        library: the content of a 64-bit little-endian ELF file.
        stand_in: the one of those libraries that it still asks for, where a program that is not ours loads
            it: a library of that name then brings `bionic.c` (`jvm_agent.c`).

    Raises:
        ValueError: it is no such file.

    Example:
        >>> patched = without_bionic(Path("libtensorflowlite_jni.so").read_bytes())
    """
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
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
    """Where in the file lies what a library has at an address when it is loaded."""
    for kind, _, start, loaded_at, _, size in segments:
        if kind == _LOADED_SEGMENT and loaded_at <= address < loaded_at + size:
            return start + address - loaded_at
    raise ValueError(f"an ELF file without anything at its own address {address:#x}")


def _text(library: bytes, start: int) -> str:
    return library[start : library.index(b"\0", start)].decode()
