"""Messages between the two processes."""

import io

import numpy as np
import pytest

from tfsparsecap.inference import runtime_child


def test_messages_arrive_as_they_were_sent():
    stream = io.BytesIO()
    arrays = {
        "image": np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)[:, :, ::2],
        "mask": np.array([[True, False]]),
        "none": np.zeros((0, 3), np.float32),
        "one": np.array(2.5),
    }
    runtime_child.send(stream, {"seconds": 0.5}, arrays)
    runtime_child.send(stream, {"error": "\u00e9"})
    stream.seek(0)
    header, found = runtime_child.receive(stream)
    assert header == {"seconds": 0.5} and list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
    assert runtime_child.receive(stream) == ({"error": "\u00e9"}, {})
    with pytest.raises(EOFError):
        runtime_child.receive(stream)


def test_texts_and_impossible_arrays_are_refused():
    with pytest.raises(ValueError, match="words does not consist of numbers"):
        runtime_child.send(io.BytesIO(), {}, {"words": np.array(["a"])})
    for listed in (
        '{"arrays": [["a", "|O", [1]]]}',
        '{"arrays": [["a", "|u1", [-1]]]}',
        '{"arrays": [["a", "<f8", [1000000, 1000000]]]}',
        '{"arrays": [["a", "<f8"]]}',
        "[",
    ):
        with pytest.raises(ValueError):
            runtime_child.receive(io.BytesIO(len(listed).to_bytes(8, "little") + listed.encode()))
    with pytest.raises(ValueError, match="header"):
        runtime_child.receive(io.BytesIO(bytes([255]) * 8))
