"""The pickles of PyTorch checkpoints: instructions that weights need, all others, and damaged ones."""

import functools
import os

import numpy as np
import pytest

from tfsparsecap.errors import InputError

from .torch_files import PLAIN, SIX, call, mapping, name, number, numbers, read, storage, tensor, text, weight

TOUCH = text("touch canary")


def test_pickle_protocol_4_is_read(tmp_path):
    """Frames, short text, STACK_GLOBAL, MEMOIZE; module versions in the state dict."""
    short = b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93\x94"
    program = (
        b"\x80\x04\x95"
        + bytes(8)
        + short
        + b")R\x94"
        + b"("
        + PLAIN[2:]
        + mapping({"_metadata": PLAIN})
        + b"b"
    )
    assert list(read(tmp_path, program)) == ["w"]


def test_a_parameter_is_read_as_its_tensor(tmp_path):
    inner = tensor(storage("0", 6), (6,), (1,))
    hooks = call("collections.OrderedDict")
    program = mapping({"w": call("torch._utils._rebuild_parameter", inner, b"\x88", hooks)})
    np.testing.assert_array_equal(read(tmp_path, program)["w"], SIX)


@pytest.mark.parametrize(
    ("program", "wish"),
    [
        (name("os.system") + TOUCH + b"\x85R", r"call os\.system"),
        (text("os") + text("system") + b"\x93" + TOUCH + b"\x85R", r"call os\.system"),
        (mapping({"model": PLAIN, "x": name("builtins.eval") + TOUCH + b"\x85R"}), r"call builtins\.eval"),
        (b"(" + TOUCH + b"ios\nsystem\n", r"call os\.system"),
        (b"(" + name("posix.system") + TOUCH + b"o", r"call posix\.system"),
        (name("torch.hub.load") + TOUCH + b"\x85R", r"call torch\.hub\.load"),
        (name("collections.OrderedDict") + b")\x81", "use the pickle instruction NEWOBJ"),
        (b"(" + name("collections.OrderedDict") + b"o", "use the pickle instruction OBJ"),
        (b"\x82\x01", "use the pickle instruction EXT1"),
        (b"Pcanary\n", "use the pickle instruction PERSID"),
        (PLAIN + mapping({"__class__": TOUCH}) + b"b", "give an object attributes"),
        (name("torch.Size") + mapping({"_metadata": PLAIN, "x": b"N"}) + b"b", "give an object attributes"),
        (number(1) + b"0", "use the pickle instruction POP"),
        (b"}" + numbers([1]) + b"Ns", "use keys that are neither text nor small numbers"),
        (b"}" + number(2**61) + b"Ns", "use keys that are neither text nor small numbers"),
        (name("os.\x1b[2J"), r"call os\.\\x1b\[2J"),
        (text("os") + number(3) + b"\x93", r"call os\.\?"),
    ],
)
def test_instructions_that_weights_do_not_need_are_rejected(tmp_path, monkeypatch, program, wish):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=f"tries to {wish}, unlike any checkpoint of weights; nothing was executed"
    ):
        read(tmp_path, program)
    assert sorted(os.listdir(tmp_path)) == ["a.pth"]


@pytest.mark.parametrize(
    "program",
    [
        call("torch.serialization._get_layout", text("os.system")) + TOUCH + b"\x85R",
        call("collections.OrderedDict", numbers([1, 2])),
        call("torch.FloatStorage", number(3)),
        call("torch.Size", text("12")),
        mapping({"w": tensor(storage("0", 6), (6,), (1,), 0, mapping({"neg": b"\x88"}))}),
    ],
)
def test_unusual_calls_of_known_names_are_rejected(tmp_path, monkeypatch, program):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="in an unknown way"):
        read(tmp_path, program)
    assert sorted(os.listdir(tmp_path)) == ["a.pth"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (weight((2, 3), (3, 1), 1), r"tensor core\.w reaches beyond its storage"),
        (weight((7,), (1,)), r"core\.w reaches beyond"),
        (weight((7,), (1,), length=7), r"core\.w reaches beyond"),
        (weight((2,), (2**62,)), r"core\.w reaches beyond"),
        (weight((1,), (1,), 2**62), r"core\.w reaches beyond"),
        (weight((6,), (1,), length=-6), r"core\.w reaches beyond"),
        (weight((6,), (1,), key="1"), "its part data/1 is missing"),
        (weight((-6,), (1,)), "negative or absurd"),
        (weight((6,), (-1,), 5), "negative or absurd"),
        (weight((6,), (1,), -1), "negative or absurd"),
        (weight((2**63,), (0,)), "negative or absurd"),
        (weight((6,), (2**64,)), "negative or absurd"),
        (weight((1,) * 33, (1,) * 33), "negative or absurd"),
        (weight((6,), (1, 1)), "different numbers of sizes and strides"),
        (mapping({"w": number(3) + b"Q"}), "refers to something that is not a storage"),
        (text("a") + b"R", "damaged"),
        (text("a") + b")R", "calls something that is not a function"),
        (b"R", "lacks its arguments"),
        (b"u", "lacks its arguments"),
        (b"\x94", "lacks its target"),
        (b"h\x05", "has no value 5"),
        (b"(", "lacks its target"),
        (number(3) + text("a") + text("b") + b"s", "lacks its target"),
        (b"}(" + text("a") + b"u", "damaged"),
        (b"\xff", "damaged"),
        (b"X\xff\xff\xff\xff", "damaged"),
        (b"c\xff\n\n", "damaged"),
        (b"", "damaged"),
    ],
)
def test_damaged_descriptions_are_rejected(tmp_path, program, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, program)


@pytest.mark.parametrize(
    "extra",
    [
        b"N" + b"\x85" * 100_000,
        b"]" * 100_000 + b"a" * 99_999,
        b"]q\x07h\x07a",
        b"}q\x07" + text("x") + b"h\x07s",
        # Two references to the next level at each of 60 levels.
        functools.reduce(
            lambda inner, i: (
                b"}(" + text("a") + inner + b"q" + bytes([i]) + text("b") + b"h" + bytes([i]) + b"u"
            ),
            range(60),
            b"}",
        ),
    ],
)
def test_deeply_nested_and_recursive_values_are_read_in_time(tmp_path, extra):
    assert list(read(tmp_path, mapping({"model": PLAIN, "extra": extra}))) == ["w"]


def test_a_pickle_with_too_many_instructions_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("tfsparsecap.core.weight_files.pickle_machine._MAX_INSTRUCTIONS", 1000)
    with pytest.raises(InputError, match="more than 1,000 steps"):
        read(tmp_path, b"N" * 2000)
