"""A stack machine that reads the pickles in PyTorch checkpoints without calling anything.

A pickle is a program for a stack machine, and Python's machine calls any function that the pickle names. This
machine implements only the instructions that state dicts need, on inert values.
"""

import pickletools
from dataclasses import dataclass
from typing import Any, BinaryIO

# NumPy types of the storages of weights; a bfloat16 is the upper half of a float32.
_TYPES = {"Float": "f4", "Double": "f8", "Half": "f2", "BFloat16": "u2", "Long": "i8", "Int": "i4"}
_TYPES |= {"Short": "i2", "Char": "i1", "Byte": "u1", "Bool": "u1"}
STORAGE_TYPES = {f"torch.{kind}Storage": dtype for kind, dtype in _TYPES.items()}
# Other names that a pickle of weights may contain. Names are compared, never looked up.
_NAMES = {"collections.OrderedDict", "torch.Size", "torch.serialization._get_layout", "torch.sparse_coo"}
_NAMES |= {f"torch._utils._rebuild_{kind}" for kind in ("tensor_v2", "parameter", "sparse_tensor")}
# Pickle instructions that push their argument, instructions that push a constant, and the number of values
# that others take from the stack (None: all since the last mark).
_PUSH_ARGUMENT = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES"}
_PUSH_ARGUMENT |= {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_PUSH_CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_POP_COUNTS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "TUPLE": None, "APPEND": 1, "APPENDS": None}
_POP_COUNTS |= {"SETITEM": 2, "SETITEMS": None, "STACK_GLOBAL": 2, "BINPERSID": 1, "REDUCE": 2, "BUILD": 1}

# Far above any network for a phone; they keep a malicious file from exhausting memory or time.
_MAX_AXES, _MAX_INSTRUCTIONS = 32, 2_000_000
SAVE_STATE_DICT = "save model.state_dict() alone with torch.save"


class RejectedFile(Exception):
    """Its message continues one that starts with the file name. (A ValueError means a damaged file.)"""


def printable(text: str) -> str:
    """Makes text from the file safe for messages: short, and without terminal control characters."""
    return text[:200].encode("unicode_escape").decode("ascii") + ("..." if len(text) > 200 else "")


class Name(str):
    """A name in the pickle, which is never resolved."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A range of elements in the archive."""

    kind: str
    key: str
    length: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage; offset and stride count elements."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse COO tensor: indices int64 [axes, entries], values [entries, ...]."""

    indices: Tensor
    values: Tensor
    size: tuple[int, ...]


TENSORS = (Tensor, SparseTensor)


class PickleMachine:
    """Implements only the pickle instructions that weights need."""

    def __init__(self):
        #: Key -> storage that a tensor refers to.
        self.storages: dict[str, Storage] = {}

    def run(self, program: bytes | BinaryIO) -> Any:
        """Returns the object that a pickle describes; a file is read up to the end of the pickle."""
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        for count, (instruction, argument, _) in enumerate(pickletools.genops(program)):
            if count == _MAX_INSTRUCTIONS:
                raise RejectedFile(f"describes its tensors in more than {count:,} steps: {SAVE_STATE_DICT}")
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
                storage = _storage(items[0])
                if self.storages.setdefault(storage.key, storage) != storage:
                    raise ValueError(f"storage {printable(storage.key)} has two lengths or types")
                self.stack.append(storage)
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


def _foreign(wish: str) -> RejectedFile:
    wish += ", unlike any checkpoint of weights; nothing was executed"
    return RejectedFile(f"tries to {wish}: if the file is yours, {SAVE_STATE_DICT}")


def _set_items(target: dict, items: list) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Hashing other keys can take forever or overflow the C stack.
        if not isinstance(key, str) and not (isinstance(key, int) and abs(key) < 1 << 31):
            raise _foreign("use keys that are neither text nor small numbers")
        target[key] = value


def _global(path: list) -> Name:
    name = ".".join(part if isinstance(part, str) else "?" for part in path)
    if name not in _NAMES and name not in STORAGE_TYPES:
        raise _foreign(f"call {printable(name)}")
    return Name(name)


def _storage(reference: Any) -> Storage:
    match reference:
        # Before PyTorch 1.6, a sixth element described a view, which no file uses.
        case ("storage", Name() as kind, str() as key, str(), int() as length, *views) if (
            kind in STORAGE_TYPES and views in ([], [None])
        ):
            return Storage(kind, key, length)
    raise ValueError("the pickle refers to something that is not a storage")


def _call(function: Any, arguments: Any) -> Any:
    """Returns the inert value that represents the result of a known call."""
    if not isinstance(function, Name) or not isinstance(arguments, tuple):
        raise ValueError("the pickle calls something that is not a function")
    match (function.removeprefix("torch._utils._rebuild_"), *arguments[:8]):
        case ("collections.OrderedDict",):
            return {}
        case ("torch.Size", tuple() as size):
            return size
        case ("torch.serialization._get_layout", str() as layout):
            return Name(layout)
        case ("parameter", Tensor() | SparseTensor() as data, _, _):
            return data
        case ("tensor_v2", Storage() as storage, offset, size, stride, _, _, *lazy) if not any(lazy):
            _check_counts((offset,), size, stride)
            return Tensor(storage, offset, size, stride)
        case ("sparse_tensor", "torch.sparse_coo", (Tensor() as indices, Tensor() as values, size, *_)):
            _check_counts(size)
            return SparseTensor(indices, values, size)
        case ("sparse_tensor", Name() as layout, _) if layout != "torch.sparse_coo":
            raise RejectedFile(
                f"contains the unsupported layout {printable(layout)}: save the tensor after to_dense()"
            )
    raise RejectedFile(f"calls {printable(function)} in an unknown way: {SAVE_STATE_DICT}")


def _check_counts(*groups: Any) -> None:
    for group in groups:
        fits = isinstance(group, tuple) and len(group) <= _MAX_AXES
        if not fits or not all(type(count) is int and 0 <= count < 1 << 63 for count in group):
            raise ValueError("a tensor has a size, stride or offset that is negative or absurd")
