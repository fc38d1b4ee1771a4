from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokers import address, broker, wait_until
from kafka_broker import kafka
from nova.model.errors import InvalidInput, NovaError
from nova.spark.job.folder import RunFolder
from nova.spark.sites import presence
from nova.spark.sites.exchange import Channel, open_exchange
from nova.spark.sites.presence import Presence

CHANNEL = Channel("climate", "left", "edge 1", "fog/2")


@contextmanager
def a_way(way: str, folder: Path) -> Iterator[str]:
    """The address of an exchange."""
    if way == "folders":
        yield str(folder / "exchange")
    elif way == "mqtt":
        with broker() as port:
            yield address(port, "sites/x")
    else:
        with kafka(folder / "kafka") as server:
            yield f"kafka://{server}/sites/x"


@pytest.mark.parametrize("way", ["folders", "mqtt", "kafka"])
def test_one_process_per_site_and_who_was_given_up_stays_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.0)
    with a_way(way, tmp_path) as at:
        opened = []

        def site(name: str, folder: str) -> Presence:
            exchange = open_exchange(at, tmp_path / f"{folder}-{len(opened)}")
            opened.append(exchange)
            return Presence(exchange.board(), name, tmp_path / folder)

        fog, hq = site("fog/2", "fog"), site("hq", "hq")
        fog.start()
        hq.start()
        with pytest.raises(NovaError, match="belongs to another run folder"):
            site("fog/2", "elsewhere").start()
        wait_until(lambda: fog.beat() or hq.silence_s("fog/2") < 1, 20)  # it is heard of
        again = site("fog/2", "fog")  # the same folder: after a crash, or a copy of it
        again.start()
        with pytest.raises(NovaError, match="took over"):
            wait_until(lambda: fog.beat() is not None, 20)
        hq.give_up("fog/2")
        with pytest.raises(NovaError, match="given up by 'hq'"):
            wait_until(lambda: again.beat() is not None, 20)
        with pytest.raises(NovaError, match="deploy the plan anew"):
            site("fog/2", "fog").start()
        for exchange in opened:
            exchange.close()


@pytest.mark.parametrize("way", ["folders", "mqtt", "kafka"])
def test_of_two_that_start_at_the_same_moment_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Neither has seen the other's claim when it puts up its own."""
    monkeypatch.setattr(presence, "BEAT_S", 0.0)
    with a_way(way, tmp_path) as at:
        opened = [open_exchange(at, tmp_path / name) for name in ("a", "b")]
        two = [Presence(one.board(), "fog", tmp_path / name) for one, name in zip(opened, ("a", "b"), strict=True)]
        monkeypatch.setattr(Presence, "_claim", lambda *_: None)
        for one in two:
            one.start()
        monkeypatch.undo()
        monkeypatch.setattr(presence, "BEAT_S", 0.0)
        told: dict[int, str] = {}

        def look(told: dict[int, str] = told) -> bool:
            for number, one in enumerate(two):
                try:
                    if number not in told:
                        one.beat()
                except NovaError as error:
                    told[number] = str(error)
            return bool(told)

        wait_until(look, 20)
        for _ in range(20):
            look()
            time.sleep(0.02)
        assert len(told) == 1
        assert "another process took over site 'fog'" in next(iter(told.values()))
        for exchange in opened:
            exchange.close()


def test_silence_is_counted_from_the_last_new_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.0)
    at = [100.0]
    monkeypatch.setattr(presence.time, "monotonic", lambda: at[0])
    board = presence.FolderBoard(tmp_path / "board")
    fog, hq = (Presence(board, name, tmp_path / name) for name in ("fog", "hq"))
    assert hq.silence_s("fog") == 0
    at[0] = 130.0
    assert hq.silence_s("fog") == 30  # never heard of, since the start
    fog.start()
    assert hq.silence_s("fog") == 0
    at[0] = 140.0
    assert hq.silence_s("fog") == 10
    fog.beat()
    assert hq.silence_s("fog") == 0


def test_who_looks_late_does_not_take_the_living_for_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may take minutes to start on a busy machine: claims of others have come meanwhile."""
    at = [100.0]
    monkeypatch.setattr(presence.time, "monotonic", lambda: at[0])
    board = presence.FolderBoard(tmp_path / "board")
    fog, hq = (Presence(board, name, tmp_path / name) for name in ("fog", "hq"))
    fog.start()
    at[0] = 190.0
    assert hq.silence_s("fog") == 0
    at[0] = 200.0
    assert hq.silence_s("fog") == 10
    assert hq.silence_s("nobody") == 100


def test_whoever_is_busy_is_heard_of_and_told_when_another_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.05)
    board = presence.FolderBoard(tmp_path / "board")
    fog, hq = (Presence(board, name, tmp_path / name) for name in ("fog", "hq"))
    fog.start()
    fog.keep_up()
    claims: set[str | None] = set()
    wait_until(lambda: claims.add(board.read("claim/fog")) or len(claims) > 3, 20)  # nobody calls beat
    fog.check()
    hq.give_up("fog")
    with pytest.raises(NovaError, match="given up by 'hq'"):
        wait_until(lambda: fog.check() is not None, 20)
    fog.end()


def test_a_notice_that_is_no_file_is_told(tmp_path: Path) -> None:
    """Anybody who sees the folder can put a pipe there: reading it would never end."""
    board = presence.FolderBoard(tmp_path)
    assert board.read("claims/a") is None
    (tmp_path / "claims").mkdir()
    os.mkfifo(tmp_path / "claims" / "a")
    with pytest.raises(InvalidInput, match="claims/a: this is a pipe, not a file"):
        board.read("claims/a")


def test_a_folder_has_one_run(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.lock()
    with pytest.raises(InvalidInput, match="another process runs in this folder"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_kafka_keeps_parts_for_a_site_that_is_away(tmp_path: Path) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        return {file.stem: file.read_bytes() for file in folder.glob("[!.]*.parquet")}

    def part(name: str, content: bytes) -> tuple[Channel, str, Path]:
        (tmp_path / name).write_bytes(content)
        return CHANNEL, name, tmp_path / name

    with kafka(tmp_path / "kafka") as server:
        at = f"kafka://{server}/sites/x"
        sender = open_exchange(at, tmp_path / "a")
        big = b"x" * 3_000_000  # more than Kafka takes unasked
        sender.send([part("00000000-000", b"\x00one"), part("00000000-001", big)])  # nobody listens yet
        receiver = open_exchange(at, tmp_path / "b")
        inbox = receiver.listen(CHANNEL)
        wait_until(lambda: contents(inbox) == {"00000000-000": b"\x00one", "00000000-001": big}, 30)
        receiver.close()
        sender.send([part("00000000-000", b"\x00one")])  # the same again, after a crash
        sender.send([part("00000001-000", b"two")])
        sender.finish([(CHANNEL, 3)])
        sender.close()
        again = open_exchange(at, tmp_path / "b")
        inbox = again.listen(CHANNEL)
        wait_until(lambda: again.complete(CHANNEL), 30)
        assert contents(inbox) == {"00000000-000": b"\x00one", "00000000-001": big, "00000001-000": b"two"}
        again.close()
        third = open_exchange(at, tmp_path / "b")  # what was finished stays so
        third.listen(CHANNEL)
        assert third.complete(CHANNEL)
        third.close()
