"""Random damage to files: of any bytes, and of what the format of a file lets readers stumble over."""

import contextlib
import functools
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from tfsparsecap.core.files import DAMAGE

#: A module that only damaged files name; importing it means that a file chose what is imported.
CANARY = "fuzz_canary"
_BYTES = (
    *(b"\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b'"'),
    *(b"[" * 300, b"%s%n", b"\x1b[2J", b"9" * 5000),
)
_TEXTS = (
    *("", " ", "a\0b", "../../outside", "/etc/passwd", "/dev/zero", "..", "~", "\r", "${oc.env:HOME}", "${"),
    *("a" * 300, "b" * 70000, "\ud800", "\u202etxt", "\x1b[2J", "line\nbreak", "\U0001f600" * 80, "nan"),
    *("1e999", "!!int x", "x/" * 3000, "%s%n", "<b>", "9" * 5000, "-", "--help"),
)
_NUMBERS = (0, 1, -1, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
_YAML = (
    *("!!python/object/apply:os.system ['true']", f"!!python/module:{CANARY}", "!!binary x", "!!set {a}"),
    *("*unknown", "&a [*a]", "{? [a]: b}", "<<: 3", "${oc.env:HOME}", "${data}", "???", ".nan", "[" * 200),
    *("{a: " * 50, "- - -", "2001-01-01", "~", '"\\ud800"', "|", "%TAG", "@x", "--- a\n--- b", "9" * 5000),
    "!<tag:yaml.org,2002:python/object/new:os.system> [true]",
)
_TYPES = ("<f4", "|O", "<U100000", "|V1000000000", "<M8[s]", ">f4", "f4,f4", "", "|V0", "__import__('os')")
_SHAPES = (
    *("(3, 5)", "()", "(0,)", "(-1,)", "(3, 5, 1)", "(99999999999, 5)", "(2**70,)", "'x'", "None"),
    *("(1,) * 40", "(" * 250, f"({'9' * 5000},)", "(4294967296, 4294967296)", "(1073741824, 4)"),
)
# Objects that a configuration of Keras must not create.
_OBJECTS: tuple[dict[str, Any], ...] = (
    {"module": "os", "class_name": "system", "config": {"command": "true"}, "registered_name": "system"},
    {"module": "os", "class_name": "function", "config": "system", "registered_name": "function"},
    {"module": CANARY, "class_name": "run", "config": {}, "registered_name": "run"},
    {"module": "keras.layers", "class_name": "Lambda", "config": {"function": "eval"}},
    {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
    {"module": "keras.layers", "class_name": "TFSMLayer", "config": {"filepath": "/tmp"}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2**40}},
)


class _Payload:
    """Calls a command when it is unpickled."""

    def __reduce__(self) -> tuple:
        return os.system, ("true",)


class Damage:
    """Damages files at random; equal seeds give equal damage.

    Args:
        random: the source of all choices.
    """

    def __init__(self, random: Random):
        self.random = random

    def __call__(self, path: Path, others: list[Path]) -> None:
        """Damages a file; sometimes something else takes its place: nothing, a folder, a device, another."""
        if path.is_dir() or self.random.random() < 0.08:
            self._replace(path, others)
        elif path.is_file() and path.stat().st_size < 1 << 27:  # larger ones are sparse
            path.write_bytes(self.content(path.name, path.read_bytes()))

    def content(self, name: str, content: bytes) -> bytes:
        """The damaged content of a file, by the end of its name."""
        damages: dict[str, Callable[[bytes], bytes]] = {
            **dict.fromkeys((".npz", ".keras", ".pth", ".tflite"), self._archive),
            **dict.fromkeys((".csv", ".txt", ".jsonl"), self._lines),
            **{".json": self._json, ".yaml": self._yaml, ".npy": self._npy, ".h5": self._h5},
            **{".safetensors": self._safetensors, ".pkl": self._pickle},
        }
        damaged = damages.get(Path(name).suffix, self.bytes)
        return self.bytes(content) if self.random.random() < 0.25 else damaged(content)

    def text(self) -> str:
        """A text that is no name, path or word."""
        return self.random.choice(_TEXTS)

    def value(self) -> Any:
        """A value of JSON that is not expected."""
        nan, deep = float("nan"), _nested(60)
        choices = (None, True, nan, 1e308, 0.5, [], {}, [[]], {"a": []}, [None], [1, "1"], deep)
        number = self.random.choice(_NUMBERS) * self.random.choice((1, -1))
        return self.random.choice((*choices, number, number, self.text(), self.text(), [self.text()] * 3))

    def yaml_value(self) -> str:
        """The value of a setting."""
        return self.random.choice((self.random.choice(_YAML), json.dumps(self.value()), self.text()))

    def bytes(self, content: bytes) -> bytes:
        """Content with one to four damaged places."""
        random = self.random
        for _ in range(random.choice((1, 1, 2, 4))):
            size = len(content)
            at = random.randrange(size + 1)
            # Headers are at the start, directories of archives at the end.
            at = random.choice((at, at, min(at, 64), max(0, size - at % 128)))
            end = min(size, at + random.choice((1, 4, 8, 100, size)))
            number = (random.choice(_NUMBERS) % 2**64).to_bytes(8, random.choice(("little", "big")))
            changed = random.choice(
                (
                    *(b"", content[at:end] * 2, random.randbytes(end - at), bytes(end - at), number),
                    *(content[at:end] + random.choice(_BYTES), bytes(byte ^ 1 for byte in content[at:end])),
                )
            )
            content = content[:at] + changed + random.choice((content[end:],) * 6 + (b"",))
        return content

    def _lines(self, content: bytes) -> bytes:
        random, lines = self.random, content.decode("utf-8", "surrogateescape").split("\n")
        separator = next((mark for mark in "\t|" if mark in lines[0]), ",")
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(lines))
            if lines[at].startswith("{") and random.random() < 0.7:
                lines[at] = self._json(lines[at].encode()).decode("utf-8", "replace").replace("\n", " ")
                continue
            cells = lines[at].split(separator)
            cell = random.randrange(len(cells))
            cells[cell : cell + random.randrange(2)] = random.choice(
                ([self.text()], [], cells, ['"' + cells[cell]], [random.choice("[{") * 100_000])
            )
            lines[at : at + 1] = [separator.join(cells)] * random.choice((1, 1, 1, 0, 2, 50))
            lines = lines or [""]
        return "\n".join(lines).encode("utf-8", random.choice(("surrogatepass", "replace")))

    def _json(self, content: bytes) -> bytes:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):  # damaged before
            return self.bytes(content)
        for _ in range(self.random.choice((1, 1, 2, 4))):
            value = self._changed(value)
        text = json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        return text.replace('"nested"', "[" * 50_000).encode("utf-8", "surrogatepass")

    def _changed(self, value: Any) -> Any:
        """A value of JSON with one change somewhere in it."""
        random = self.random
        if not isinstance(value, dict | list) or not value or random.random() < 0.15:
            return random.choice((self.value(), self.value(), [value], {"": value}, str(value), "nested"))
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = self._changed(value[key])
        if isinstance(value, list):
            inside = random.choice(([], [value[key]] * 2, [inner], [inner]))
            return [*value[:key], *inside, *value[key + 1 :]]
        if "class_name" in value and random.random() < 0.3:
            return random.choice(_OBJECTS)
        others = {name: entry for name, entry in value.items() if name != key}
        other = random.choice(list(value.values()))
        changes = ({}, {self.text(): value[key]}, {key: other}, *[{key: inner}] * 4)
        return {**others, **random.choice(changes)}

    def _yaml(self, content: bytes) -> bytes:
        random, lines = self.random, content.decode().split("\n")
        for _ in range(random.choice((1, 1, 2, 4))):
            at = random.randrange(len(lines))
            key, value = lines[at].partition(":")[0], self.yaml_value()
            lines[at : at + 1] = random.choice(
                (
                    [f"{key}: {value}"],
                    [f"{key}: {value}"],
                    [lines[at], value],
                    [f" {lines[at]}"],
                    ["extends: ."],
                )
            )
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def _npy(self, content: bytes) -> bytes:
        random = self.random
        if random.random() < 0.15:
            file = io.BytesIO()
            np.save(file, np.array([_Payload(), "x"], object), allow_pickle=True)
            return file.getvalue()
        described, order = repr(random.choice(_TYPES)), random.choice(("False", "True", "None"))
        header = f"{{'descr': {described}, 'fortran_order': {order}, 'shape': {random.choice(_SHAPES)}, }}\n"
        header = random.choice((header,) * 8 + ("{}", "[]", "x" * 9000, "(" * 3000, "1\\"))
        version, length = (
            random.choice((1, 1, 1, 2, 3, 9)),
            len(header) + random.choice((0, 0, 0, 7, 60_000 - len(header))),
        )
        size = struct.pack("<H" if version == 1 else "<I", length % (1 << 16))
        return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode("latin-1") + content[-60:]

    def _archive(self, content: bytes) -> bytes:
        """A zip archive, or one behind the graph of a `.tflite` file, with a damaged member or header."""
        random, start = self.random, max(0, content.find(b"PK\3\4"))
        files = []
        with contextlib.suppress(*DAMAGE), zipfile.ZipFile(io.BytesIO(content[start:])) as archive:
            files = [(info.filename, archive.read(info)) for info in archive.infolist()]
        if not files:  # another format, or damaged before
            return content[:start] + self._pickle(content[start:])
        at, method, out = random.randrange(len(files)), zipfile.ZIP_STORED, io.BytesIO()
        name, inside = files[at]
        kind = random.randrange(10)
        if kind <= 4:
            files[at] = name, self.content(name, inside)
        elif kind == 5:
            del files[at]
        elif kind == 6:
            files[at] = random.choice(("x", "../x", "/x", "", "a" * 60_000)), inside
        elif kind == 7:
            method = random.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED))
        elif kind == 8 and random.random() < 0.1:
            return content[:start] + _bomb(name)
        with zipfile.ZipFile(out, "w", method) as archive:
            for member, data in files:
                archive.writestr(member, data)
        made = bytearray(out.getvalue())
        if kind == 9:  # a false field: encryption, method, checksum, sizes, offset
            place = made.rindex(b"PK\1\2") + random.choice((8, 10, 16, 20, 24, 28, 42))
            made[place : place + 2] = struct.pack("<H", random.choice((1, 99, 0xFFFF, 0x7FFF)))
        return content[:start] + bytes(made)

    def _pickle(self, content: bytes) -> bytes:
        if self.random.random() < 0.7:
            return self.bytes(content)
        return pickle.dumps(_Payload(), protocol=self.random.choice((0, 2, 4)))

    def _safetensors(self, content: bytes) -> bytes:
        size = 8 + int.from_bytes(content[:8], "little")
        header = self._json(content[8:size])
        return struct.pack("<Q", self.random.choice((len(header),) * 9 + (2**63,))) + header + content[size:]

    def _h5(self, content: bytes) -> bytes:
        """An HDF5 file in which something else takes the place of an object."""
        random, file = self.random, io.BytesIO(content)
        with contextlib.suppress(*DAMAGE), h5py.File(file, "r+") as archive:
            names: list[str] = []
            archive.visit(names.append)
            name = random.choice(names)
            del archive[name]
            kind = random.randrange(6)
            if kind == 0:
                archive[name] = h5py.SoftLink(random.choice((f"/{name}", "/missing", "/")))
            elif kind == 1:
                archive[name] = h5py.ExternalLink(
                    random.choice(("/dev/zero", "missing.h5", "/etc/passwd")), "/"
                )
            elif kind == 2:  # no bytes on the disk
                archive.create_dataset(
                    name, random.choice(((1 << 40,), (1 << 15, 1 << 15))), "f4", chunks=True
                )
            elif kind == 3:
                archive[name] = random.choice(
                    (b"text", np.full(3, np.nan), np.zeros((2, 2), "c8"), np.int64(7))
                )
            elif kind == 4:
                archive.create_dataset(name, (1 << 12,), "f4", external=[("/dev/zero", 0, 1 << 14)])
        return file.getvalue()

    def _replace(self, path: Path, others: list[Path]) -> None:
        other = self.random.choice(others).read_bytes() if others else b""
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        kind = self.random.randrange(8)
        if kind == 1:
            path.mkdir()
        elif kind == 2:
            path.symlink_to(self.random.choice((path.name, "missing", "/dev/zero", "/dev/full", "/dev/null")))
        elif kind == 3:
            os.mkfifo(path)
        elif kind == 4:
            path.write_bytes(self.random.randbytes(self.random.choice((0, 1, 100, 5000))))
        elif kind == 5:
            with path.open("wb") as file:
                file.truncate(1 << self.random.choice((20, 28, 36)))  # without blocks on the disk
        elif kind > 5:
            path.write_bytes(other)


def _nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@functools.cache
def _bomb(name: str) -> bytes:
    """An archive with a member of 2 GB of zeros."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(name, "w") as file,
    ):
        for _ in range(127):  # 2 GB need other headers
            file.write(bytes(1 << 24))
    return out.getvalue()
