"""A real Kafka for tests: one process in KRaft mode, from the jars that `script/kafka` has fetched."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CLUSTER = "bm92YS10ZXN0LWNsdXN0cQ"


def require() -> None:
    """Skip where the jars are missing, and say how to get them."""
    pytest.importorskip("confluent_kafka")
    from nova.spark.sources.kafka import cache

    for folder, jar in (("broker", "kafka_2.13"), ("connector", "spark-sql-kafka")):
        if not list((cache() / folder).glob(f"{jar}*.jar")):
            pytest.skip(f"needs Kafka's jars ({folder}) in {cache()}: script/kafka fetches them from Maven Central")


@contextmanager
def kafka(folder: Path, extra: Sequence[str] = ()) -> Iterator[str]:
    """Run a broker; yields its address `127.0.0.1:port`. `extra`: further lines of its configuration."""
    require()
    from nova.spark.session import find_java
    from nova.spark.sources.kafka import cache

    folder.mkdir(parents=True, exist_ok=True)
    port, controller = _free_port(), _free_port()
    config = folder / "server.properties"
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={folder / 'log'}",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
        "num.partitions=2",
        *extra,
    ]
    config.write_text("\n".join(lines) + "\n")
    java = [find_java()[0], "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{cache() / 'broker'}/*"]
    with (folder / "broker.log").open("w") as log:
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)]
        subprocess.run(format_, stdout=log, stderr=log, check=True, timeout=120)
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "broker.log")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    from confluent_kafka.admin import AdminClient

    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, f"the broker ended: {log.read_text()[-2000:]}"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10)
                return
        except Exception:  # not up yet
            time.sleep(0.2)
    raise AssertionError(f"the broker did not start: {log.read_text()[-2000:]}")


def produce(server: str, topic: str, records: Sequence[Any], keys: Sequence[str] | None = None) -> None:
    """Write records: texts and bytes as they are, all else as JSON; returns when they are safe."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server})
    for at, record in enumerate(records):
        value = record if isinstance(record, str | bytes) else json.dumps(record)
        producer.produce(topic, value, key=None if keys is None else keys[at])
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(server: str, topic: str, seconds: float = 2.0) -> list[tuple[str, dict[str, Any]]]:
    """Everything that stands in a topic, as (key, JSON); ends when nothing came for a while."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": f"test-{time.monotonic_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found, quiet = [], time.monotonic() + 20
    while time.monotonic() < quiet:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.key().decode(), json.loads(message.value())))
            quiet = time.monotonic() + seconds
    consumer.close()
    return found
