"""Damage: random changes of bytes, texts, JSON values and files."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

# Byte sequences that parsers stumble over.
_BYTES = (
    *(b"\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xfe", b"\xed\xa0\x80"),
    *(b"\r", b"\n\n", b'"', b"'", b"{", b"[" * 64, b"(" * 300, b"%s%n", b"\x1b[2J", b"9" * 5000),
)
_TEXTS = (
    *("", " ", "\0", "a\0b", "../../outside/keep.txt", "/etc/passwd", "/dev/zero", ".", "..", "~", "\r"),
    *("${oc.env:HOME}", "${", "${name}", "a" * 300, "b" * 70000, "\ud800", "\u202etxt", "\x1b[2J", "\ufeff"),
    *("line\nbreak", "caf\u00e9", "\U0001f600" * 80, "None", "nan", "1e999", "!!int x", "x/" * 3000, "%s%n"),
    *("<b>", "{{7*7}}", "9" * 5000, "-", "--help", "con:"),
)
_HUGE = (0, 1, -1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
# A string that `json_text` replaces by a number with more digits than Python converts.
_LONG_NUMBER = "@long-number@"


class Hostile:
    """Random choices of hostile values. Equal seeds give equal choices.

    Args:
        random: the source of all choices.
    """

    def __init__(self, random: Random):
        self.random = random

    def integer(self) -> int:
        """A number that is too large, too small or at a limit."""
        return self.random.choice(_HUGE) * self.random.choice((1, 1, -1))

    def text(self) -> str:
        """A text that is no name, path, or word."""
        return self.random.choice(_TEXTS)

    def value(self) -> Any:
        """A value of JSON."""
        return self.random.choice(
            (
                *(None, True, False, self.integer(), self.integer(), float("nan"), float("inf"), -0.0, 1e308),
                *(
                    _LONG_NUMBER,
                    10**400,
                    0.5,
                    [],
                    {},
                    [[]],
                    [{}],
                    {"a": []},
                    [None],
                    self.text(),
                    self.text(),
                ),
                *([self.text()] * 3, {self.text(): self.value_below()}, [self.integer()] * 5, [1, "1"]),
            )
        )

    def value_below(self) -> Any:
        """A value inside another one."""
        return self.random.choice((None, 1, "x", [], {}, self.text(), _nested(60)))

    def bytes(self, content: bytes) -> bytes:
        """Content with one to four damaged places; never the content itself, unless it is empty."""
        damaged = content
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            damaged = self._damaged_once(damaged)
        return damaged if damaged != content else self._damaged_once(content + b"\0")

    def _damaged_once(self, content: bytes) -> bytes:
        random, size = self.random, len(content)
        at = random.randrange(size + 1)
        # Headers are at the start, directories of archives at the end.
        at = random.choice((at, at, min(at, 64), max(0, size - at % 128)))
        end = min(size, at + random.choice((1, 2, 4, 8, 100, size)))
        kind = random.randrange(11)
        if kind <= 2 and at < size:  # some bits
            flipped = bytearray(content)
            for place in {at, *(random.randrange(size) for _ in range(kind * 3))}:
                flipped[place] ^= 1 << random.randrange(8)
            return bytes(flipped)
        if kind == 3:
            return content[:at]
        if kind == 4:
            return content[:at] + content[end:]
        if kind == 5:
            return content[:end] + content[at:end] * random.choice((1, 2, 50)) + content[end:]
        if kind == 6:
            return content[:at] + random.choice(_BYTES) + content[at:]
        if kind == 7:
            number = (self.integer() % 2**64).to_bytes(8, random.choice(("little", "big")))
            number = number[: random.choice((1, 2, 4, 8))]
            return content[:at] + number + content[at + len(number) :]
        if kind == 8:
            return content[:at] + bytes([random.choice((0, 255, 0x20))]) * (end - at) + content[end:]
        if kind == 9:
            return content + random.choice((content[:at], random.randbytes(100), b"\0" * 4096))
        return content[at:] + content[:at]

    def lines(self, content: bytes, separator: str = ",") -> bytes:
        """A table with damaged lines or columns, or damaged bytes."""
        random = self.random
        if random.random() < 0.3:
            return self.bytes(content)
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(lines))
            cells = lines[at].split(separator)
            cell = random.randrange(len(cells))
            kind = random.randrange(9)
            if kind == 0:
                lines = [separator.join(reversed(line.split(separator))) for line in lines]
            elif kind == 1:
                cells[cell] = self.text()
            elif kind == 2:
                cells = cells[:cell] + cells[cell + 1 :]
            elif kind == 3:
                cells = cells[:cell] + cells[cell:] * 2
            elif kind == 4:
                cells = [self.text()]
            elif kind == 5:
                cells[cell] = '"' + cells[cell]
            elif kind == 6:
                random.shuffle(lines)
                continue
            elif kind == 7:
                lines = lines[:at] + lines[at:] * random.choice((2, 50))
                continue
            else:
                cells[cell] = random.choice(("[", "{", '{"a":')) * random.choice((10, 3000, 100_000))
            if kind:
                lines[at] = separator.join(cells)
        encoded = random.choice(("surrogatepass", "replace"))
        return "\n".join(lines).encode("utf-8", encoded)

    def json(self, content: bytes) -> bytes:
        """A JSON text with damaged values, or damaged bytes."""
        random = self.random
        if random.random() < 0.25:
            return self.bytes(content)
        if random.random() < 0.05:
            return json_text(_nested(random.choice((900, 20_000, 100_000))))
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):  # damaged before
            return self.bytes(content)
        for _ in range(random.choice((1, 1, 2, 4))):
            value = self.in_json(value)
        return json_text(value, escaped=random.random() < 0.5)

    def in_json(self, value: Any) -> Any:
        """A value with one change somewhere in it."""
        random = self.random
        below: list[Any] = []
        if isinstance(value, dict | list):
            below = list(value.items() if isinstance(value, dict) else enumerate(value))
        if not below or random.random() < 0.15:
            return random.choice((self.value(), [value], {"": value}, str(value)))
        key, inner = random.choice(below)
        kind = random.randrange(8)
        if isinstance(value, list):
            if kind == 0:
                return value[:key] + value[key + 1 :]
            if kind == 1:
                return value + value[key:]
            return [*value[:key], self.in_json(inner), *value[key + 1 :]]
        if kind == 0:
            return {name: one for name, one in value.items() if name != key}
        if kind == 1:
            return {(self.text() if name == key else name): one for name, one in value.items()}
        if kind == 2:
            return {**value, key: random.choice(below)[1]}
        return {**value, key: self.in_json(inner)}

    def file(self, path: Path, others: list[Path]) -> None:
        """Replaces a file by something else: nothing, a folder, a link, a device, a pipe, another file."""
        random = self.random
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        kind = random.randrange(10)
        if kind == 1:
            path.mkdir()
        elif kind == 2:
            path.symlink_to(path.name)
        elif kind == 3:
            path.symlink_to(random.choice(("/dev/zero", "/dev/full", "/dev/null", "/dev/urandom")))
        elif kind == 4:
            path.symlink_to("missing")
        elif kind == 5:
            os.mkfifo(path)
        elif kind == 6:
            path.touch()
        elif kind == 7 and others:
            shutil.copyfile(random.choice(others), path)
        elif kind == 8:
            path.write_bytes(random.randbytes(random.choice((1, 100, 5000))))
        elif kind == 9:
            with path.open("wb") as file:
                file.truncate(1 << random.choice((20, 28, 36)))  # without blocks on the disk


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(min(depth, 900)):
        value = [value]
    return value if depth <= 900 else f"@nested-{depth}@"


def json_text(value: Any, escaped: bool = True) -> bytes:
    """JSON with what `json.dumps` refuses: very long numbers, very deep lists, half surrogate pairs."""
    text = json.dumps(value, ensure_ascii=escaped).replace(f'"{_LONG_NUMBER}"', "9" * 5000)
    for depth in (20_000, 100_000):
        text = text.replace(f'"@nested-{depth}@"', "[" * depth + "]" * depth)
    return text.encode("utf-8", "surrogatepass")


def copy(source: Path, target: Path) -> None:
    """Copies a file or a folder, with parents."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def remove(folder: Path) -> None:
    """Removes a folder in which a case may have changed permissions."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(place, name), 0o755, follow_symlinks=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
