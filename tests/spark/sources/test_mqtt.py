from __future__ import annotations

import shutil
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streams
from brokers import address, at, broker, certificates, listener, publish, wait_until
from builders import SMALL, write_scenario
from nova import optimizer
from nova.model.errors import InvalidInput, NovaError
from nova.scenario import load
from nova.spark.job.run import Run, Settings
from nova.spark.realtime.run import RealtimeRun
from nova.spark.sources import mqtt
from nova.spark.sources.mqtt import Broker, Publisher, Spool, Subscriber, read_spool

START_MS = 1_700_000_000_000


def test_addresses() -> None:
    assert Broker.parse("mqtt://h/a/b", "x") == Broker("h", 1883, "a/b")
    assert Broker.parse("mqtt://u:p@h:99/t/#", "x") == Broker("h", 99, "t/#", "u", "p")
    told = Broker.parse("mqtts://h/t?ca=/a.pem&cert=c&key=k", "x", {"user": "u", "password": "${P}"})
    assert told == Broker("h", 8883, "t", "u", "${P}", tls=True, ca="/a.pem", cert="c", key="k")
    assert Broker.parse("mqtt://u:${file:/run/p@ss}@h/t", "x").password == "${file:/run/p@ss}"
    assert Broker.parse("mqtt://u:p%40ss@h/t", "x").password == "p@ss"
    assert "secret" not in repr(Broker.parse("mqtt://u:secret@h/t", "x"))
    for wrong in ("h:1883", "mqtt://h", "mqtt://u:secret@h:port/t"):
        with pytest.raises(InvalidInput, match="looks like") as error:
            Broker.parse(wrong, "x")
        assert "secret" not in str(error.value)


def test_tls_and_a_password_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    monkeypatch.setenv("NOVA_TEST_PASSWORD", "secret")
    tls = certificates(tmp_path / "tls")
    with broker(tls) as port:
        at = f"mqtts://nova:${{NOVA_TEST_PASSWORD}}@127.0.0.1:{port}/t?ca={tls}/ca.pem"
        subscriber = Subscriber(Broker.parse(at, "x"), Spool(tmp_path / "spool"), "reader", None)
        publisher = Publisher(Broker.parse(f"{at}&cert={tls}/client.pem&key={tls}/client.key", "x"), "writer")
        publisher.publish("t", "hello")
        publisher.close()
        wait_until(lambda: subscriber.spool.end == 1, 20)
        subscriber.close()
        with pytest.raises(NovaError, match="no MQTT broker"):  # nobody vouches for its certificate
            Publisher(Broker.parse(f"mqtts://nova@127.0.0.1:{port}/t", "x"), "stranger")
    monkeypatch.delenv("NOVA_TEST_PASSWORD")
    with pytest.raises(InvalidInput, match="no such environment variable"):
        Broker.parse(at, "x").client("c", persistent=False)


def test_what_is_wrong_with_certificates_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="field key: a key needs the certificate"):
        Broker.parse("mqtts://h/t?key=k.pem", "x")
    meant = Broker.parse("mqtts://h/t?ca=ca.pem", "x", {"cert": "/a/c.pem"}, tmp_path)
    assert (meant.ca, meant.cert, meant.key) == (f"{tmp_path}/ca.pem", "/a/c.pem", None)
    with pytest.raises(NovaError, match=r"no such file: .*/ca\.pem \(`ca`\)"):
        meant.client("c", persistent=False)


def test_a_broker_that_wants_a_certificate_is_told(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    tls = certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem", tls / "server.key")
    context.load_verify_locations(tls / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def turn_away() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError):
                        context.wrap_socket(connection, server_side=True).close()

        threading.Thread(target=turn_away, daemon=True).start()
        with pytest.raises(NovaError, match=r"does not let us in .*does it want a certificate"):
            Publisher(Broker.parse(f"mqtts://127.0.0.1:{server.getsockname()[1]}/t?ca={tls}/ca.pem", "x"), "w")


def test_the_spool_keeps_each_message_once_and_survives(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.append([("a", True, "t", "1"), ("b", True, "t", "2"), ("a", True, "t", "1")]) == 2
    assert spool.append([("b", True, "t", "2"), ("b", False, "t", "2")]) == 1  # the last is no repetition
    (tmp_path / ".000000000000003").write_text("half a mess")
    again = Spool(tmp_path)
    assert again.end == 3
    assert again.append([("a", True, "t", "1")]) == 0
    assert [m[0] for m in read_spool(tmp_path, 0, 3)] == ["a", "b", "b"]
    assert [m[0] for m in read_spool(tmp_path, 1, 2)] == ["b"]


def test_old_segments_go_but_their_ids_stay(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for i in range(70):
        spool.append([(f"m{i}", True, "t", str(i))])
    spool.drop_before(68)
    assert len(spool.segments()) == 2
    again = Spool(tmp_path)
    assert again.end == 70
    assert again.append([("m3", True, "t", "3")]) == 0


def test_what_was_not_acknowledged_comes_again(tmp_path: Path) -> None:
    """A subscriber that dies before it has spooled gets its messages again; one that has spooled leaves them out."""
    with broker() as port:
        first = Subscriber(at(port, "t"), Spool(tmp_path), "reader", "n")
        wait_until(first.client.is_connected)
        publish(port, "t", [{"n": i} for i in range(5)])
        wait_until(lambda: first.spool.end == 5)
        first.close()
        publish(port, "t", [{"n": i} for i in range(3, 9)])  # while nobody is there, some of them again
        second = Subscriber(at(port, "t"), Spool(tmp_path), "reader", "n")
        wait_until(lambda: second.spool.end == 9)
        second.close()
    assert [m[2] for m in read_spool(tmp_path, 0, 9)] == [f'{{"n": {i}}}' for i in range(9)]


@pytest.mark.parametrize(("mode", "every_ms"), [(Run, 0), (RealtimeRun, 1000)])
def test_mqtt_in_and_out_exactly_once(spark: Any, tmp_path: Path, mode: type[Run], every_ms: int) -> None:
    rng = np.random.default_rng(3)
    with broker() as port:
        sides = {}
        for prefix in "ph":
            sides[prefix] = [
                {
                    "m": i,
                    "source_id": f"{prefix}{rng.integers(1, 3)}",
                    "event_time": int(START_MS + rng.integers(0, 3000)),
                    "value": float(i),
                }
                for i in range(40)
            ]
        document = {
            **SMALL,
            "streams": {
                name: {**stream, "input": {"format": "mqtt", "path": address(port, name), "options": {"id": "m"}}}
                for name, stream in SMALL["streams"].items()
            },
        }
        loaded = load(write_scenario(tmp_path / "s", document))
        plan = optimizer.optimize(loaded.problem, loaded.options)
        pairs = {
            (a["value"], b["value"])
            for a in sides["p"]
            for b in sides["h"]
            if a["source_id"][1] == b["source_id"][1] and a["event_time"] // 1000 == b["event_time"] // 1000
        }

        def part(target: str, form: str, until: Any, *messages: list[dict[str, Any]]) -> dict[str, Any]:
            settings = Settings(tmp_path / "run", format=form, target=target, every_ms=every_ms)
            run = mode(spark, loaded, plan, settings)
            run.start()
            waiting = threading.Thread(target=run.wait)
            waiting.start()
            for _ in range(30):  # who publishes does not know when somebody listens, and says it again
                for topic, batch in zip(SMALL["streams"], messages, strict=True):
                    publish(port, topic, batch)
                try:
                    wait_until(until, 5)
                    break
                except AssertionError:
                    continue
            run.stop()
            waiting.join()
            return run.report()

        results = tmp_path / "results"
        part(str(results), "parquet", lambda: list(results.glob("*.parquet")), sides["p"][:20], sides["h"][:20])
        with listener(port, "out") as heard:  # the second half, and the first half once more, goes to another sink
            done = {(r["left_value"], r["right_value"]) for r in streams.read_results(results).to_pylist()}
            part(address(port, "out"), "mqtt", lambda: len(heard) >= len(pairs - done), sides["p"], sides["h"])
        rows = streams.read_results(results).to_pylist() + heard
        assert len({message["id"] for message in heard}) == len(heard)
    found = [(row["left_value"], row["right_value"]) for row in rows]
    assert len(found) == len(set(found)) == len(pairs)
    assert set(found) == pairs


def test_a_batch_takes_in_a_bounded_number_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has piled up in the spool is worked off in bites, in order, without a gap."""
    monkeypatch.setattr(mqtt, "MOST_ROWS", 100)
    with broker() as port:
        reader = mqtt.MqttReader({"address": address(port, "t"), "spool": str(tmp_path), "client": "bounded"})
        spool = reader._spooled()
        spool.append([(str(i), True, "t", str(i)) for i in range(250)])
        at, seen = reader.initialOffset(), []
        for _ in range(3):
            end = reader.latestOffset(at, None)
            parts = reader.partitions(at, end)
            seen += [text for part in parts for batch in reader.read(part) for text in batch["payload"].to_pylist()]
            assert end["message"] - at["message"] <= 100
            at = end
        reader.stop()
    assert seen == [str(i) for i in range(250)]
