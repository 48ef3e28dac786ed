"""Messages between processes: their size is limited, and nothing but JSON objects is accepted."""

import socket

import pytest

from tfsparsecap.training import connection
from tfsparsecap.training.connection import BadMessage, Connection, text_of


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Connection(ours), theirs
    ours.close()
    theirs.close()


def test_messages_arrive_in_order_however_they_are_split(pair):
    ours, theirs = pair
    theirs.sendall(b'{"a": 1}\n{"b": ')
    assert ours.receive(30) == {"a": 1}
    theirs.sendall(b"[2]}\n")
    theirs.close()
    assert ours.receive(30) == {"b": [2]}
    assert ours.receive(30) is None


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 50_000])
def test_anything_but_a_json_object_is_rejected(pair, line):
    ours, theirs = pair
    theirs.sendall(line[:100_000] + b"\n")
    with pytest.raises(BadMessage, match=r"not (a )?JSON"):
        ours.receive(30)


def test_messages_have_a_limited_size(pair, monkeypatch):
    monkeypatch.setattr(connection, "LARGEST", 1000)
    ours, theirs = pair
    with pytest.raises(BadMessage, match="a message of 1013 bytes"):
        ours.send({"long": "x" * 1000})
    theirs.sendall(b"x" * 2000)
    with pytest.raises(BadMessage, match="more than 1000 bytes without an end of line"):
        ours.receive(30)


def test_a_silent_or_broken_connection_raises(pair):
    ours, theirs = pair
    with pytest.raises(TimeoutError):
        ours.receive(0.05)
    ours.close()
    ours.close()
    assert theirs.recv(10) == b""
    with pytest.raises(OSError, match="descriptor"):
        ours.send({})


def test_texts_of_others_are_short_and_on_one_line():
    assert text_of("a\x1b[31m\nb") == "a [31m b"
    assert text_of({"no": "text"}) == ""
    assert len(text_of("x" * 10_000)) == connection.LONGEST_TEXT
