"""Links: bytes arrive whole, in order, not before their time; ends are passed on; one slow receiver stops nobody."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from nova_lab.cluster.relay import LOCAL, Link, relays

DELAY_S = 0.05


@pytest.fixture
def receiver():
    """A listening socket."""
    with socket.create_server((LOCAL, 0)) as server:
        server.settimeout(20)
        yield server


def port(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def read(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (more := connection.recv(2**16)):
        got += more
    return got


def test_nothing_arrives_before_its_time_and_all_in_order(receiver: socket.socket) -> None:
    with relays([Link(port(receiver), DELAY_S)]) as (near,), socket.create_connection((LOCAL, near)) as sender:
        connection = receiver.accept()[0]
        connection.settimeout(20)
        took = []
        for i in range(20):
            began = time.monotonic()
            sender.sendall(i.to_bytes(4, "big"))
            assert read(connection, 4) == i.to_bytes(4, "big")
            took.append(time.monotonic() - began)
        assert min(took) >= DELAY_S


def test_what_is_sent_meanwhile_does_not_queue(receiver: socket.socket) -> None:
    """A delay is not a rate: many megabytes are on their way at once, and come out as they went in."""
    body = bytes(range(256)) * 2**15
    with relays([Link(port(receiver), DELAY_S)]) as (near,), socket.create_connection((LOCAL, near)) as sender:
        connection = receiver.accept()[0]
        connection.settimeout(20)
        threading.Thread(target=sender.sendall, args=(body,)).start()
        assert read(connection, len(body)) == body


def test_the_senders_end_comes_after_its_last_byte(receiver: socket.socket) -> None:
    with relays([Link(port(receiver), DELAY_S)]) as (near,):
        with socket.create_connection((LOCAL, near)) as sender:
            sender.sendall(b"last")
        connection = receiver.accept()[0]
        connection.settimeout(20)
        assert read(connection, 100) == b"last"


def test_a_receiver_that_goes_away_cuts_the_sender_off(receiver: socket.socket) -> None:
    with relays([Link(port(receiver), 0.0)]) as (near,), socket.create_connection((LOCAL, near)) as sender:
        receiver.accept()[0].close()
        sender.settimeout(20)
        assert sender.recv(1) == b""


def test_nobody_at_the_far_end_cuts_the_sender_off() -> None:
    with socket.create_server((LOCAL, 0)) as gone:
        nowhere = port(gone)
    with relays([Link(nowhere, 0.0)]) as (near,), socket.create_connection((LOCAL, near)) as sender:
        sender.settimeout(20)
        assert sender.recv(1) == b""


def test_a_receiver_that_does_not_read_stops_neither_sender_nor_other_links(receiver: socket.socket) -> None:
    with socket.create_server((LOCAL, 0)) as other:
        other.settimeout(20)
        with (
            relays([Link(port(receiver), 0.0), Link(port(other), 0.0)]) as (slow, quick),
            socket.create_connection((LOCAL, slow)) as stuck,
            socket.create_connection((LOCAL, quick)) as sender,
        ):
            stuck.settimeout(20)
            sleeper = receiver.accept()[0]  # and never reads
            stuck.sendall(bytes(2**25))  # more than all buffers of the way
            sender.sendall(b"through")
            connection = other.accept()[0]
            connection.settimeout(20)
            assert read(connection, 7) == b"through"
            sleeper.close()
