from __future__ import annotations

import socket
from pathlib import Path

import pytest

from brokers import address, broker, wait_until
from nova.model.errors import InvalidInput, NovaError
from nova.spark.sites.exchange import BrokerExchange, Channel, Exchange, Inbox, Part, open_exchange

CHANNEL = Channel("climate", "left", "edge 1", "fog/2")


def part(folder: Path, name: str, content: bytes) -> Part:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return CHANNEL, name, folder / name


def contents(folder: Path) -> dict[str, bytes]:
    return {file.stem: file.read_bytes() for file in folder.glob("[!.]*.parquet")}


def test_folders_hand_over_each_part_once(tmp_path: Path) -> None:
    sender, receiver = (open_exchange(str(tmp_path / "x"), tmp_path / site) for site in ("a", "b"))
    inbox = receiver.listen(CHANNEL)
    assert inbox.relative_to(tmp_path / "x").parts == ("climate", "left", "fog%2F2", "edge%201")
    for _ in range(2):  # the same batch again, after a crash
        sender.send([part(tmp_path / "out", "00000000-000", b"one"), part(tmp_path / "out", "00000000-001", b"two")])
    assert contents(inbox) == {"00000000-000": b"one", "00000000-001": b"two"}
    assert not receiver.complete(CHANNEL)
    sender.finish([(CHANNEL, 2)])
    assert receiver.complete(CHANNEL)


def test_an_inbox_knows_what_it_has_had(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "in")
    for name in ("00000000-000", "00000000-001", "00000000-000", "00000001-000"):
        inbox.take(name, name.encode())
    for file in inbox.folder.iterdir():
        file.unlink()  # Spark has worked it off
    again = Inbox(tmp_path / "in")
    again.take("00000001-000", b"again")
    again.take("00000000-001", b"much too late")
    assert (again.total, contents(again.folder)) == (3, {})
    again.take("00000001-001", b"new")
    assert (again.total, contents(again.folder)) == (4, {"00000001-001": b"new"})


def test_a_broker_keeps_parts_for_a_site_that_is_away(tmp_path: Path) -> None:
    with broker() as port:

        def site(name: str) -> Exchange:
            return open_exchange(address(port, "sites/x"), tmp_path / name)

        receiver, sender = site("b"), site("a")
        inbox = receiver.listen(CHANNEL)
        sender.send([part(tmp_path / "out", "00000000-000", b"\x00one")])
        wait_until(lambda: contents(inbox) == {"00000000-000": b"\x00one"}, 20)
        receiver.close()
        sender.send([part(tmp_path / "out", "00000000-000", b"\x00one"), part(tmp_path / "out", "00000001-000", b"2")])
        sender.finish([(CHANNEL, 2)])
        sender.close()
        again = site("b")
        again.listen(CHANNEL)
        wait_until(lambda: again.complete(CHANNEL), 20)
        assert contents(inbox) == {"00000000-000": b"\x00one", "00000001-000": b"2"}
        later = site("c")  # somebody who was not there at all: the sender can tell
        assert not later.complete(Channel("climate", "left", "edge 1", "nobody"))
        again.close()


def test_a_broken_connection_is_mended(tmp_path: Path) -> None:
    with broker() as port:
        receiver, sender = (open_exchange(address(port, "x"), tmp_path / name) for name in ("b", "a"))
        inbox = receiver.listen(CHANNEL)
        assert isinstance(sender, BrokerExchange)
        for batch in range(5):
            sender.send([part(tmp_path / "out", f"{batch:08d}-000", b"x" * 100_000)])
            link = sender.client.socket()
            assert link is not None
            link.shutdown(socket.SHUT_RDWR)  # as when a cable is pulled; the next batch comes at once
        wait_until(lambda: len(contents(inbox)) == 5, 30)
        sender.finish([(CHANNEL, 5)])
        wait_until(lambda: receiver.complete(CHANNEL), 20)
        sender.close()
        receiver.close()


def test_what_cannot_be_reached_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="an MQTT address"):
        open_exchange("mqtt://", tmp_path)
    with pytest.raises(NovaError, match=r"no MQTT broker at 127\.0\.0\.1:1"):
        open_exchange("mqtt://127.0.0.1:1/x", tmp_path).listen(CHANNEL)
    monkeypatch.setattr("nova.spark.sites.exchange.WAIT_S", 0.3)
    with broker() as port:
        sender = open_exchange(address(port, "x"), tmp_path)
        assert isinstance(sender, BrokerExchange)
        with pytest.raises(NovaError, match="nobody listens yet at fog/2"):
            sender.send([part(tmp_path / "out", "00000000-000", b"one")])
        sender.close()


def test_what_no_site_sends_is_left_alone(tmp_path: Path) -> None:
    """A stray message under a site's topics becomes no path, counts for nothing and stops nothing."""
    inbox = Inbox(tmp_path / "in" / "box")
    for name in ("..", "x", "", "1", "00000001-x", "9" * 5000 + "-0", "1-0/../../x", "²-0", "1-0\n"):
        inbox.take(name, b"x")
    for told in (b"", b"-1", b"x", b"9" * 5000, b"\xff", b"1.5"):
        inbox.finish(told)
    assert (inbox.total, inbox.finished) == (0, None)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    inbox.take("00000001-000", b"x")
    inbox.finish(b"1")
    again = Inbox(tmp_path / "in" / "box")
    assert (again.total, again.batch, again.names, again.finished) == (1, 1, {"00000001-000"}, 1)
