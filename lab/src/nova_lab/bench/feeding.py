"""Feeding: generated tuples as others would bring them, at their pace: files that appear in a folder, records of a
Kafka topic, messages of an MQTT broker. Broker and sender are processes of their own: a run that falls behind does not
slow them down."""

from __future__ import annotations

import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nova.files import appearing
from nova.model.errors import NovaError
from nova.spark.sources.generator import Pattern, Source, generate
from nova.spark.sources.mqtt import Broker, Publisher
from nova_lab.bench import kafka

INPUTS = ("generator", "files", "kafka", "mqtt")
SCHEMA = "source_id STRING, event_time DOUBLE, value DOUBLE, key BIGINT"
CLOSING_MS = 60_000
"""After the end of the streams each source sends one tuple so much later, which joins nothing: windows before it
close."""
START_S = 60.0
"""Longest wait for a broker."""
Send = Callable[[int, pa.Table], None]
"""Gives on the tuples of one stream of one second, which is numbered."""


@dataclass(frozen=True)
class Streams:
    """Streams by name, each with its sources, and how their tuples are drawn."""

    sources: dict[str, list[Source]]
    pattern: Pattern
    seconds: float

    def of_second(self, stream: str, second: int, start_ms: int) -> pa.Table:
        """The tuples of one second of a stream."""
        return generate(self.sources[stream], self.pattern, second * 1000 - 1, (second + 1) * 1000 - 1, start_ms)

    def closing(self, stream: str, start_ms: int) -> pa.Table:
        """One tuple of each source behind the end, with a key that no other stream has."""
        names = [source.id for source in self.sources[stream]]
        late_us = int(1000 * (start_ms + 1000 * self.seconds + CLOSING_MS))
        return pa.table(
            {
                "source_id": names,
                "event_time": pa.array([late_us] * len(names), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                "value": [0.0] * len(names),
                "key": pa.array([-1 - sorted(self.sources).index(stream)] * len(names), pa.int64()),
            }
        )


@dataclass
class Fed:
    """The inputs of a scenario's streams, and who sends to them."""

    inputs: dict[str, dict[str, Any]]
    _process: Any = field(repr=False)
    _heard: Any = field(repr=False)
    """Set when whatever is sent is kept for the run."""

    def begin(self) -> None:
        """Let the sender begin once nothing is lost that it sends: MQTT keeps what somebody has subscribed to."""
        if self._process.pid is None and self._heard.is_set():
            self._process.start()

    @property
    def done(self) -> bool:
        """Whether all was sent."""
        if self._process.exitcode not in (None, 0):
            raise NovaError(f"the sender ended with {self._process.exitcode}")
        ended: bool = self._process.exitcode == 0
        return ended


@contextmanager
def feeding(way: str, folder: Path, streams: Streams) -> Iterator[Fed]:
    """Everything that has to run for streams to come this way (not for `generator`, which a run makes up itself)."""
    folder.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    heard = spawn.Event()
    heard.set()
    with ExitStack() as stack:
        if way == "files":
            for name in streams.sources:
                (folder / name).mkdir()
            form, where = "parquet", str(folder)
        elif way == "kafka":
            server = stack.enter_context(kafka.broker(folder / "kafka"))
            kafka.create_topics(server, list(streams.sources))
            form, where = "kafka", f"kafka://{server}"
        elif way == "mqtt":
            port = _free_port()
            heard.clear()
            serving = spawn.Process(target=_serve_mqtt, args=(port, list(streams.sources), heard), daemon=True)
            serving.start()
            stack.callback(serving.join)
            stack.callback(serving.terminate)
            _wait(port)
            form, where = "mqtt", f"mqtt://nova:x@127.0.0.1:{port}"
        else:
            raise NovaError(f"there is nothing to feed for {way}")
        inputs = {
            name: {"format": form, "path": f"{where}/{name}", "options": {"schema": SCHEMA}} for name in streams.sources
        }
        sender = spawn.Process(target=_feed, args=(way, where, streams), daemon=True)
        yield Fed(inputs, sender, heard)
        if sender.pid is not None:
            sender.terminate()
            sender.join()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait(port: int) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if time.monotonic() > end:
                raise NovaError("the MQTT broker did not start") from None
            time.sleep(0.2)


def _serve_mqtt(port: int, topics: Sequence[str], heard: Any) -> None:
    """A broker that says when all topics have somebody who listens."""
    import asyncio
    import logging

    from amqtt.broker import Broker as Served

    logging.disable(logging.WARNING)

    async def live() -> None:
        auth = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}}
        served = Served({"listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}}, "plugins": auth})
        await served.start()
        while not all(topic in served._subscriptions for topic in topics):
            await asyncio.sleep(0.2)
        heard.set()
        await asyncio.Event().wait()

    asyncio.run(live())


def _feed(way: str, where: str, streams: Streams) -> None:
    """Second by second, each when it is over, and what closes the last windows; ends when all has arrived."""
    with ExitStack() as stack:
        senders = {name: _SENDERS[way](where, name, stack) for name in streams.sources}
        start_ms = 1000 * int(time.time())
        for second in range(int(-(-streams.seconds // 1)) + 1):  # the last tuples fall into the second behind
            time.sleep(max(0.0, start_ms / 1000 + second + 1 - time.time()))
            for name, send in senders.items():
                send(second, streams.of_second(name, second, start_ms))
        for name, send in senders.items():
            send(int(streams.seconds) + 2, streams.closing(name, start_ms))


def _to_files(where: str, stream: str, _: ExitStack) -> Send:
    def send(second: int, tuples: pa.Table) -> None:
        ms = pa.array(tuples["event_time"].cast(pa.int64()).to_numpy() / 1000)
        at = tuples.column_names.index("event_time")
        with appearing(Path(where) / stream / f"{second:06d}.parquet") as draft:
            pq.write_table(tuples.set_column(at, "event_time", ms), draft)

    return send


def _to_kafka(where: str, stream: str, stack: ExitStack) -> Send:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": where.removeprefix("kafka://"), "acks": 1, "queue.buffering.max.messages": 1_000_000}
    )
    stack.callback(producer.flush)

    def send(_: int, tuples: pa.Table) -> None:
        for text in _texts(tuples):
            producer.produce(stream, text)
        producer.flush()

    return send


def _to_mqtt(where: str, stream: str, stack: ExitStack) -> Send:
    publisher = Publisher(Broker.parse(f"{where}/{stream}", "feeding"), f"sender-{stream}")
    stack.callback(publisher.close)

    def send(_: int, tuples: pa.Table) -> None:
        for text in _texts(tuples):
            publisher.publish(stream, text)
        publisher.settle(600)

    return send


_SENDERS: dict[str, Callable[[str, str, ExitStack], Send]] = {"files": _to_files, "kafka": _to_kafka, "mqtt": _to_mqtt}


def _texts(tuples: pa.Table) -> Sequence[str]:
    columns = [tuples[name].to_pylist() for name in ("source_id", "value", "key")]
    times = tuples["event_time"].cast(pa.int64()).to_pylist()
    return [
        json.dumps({"source_id": source, "event_time": us / 1000, "value": value, "key": key})
        for us, source, value, key in zip(times, *columns, strict=True)
    ]
