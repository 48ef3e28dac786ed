"""Digests in the description of an exported file."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.inference.digests import ChangedFile, check_digests, digests


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
