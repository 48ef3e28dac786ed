"""Damage that knows a file format: arrays, archives, HDF5, safetensors, YAML, pickles, Keras's JSON."""

import contextlib
import functools
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

from tfsparsecap.files import DAMAGE

from .guard import CANARY
from .mutations import Hostile, json_text

Damage = Callable[[bytes], bytes]
_BOMB = 1 << 31
_DESCRIPTIONS = (
    *("<f4", "<f8", "|O", "O", "<U100000", "|V1000000000", "<c16", "|b1", "<M8[s]", ">f4", "f4,f4", ""),
    *("<i8", "<f2", "__import__('os').system('true')", "|S0", "|V0", "\\xff"),
)
_SHAPES = (
    *("(3, 5)", "()", "(0,)", "(-1,)", "(3,)", "(3, 5, 1)", "(99999999999, 5)", "(9999999999999999999999,)"),
    *("(2**70,)", "3", "'x'", "None", "(True, 5)", "(3.0, 5)", "(1,) * 40", "(" * 250, "(0, 9999999999)"),
    *(f"({'9' * 5000},)", "(4294967296, 4294967296)", "(1073741824, 4)", "(1, " * 60 + "1" + ")" * 60),
)
# What YAML files use to create objects, to refer, and to confuse.
_YAML = (
    *("!!python/object/apply:os.system ['true']", f"!!python/name:{CANARY}.run", f"!!python/module:{CANARY}"),
    *("!!int x", "!!float x", "!!binary x", "!!timestamp x", "!!set {a}", "!!omap [a: 1]", "!!bool maybe"),
    *("*unknown", "&a [*a]", "&a {x: *a}", "{? [a]: b}", "{? {a: 1}: b}", "<<: 3", "0x" + "f" * 5000),
    *("${oc.env:HOME}", "${name}", "${data}", "${", "${a", "${oc.decode:x}", "${oc.create:{}}", "9" * 5000),
    *("???", "1e999", ".nan", "-.inf", "[" * 200, "{" * 200, "{a: " * 50, "- - - -", "2001-01-01", "~"),
    *("'\\0'", '"\\0"', '"\\ud800"', "|", ">", "%TAG", "@x", "`x", "\t", "--- a\n--- b", "...", "1_0"),
    *("null", "0o17", "1:30", "&a [x, x, x, x]", "!<tag:yaml.org,2002:python/object/new:os.system> [true]"),
)
# Types of arrays that are no numbers, and headers that are no headers.
_STRUCTURES = ("[('a', '<f4')]", "[('a', '|O')]", "('<f4', (2**40,))", "[" * 90, "{}")
_HEADERS = ("{}", "[]", "x" * 9000, "{'shape': (1,)}", "(" * 3000, "{} \0", "1\\")


class Formats(Hostile):
    """Damage that keeps most of a file's structure."""

    def npy(self, content: bytes) -> bytes:
        """An array file with a false header, or damaged bytes."""
        random = self.random
        if random.random() < 0.35:
            return self.bytes(content)
        if random.random() < 0.15:
            file = io.BytesIO()
            np.save(file, np.array([_Payload(), "x"], object), allow_pickle=True)
            return file.getvalue()
        description, shape = repr(random.choice(_DESCRIPTIONS)), random.choice(_SHAPES)
        if random.random() < 0.1:
            description = random.choice(_STRUCTURES)
        order = random.choice(("False", "True", "False", "None", "2", "[]"))
        header = f"{{'descr': {description}, 'fortran_order': {order}, 'shape': {shape}, }}"
        if random.random() < 0.1:
            header = random.choice(_HEADERS)
        text = header.encode("latin-1") + b"\n"
        version = random.choice((1, 1, 1, 2, 3, 0, 9))
        length = len(text) if random.random() < 0.9 else self.integer() % 65536
        size = struct.pack("<H" if version == 1 else "<I", length % (1 << 16 if version == 1 else 1 << 32))
        return b"\x93NUMPY" + bytes([version, 0]) + size + text + content[-60:]

    def zip(self, content: bytes, members: dict[str, Damage]) -> bytes:
        """An archive with damaged members or headers, or damaged bytes.

        Args:
            members: end of a member's name -> how to damage such members; others get damaged bytes.
        """
        random = self.random
        if random.random() < 0.25:
            return self.bytes(content)
        files = []
        with contextlib.suppress(*DAMAGE), zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = [(info.filename, archive.read(info)) for info in archive.infolist()]
        if not files:  # damaged before
            return self.bytes(content)
        at = random.randrange(len(files))
        name, inside = files[at]
        kind, out = random.randrange(12), io.BytesIO()
        method = zipfile.ZIP_STORED
        if kind <= 4:
            damage = next((damage for end, damage in members.items() if name.endswith(end)), self.bytes)
            files[at] = (name, damage(inside))
        elif kind == 5:
            del files[at]
        elif kind == 6:
            files[at] = (self.text().replace("\ud800", "?")[:60000] or "x", inside)
        elif kind == 7:
            files.append((name, self.bytes(inside)))
        elif kind == 8:
            method = random.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED))
        elif kind == 9:
            files[at] = (name, random.choice(files)[1])
        elif kind == 10 and random.random() < 0.3:
            return _bombed(files, at)
        with zipfile.ZipFile(out, "w", method) as archive:
            for member, data in files:
                with contextlib.suppress(UserWarning):
                    archive.writestr(member, data)
        made = out.getvalue()
        return self._false_header(made) if kind == 11 else made

    def _false_header(self, content: bytes) -> bytes:
        """An archive in whose headers a field is false: encryption, method, sizes, offsets."""
        random, damaged = self.random, bytearray(content)
        places = [at for at in range(len(content) - 4) if content[at : at + 4] in (b"PK\1\2", b"PK\3\4")]
        fields = {b"PK\1\2": (8, 10, 16, 20, 24, 28, 30, 42), b"PK\3\4": (6, 8, 14, 18, 22, 26, 28)}
        at = random.choice(places)
        # The flag of encryption is the lowest bit of the first of the fields.
        field = random.choice(fields[content[at : at + 4]])
        value = random.choice((1, 99, 0xFFFF, 0x7FFF, self.integer() % 65536))
        damaged[at + field : at + field + 2] = struct.pack("<H", value)
        return bytes(damaged)

    def h5(self, content: bytes) -> bytes:
        """An HDF5 file with damaged objects, or damaged bytes."""
        random = self.random
        if random.random() < 0.3:
            return self.bytes(content)
        file = io.BytesIO(content)
        with contextlib.suppress(*DAMAGE), h5py.File(file, "r+") as archive:
            names: list[str] = []
            archive.visit(names.append)
            # Keras's own objects; each of these changes is a valid HDF5 file.
            for _ in range(random.choice((1, 1, 3))):
                name = random.choice(names)
                if name in archive:
                    with contextlib.suppress(KeyError, ValueError, OSError, TypeError):
                        self._change_h5(archive, name)
        return file.getvalue()

    def _change_h5(self, archive: h5py.File, name: str) -> None:
        random, kind = self.random, self.random.randrange(9)
        found = archive[name]
        if kind == 8:
            found.attrs[random.choice(("vars", "name", "weight_names", "layer_names"))] = random.choice(
                (self.integer() % 2**31, b"\xff", "x" * 1000, np.zeros(3))
            )
            return
        del archive[name]
        if kind == 1:
            archive[name] = h5py.SoftLink(random.choice((f"/{name}", "/missing", "/")))
        elif kind == 2:
            archive[name] = h5py.ExternalLink(random.choice(("/dev/zero", "missing.h5", "/etc/passwd")), "/")
        elif kind == 3:  # no bytes on the disk
            shape = random.choice(((1 << 20, 1 << 10), (1 << 40,), (0,), (1 << 15, 1 << 15, 3)))
            archive.create_dataset(name, shape, "f4", chunks=tuple(min(n, 64) or 1 for n in shape))
        elif kind == 4:
            values = (b"text", np.array([b"x"] * 3), np.full(3, np.nan))
            archive.create_dataset(name, data=random.choice(values))
        elif kind == 5:
            archive.create_group(name)
        elif kind == 6:
            archive.create_dataset(name, (1 << 12,), "f4", external=[("/dev/zero", 0, 1 << 14)])
        elif kind == 7:
            data = np.zeros(10, [("a", "f4"), ("b", "S8")])
            archive.create_dataset(name, data=random.choice((data, np.zeros((2, 2), "c8"), np.int64(7))))

    def safetensors(self, content: bytes) -> bytes:
        """A safetensors file with a false header, or damaged bytes."""
        if self.random.random() < 0.4:
            return self.bytes(content)
        size = int.from_bytes(content[:8], "little")
        header = self.json(content[8 : 8 + size])
        length = len(header) if self.random.random() < 0.9 else self.integer() % 2**64
        return struct.pack("<Q", length) + header + content[8 + size :]

    def yaml(self, content: bytes) -> bytes:
        """Settings with hostile values, keys, tags and references, or damaged bytes."""
        random = self.random
        if random.random() < 0.2:
            return self.bytes(content)
        lines = content.decode().split("\n")
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            at = random.randrange(len(lines))
            key, colon, _ = lines[at].partition(":")
            kind = random.randrange(8)
            value = random.choice((random.choice(_YAML), random.choice(_YAML), json.dumps(self.value())))
            if kind <= 4 and colon:
                lines[at] = f"{key}: {value}"
            elif kind == 5:
                indent = key[: len(key) - len(key.lstrip())]
                lines.insert(at, f"{indent}{random.choice((self.text()[:400], value))}: 1")
            elif kind == 6:
                del lines[at]
                lines = lines or [""]
            else:
                more = (value, lines[at], lines[at][1:], f" {lines[at]}", "extends: .")
                lines.insert(at, random.choice(more))
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    def keras_json(self, content: bytes) -> bytes:
        """The configuration of a Keras model with damaged values, or objects that must not be created."""
        random = self.random
        if random.random() < 0.6:
            return self.json(content)
        payload = random.choice(_KERAS_PAYLOADS)
        value = json.loads(content)
        if random.random() < 0.4:
            return json_text(payload)
        return json_text(_replace(value, payload, random))

    def pickled(self, content: bytes) -> bytes:
        """A pickle that calls something, or damaged bytes."""
        if self.random.random() < 0.7:
            return self.bytes(content)
        return pickle.dumps(_Payload(), protocol=self.random.choice((0, 2, 4)))


class _Payload:
    """Calls a command when it is unpickled."""

    def __reduce__(self) -> tuple:
        import os

        return os.system, ("true",)


def _lambda(module: str) -> dict[str, Any]:
    return {
        "module": module,
        "class_name": "Lambda",
        "config": {"name": "l", "function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}}},
        "registered_name": None,
    }


def _function(module: str, name: str, /, **config: Any) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": name}


_KERAS_PAYLOADS: tuple[dict[str, Any], ...] = (
    _lambda("keras.layers"),
    _lambda("keras.src.layers.core.lambda_layer"),
    _function("os", "system", command="true"),
    _function("builtins", "exec"),
    _function("builtins", "function", config="eval"),
    _function(CANARY, "run"),
    _function(f"{CANARY}.below", "run"),
    {"module": "os", "class_name": "function", "config": "system", "registered_name": "function"},
    {"module": "keras.config", "class_name": "function", "config": "enable_unsafe_deserialization"},
    {"module": "keras.utils", "class_name": "function", "config": "get_file", "registered_name": "function"},
    _function("keras.layers", "StringLookup", vocabulary="/etc/passwd"),
    _function("keras.layers", "TorchModuleWrapper", module="4wEAAAA="),
    _function("keras.models", "Sequential", layers=[_lambda("keras.layers")]),
    _function("subprocess", "Popen", args=["true"]),
    _function("keras.layers", "TFSMLayer", filepath="/tmp", call_endpoint="serve"),
    _function("keras.layers", "Dense", units=2**40, build_config={"input_shape": [2**20, 2**20]}),
)


def _replace(value: Any, payload: Any, random: Random) -> Any:
    """Puts a payload in the place of an object of Keras."""
    if isinstance(value, dict):
        if "class_name" in value and random.random() < 0.4:
            return payload
        keys = [key for key, inner in value.items() if isinstance(inner, dict | list)]
        if keys:
            key = random.choice(keys)
            return {**value, key: _replace(value[key], payload, random)}
        return {**value, random.choice(list(value) or ["x"]): payload}
    if isinstance(value, list) and value:
        at = random.randrange(len(value))
        return [*value[:at], _replace(value[at], payload, random), *value[at + 1 :]]
    return payload


@functools.cache
def _zeros() -> bytes:
    """A deflated stream of 2 GB of zeros."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # After a full flush, the stream of a megabyte can be repeated.
    megabyte = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return megabyte * (_BOMB >> 20) + packer.flush()


def _bombed(files: list[tuple[str, bytes]], at: int) -> bytes:
    """An archive in which a member unpacks to 2 GB; its checksum, which is at the end, is false."""
    out, central, count = io.BytesIO(), b"", 0
    for place, (name, data) in enumerate(files):
        packed, size, checksum, method = data, len(data), zlib.crc32(data), 0
        if place == at:
            packed, size, checksum, method = _zeros(), _BOMB, 0, 8
        encoded = name.encode()
        fields = (20, 0, method, 0, 0, checksum, len(packed), size, len(encoded), 0)
        central += (
            struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, *fields, 0, 0, 0, 0, out.tell()) + encoded
        )
        out.write(struct.pack("<4sHHHHHIIIHH", b"PK\3\4", *fields) + encoded + packed)
        count += 1
    start = out.tell()
    out.write(central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(central), start, 0))
    return out.getvalue()


def written(path: Path, damage: Damage) -> None:
    """Replaces the content of a file by its damaged content. Sparse files of gigabytes stay as they are."""
    if path.stat().st_size < 1 << 27:
        path.write_bytes(damage(path.read_bytes()))
