"""What captioning needs of a description."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.inference.description import JOINS, check_description
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
    given = {name: value} if name != "pad" else {"special_ids": {"end": 2, "pad": value}}
    with pytest.raises(InputError, match="export the run again") as error:
        check_description({**COMPLETE, **given}, Path("a.tflite"))
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
