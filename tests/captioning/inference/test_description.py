"""Descriptions in exported captioners: the entries that captioning needs, and refused ones."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.inference.description import (
    JOINS,
    ChangedFile,
    check_description,
    check_digests,
    digests,
)
from tfsparsecap.errors import InputError

COMPLETE = {"join": "words", "special_ids": {"end": 2}}


def test_bytes_of_pieces_are_joined():
    assert JOINS["pieces"](["\u2581a", "<0xC3>", "<0xA4>", "\u2581", "<0xFF>"]) == "a\u00e4 \ufffd"
    assert JOINS["words"](["a", "dog"]) == "a dog"


def test_complete_descriptions_are_accepted():
    check_description(COMPLETE, Path("a.tflite"))
    more = {
        "unknown_id": 3,
        "beam": 3,
        "max_length": 20,
        "image_size": 224,
        "objects": ["cat"],
        "other": [{}],
        "special": None,
    }
    check_description({**COMPLETE, **more}, Path("a.tflite"))
    check_description({**COMPLETE, **dict.fromkeys(more)}, Path("a.tflite"))


@pytest.mark.parametrize("value", [[], {}, "3", 3.0, True, 2**31, -(10**4000)])
@pytest.mark.parametrize("name", ["unknown_id", "beam", "max_length", "image_size", "pad"])
def test_entries_of_other_types_are_refused(name, value):
    entries = {name: value} if name != "pad" else {"special_ids": {"end": 2, "pad": value}}
    with pytest.raises(InputError, match="export the run again") as error:
        check_description({**COMPLETE, **entries}, Path("a.tflite"))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "objects", ["cat", {"cat": 1}, 3, True, [3], ["cat", ""], [["cat"]], ["x" * 5000, 1]]
)
def test_objects_that_are_no_names_are_refused(objects):
    with pytest.raises(
        InputError, match=r"gives the objects .* not a list of names: export the run"
    ) as error:
        check_description({**COMPLETE, "objects": objects}, Path("a.tflite"))
    assert len(str(error.value)) < 200


def test_digests_are_sha256():
    # Examples of FIPS 180-2.
    assert digests(b"abc", None) == {
        "graph_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    two = digests(b"", b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
    assert two["vocabulary_sha256"] == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"


def test_each_part_is_compared():
    path = Path("a.tflite")
    assert check_digests(digests(b"graph", b"words"), b"graph", b"words", path)
    assert check_digests(digests(b"graph", None), b"graph", b"words", path)
    assert not check_digests({"graph_sha256": None}, b"graph", None, path)
    for graph, words, changed in ((b"Graph", b"words", "graph"), (b"graph", b"Words", "vocabulary")):
        with pytest.raises(ChangedFile, match=f"the {changed} of a.tflite was changed after its export"):
            check_digests(digests(b"graph", b"words"), graph, words, path)
