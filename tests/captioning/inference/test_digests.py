"""Digests in the description of an exported file."""

from tfsparsecap.captioning.inference.digests import digests


def test_digests_are_sha256():
    # Examples of FIPS 180-2.
    assert digests(b"abc", None) == {
        "graph_sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    }
    two = digests(b"", b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
    assert two["vocabulary_sha256"] == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
