"""Android libraries made loadable under glibc: a copy for tests, which goes into no app."""

import struct

_DYNAMIC_SEGMENT = 2
# Of the dynamic section: libraries to load besides, and versions of symbols.
_NEEDED = 1
_VERSIONS = {0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF}


def without_bionic(library: bytes) -> bytes:
    """A library that no longer asks for Android's libc, libm, libdl and liblog.

    What it imports is then looked up in the program that loads it and the libraries of that: `bionic.c` and
    glibc.

    Args:
        library: the content of a 64-bit little-endian ELF file.

    Raises:
        ValueError: it is no such file.

    Example:
        >>> patched = without_bionic(Path("libtensorflowlite_jni.so").read_bytes())
    """
    if library[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (headers,) = struct.unpack_from("<Q", library, 32)
    (count,) = struct.unpack_from("<H", library, 56)
    for number in range(count):
        kind, _, start, _, _, size = struct.unpack_from("<IIQQQQ", library, headers + 56 * number)
        if kind == _DYNAMIC_SEGMENT:
            entries = list(struct.iter_unpack("<QQ", library[start : start + size]))
            kept = [entry for entry in entries if entry[0] != _NEEDED and entry[0] not in _VERSIONS]
            section = b"".join(struct.pack("<QQ", *entry) for entry in kept).ljust(size, b"\0")
            return library[:start] + section + library[start + size :]
    raise ValueError("an ELF file without a dynamic section")
