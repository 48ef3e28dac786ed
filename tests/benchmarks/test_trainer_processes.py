"""Processes that train one run after another: the bytes that they send, and their addresses."""

import contextlib
import os
import socket

import pytest

from benchmarks.trainer_processes import free_addresses, sent_bytes


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the counters are those of Linux")
def test_sent_bytes_are_counted():
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(server.getsockname()))
        connected = stack.enter_context(server.accept()[0])
        before = sent_bytes()
        client.sendall(bytes(100_000))
        unread_bytes = 100_000
        while unread_bytes:
            unread_bytes -= len(connected.recv(unread_bytes))
        # The system may acknowledge a little later, and other threads may have connections of their own.
        assert before is not None and 100_000 <= sent_bytes() - before < 200_000


def test_addresses_are_different_and_free():
    addresses = free_addresses(3)
    assert len(set(addresses)) == 3
    for address in addresses:
        host, port = address.split(":")
        socket.create_server((host, int(port))).close()
