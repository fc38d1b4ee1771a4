"""A real Kafka for tests, and its records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nova_lab.bench.kafka import broker, lacking


def require() -> None:
    """Skip where the jars are missing, and say how to get them."""
    why = lacking()
    if why is not None:
        pytest.skip(why)


@contextmanager
def kafka(folder: Path, extra: Sequence[str] = ()) -> Iterator[str]:
    """Run a broker; yields its address `127.0.0.1:port`. `extra`: further lines of its configuration."""
    require()
    with broker(folder, extra) as server:
        yield server


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
