"""A real Kafka (one process in KRaft mode, from the jars that `script/kafka` has fetched), with the workload's sensors
and a listener as processes of their own: latencies are stamped outside Spark and outside the run's process."""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from nova.model.errors import NovaError
from nova.spark.job.meter import Latencies
from nova.spark.session import find_java
from nova.spark.sources.kafka import cache

CLUSTER = "bm92YS10ZXN0LWNsdXN0cQ"
START_S = 120.0
"""Longest wait for the broker."""
TICK_S = 0.001
"""Records that fall due within this time are sent together."""


def lacking() -> str | None:
    """What is missing for a broker of our own, and how to get it; None where nothing is."""
    if find_spec("confluent_kafka") is None:
        return "needs: pip install 'nova-placement[kafka]'"
    if not list((cache() / "broker").glob("kafka_2.13*.jar")):
        return f"needs Kafka's jars in {cache()}: script/kafka fetches them from Maven Central"
    return None


@contextmanager
def broker(folder: Path, extra: Sequence[str] = ()) -> Iterator[str]:
    """Run a broker; yields its address `127.0.0.1:port`. `extra`: further lines of its configuration."""
    why = lacking()
    if why is not None:
        raise NovaError(f"Kafka {why}")
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
        subprocess.run(format_, stdout=log, stderr=log, check=True, timeout=START_S)
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

    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise NovaError(f"the broker ended: {log.read_text()[-2000:]}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=10)
                return
        except Exception:  # not up yet
            time.sleep(0.2)
    raise NovaError(f"the broker did not start: {log.read_text()[-2000:]}")


def create_topics(server: str, topics: Sequence[str]) -> None:
    """With as many partitions as the broker gives by default."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": server})
    for made in client.create_topics([NewTopic(name) for name in topics]).values():
        made.result(START_S)


@contextmanager
def sensors(server: str, topic: str, ids: Sequence[str], rate: float, keys: int, seed: int) -> Iterator[None]:
    """Sensors that send `rate` records/s each, in a process of their own; an event's time is when it was due."""
    process = multiprocessing.get_context("spawn").Process(
        target=_send, args=(server, topic, list(ids), rate, keys, seed), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _send(server: str, topic: str, ids: Sequence[str], rate: float, keys: int, seed: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server, "acks": 1})
    draw = np.random.default_rng(seed)
    began, sent = time.time(), 0
    while True:
        due = int((time.time() - began) * rate)
        for number, key in zip(range(sent, due), draw.integers(keys, size=due - sent).tolist(), strict=True):
            event_ms = (began + number / rate) * 1000
            for name in ids:
                record = (
                    f'{{"source_id": "{name}", "event_time": {event_ms:.3f}, "value": {number % 97}.5, "key": {key}}}'
                )
                producer.produce(topic, record)
        sent = due
        producer.poll(0)
        time.sleep(TICK_S)


class Listener:
    """Reads the results of a topic in a process of its own, and counts how long each took: from the event time of its
    later tuple to the moment at which it was here."""

    def __init__(self, server: str, topic: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_listen, args=(server, topic, theirs), daemon=True)
        self._process.start()

    def taken(self) -> Latencies:
        """Those (ms) since this was last asked."""
        self._pipe.send(None)
        counts: Counter[float] = self._pipe.recv()
        return Latencies(counts)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def _listen(server: str, topic: str, pipe: Connection) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": "listener", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5}
    )
    consumer.subscribe([topic])
    counts: Counter[float] = Counter()
    while True:
        first = consumer.poll(0.01)
        messages = [] if first is None else [first, *consumer.consume(1000, 0.0)]
        now_ms = time.time() * 1000
        for message in messages:
            if message.error() is None:
                counts[round(now_ms - _event_ms(json.loads(message.value() or b"")), 1)] += 1
        if pipe.poll():
            pipe.recv()
            pipe.send(counts)
            counts = Counter()


def _event_ms(result: dict[str, Any]) -> float:
    return max(datetime.fromisoformat(result[f"{side}_time"]).timestamp() for side in ("left", "right")) * 1000
