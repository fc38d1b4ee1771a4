"""MQTT: streams from sensors and results to whoever listens.

A subscriber in the driver writes every message to a *spool* on disk before it acknowledges it (QoS 1), and leaves out
messages that it has spooled before. Spark then reads the spool by message number, and its checkpoint says how far: the
broker's at-least-once becomes exactly once, also when the job is killed. While the job is down, the broker keeps the
messages for its session.

A message is told to be a repetition by its id, where the payload has one (option `id`, a field of the JSON), else by
MQTT's own mark for redelivered messages together with an equal payload.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from nova.credentials import REFERENCE, resolved, shown
from nova.files import name_of, write_safely
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.model.reading import noted, read_bytes, recall
from nova.scenario.model import StreamInput
from nova.spark.sources.clock import MOST_ROWS
from nova.spark.sources.tuples import FILE, LINE, RECORD, declared, json_payload, quoted

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode
    from pyspark.sql import DataFrame, SparkSession

    from nova.routing.flow import Flow
    from nova.spark.job.tasks import ArrowMap

REMEMBERED = 1_000_000
"""Messages that repetitions are recognised among."""
FLUSH_S = 0.005
"""Messages are spooled together when they come within this time: one write and one sync for all."""
CONNECT_S = 30.0
"""How long to wait for the broker at the start; later, the client reconnects by itself."""
FILES = ("ca", "cert", "key")
CREDENTIALS = ("user", "password", *FILES)
"""Options of an address."""
SEGMENT = 50_000
"""Messages of a spool file, at most."""


@dataclass(frozen=True)
class Broker:
    """Where to connect: `mqtt://user:password@host:1883/topic`, or `mqtts://…` with TLS."""

    host: str
    port: int
    topic: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    """As written: maybe a reference to a secret, which is looked up where a client is made."""
    tls: bool = False
    ca: str | None = None
    """File with the certificates to trust instead of the system's."""
    cert: str | None = None
    key: str | None = None
    """Files with the client's certificate and its key, where the broker wants one."""

    @staticmethod
    def parse(address: str, place: str, options: Mapping[str, str] | None = None, folder: Path | None = None) -> Broker:
        """Read an address; what is missing is said. `options` (user, password, ca, cert, key) may stand behind a
        question mark in the address, too. Files are meant from `folder` (None: where the process works)."""
        secrets: list[str] = []

        def hide(found: re.Match[str]) -> str:
            secrets.append(found[0])
            return f"nova-secret-{len(secrets) - 1}"

        def show(text: str | None) -> str | None:
            return None if text is None else re.sub(r"nova-secret-(\d+)", lambda at: secrets[int(at[1])], unquote(text))

        wrong = Fault(place, "an MQTT address looks like mqtt://host:1883/topic or mqtts://…", value=shown(address))
        try:
            parts = urlsplit(REFERENCE.sub(hide, address))
            port = parts.port
        except ValueError:
            raise InvalidInput([wrong]) from None
        told = {name: show(value) for name, value in parse_qsl(parts.query)} | dict(options or {})
        topic = parts.path.lstrip("/") + (f"#{parts.fragment}" if parts.fragment or address.endswith("#") else "")
        unknown = sorted(set(told) - set(CREDENTIALS))
        if unknown:
            raise InvalidInput([Fault(place, f"there are {', '.join(CREDENTIALS)}", field=unknown[0])])
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or not topic:
            raise InvalidInput([wrong])
        tls = parts.scheme == "mqtts"
        told = {"user": show(parts.username), "password": show(parts.password)} | told
        if told.get("key") and not told.get("cert"):
            raise InvalidInput([Fault(place, "a key needs the certificate that it is of: `cert`", field="key")])
        if folder is not None:
            told |= {name: str(folder / told[name]) for name in FILES if told.get(name)}  # type: ignore[operator]
        return Broker(parts.hostname, port or (8883 if tls else 1883), topic, tls=tls, **told)

    def client(self, name: str, *, persistent: bool) -> Client:
        """A client of paho-mqtt, not connected yet. A persistent one's messages are kept while it is away."""
        from paho.mqtt.client import Client, MQTTv311
        from paho.mqtt.enums import CallbackAPIVersion

        client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=not persistent, protocol=MQTTv311)
        place = f"the MQTT broker at {self.host}:{self.port}"
        if self.user is not None:
            secret = None if self.password is None else resolved(self.password, place)
            client.username_pw_set(resolved(self.user, place), secret)
        if self.tls:
            for name in FILES:
                if (file := getattr(self, name)) is not None and not Path(file).is_file():
                    raise NovaError(f"{place}: no such file: {file} (`{name}`)")
            try:
                client.tls_set(self.ca, self.cert, self.key)
            except (OSError, ValueError) as error:
                raise NovaError(f"{place}: the certificates cannot be used ({error})") from None
        return client


@dataclass
class Welcome:
    """Whether a broker lets a client in, and what it said where it does not."""

    broker: Broker
    given: bool = False
    refused: str | None = None
    said: threading.Event = field(default_factory=threading.Event)
    """Set once it is known."""

    def connected(self, code: ReasonCode) -> bool:
        """Take in the answer to a connection; returns whether it is welcome."""
        self.given = not code.is_failure
        self.refused = str(code) if code.is_failure else None
        self.said.set()
        return self.given

    def disconnected(self, *_: Any) -> None:
        """Take in the end of a connection."""
        if not self.given and self.refused is None:
            wanted = self.broker.tls and self.broker.cert is None
            hint = ": does it want a certificate (`cert`, `key`)?" if wanted else ""
            self.refused = f"it ends the connection before it lets us in{hint}"
            self.said.set()

    def trouble(self) -> str:
        """Why a client that was to connect in the background is not in, in brackets."""
        if self.refused is None and not self.given:
            probe = self.broker.client("", persistent=False)
            try:
                probe.connect(self.broker.host, self.broker.port)
                probe.disconnect()
            except OSError as error:
                self.refused = str(error)
        return f" ({self.refused})" if self.refused else ""


@dataclass(frozen=True)
class Message:
    """A line of a spool."""

    id: str
    topic: str
    payload: str


@dataclass(frozen=True)
class _Remembered:
    """What a spool notes of messages whose files are gone."""

    ids: list[str]
    end: int
    """The number of the next message."""


def _spooled(file: Path) -> list[Message]:
    """The messages of one file."""
    lines = read_bytes(file, "a spool").splitlines()
    return [noted(line, Message, f"{file}, row {number}") for number, line in enumerate(lines, 1)]


class Spool:
    """Messages on disk, numbered from 0, as files of lines `{"id": …, "topic": …, "payload": …}`.

    A file is named by the number of its first message and is complete and synced before it gets its name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for draft in folder.glob(".*"):
            draft.unlink()  # never acknowledged: the broker sends those messages again
        self._lock = threading.Lock()
        self.end, self._known = self._recover()

    def _recover(self) -> tuple[int, OrderedDict[str, None]]:
        known: OrderedDict[str, None] = OrderedDict()
        note = self.folder / "ids.json"
        end = 0
        if note.exists():
            stored = recall(note, _Remembered)
            known.update(dict.fromkeys(stored.ids))
            end = stored.end
        for file in self.segments():
            messages = _spooled(file)
            known.update(dict.fromkeys(message.id for message in messages))
            end = max(end, int(file.stem) + len(messages))
        return end, known

    def segments(self) -> list[Path]:
        """Files in order."""
        return sorted(self.folder.glob("[0-9]*.jsonl"))

    def append(self, messages: Sequence[tuple[str, bool, str, str]]) -> int:
        """Store (id, whether a known id means a repetition, topic, payload); returns how many were new."""
        with self._lock:
            fresh: list[str] = []
            for name, certain, topic, payload in messages:
                if certain and name in self._known:
                    continue
                self._known[name] = None
                fresh.append(json.dumps({"id": name, "topic": topic, "payload": payload}))
            for start in range(0, len(fresh), SEGMENT):
                self._write(fresh[start : start + SEGMENT])
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return len(fresh)

    def _write(self, lines: list[str]) -> None:
        write_safely(self.folder / f"{self.end:015d}.jsonl", "\n".join(lines) + "\n")
        self.end += len(lines)

    def drop_before(self, number: int) -> None:
        """Forget messages that Spark will not ask for again, but not their ids."""
        with self._lock:
            gone = [
                file
                for file, after in zip(self.segments(), [*self.segments()[1:], None], strict=False)
                if (int(after.stem) if after is not None else self.end) <= number
            ]
            if len(gone) < 64:
                return  # not worth the note of ids yet
            write_safely(self.folder / "ids.json", json.dumps({"ids": list(self._known), "end": self.end}))
            for file in gone:
                file.unlink()


class Keeper(Protocol):
    """Keeps messages."""

    def append(self, messages: Sequence[tuple[str, bool, str, str]]) -> int:
        """Store (id, whether a known id means a repetition, topic, payload) for good; returns how many were new."""
        ...


class Subscriber:
    """Hands messages to a keeper, in the background, until closed; those that are kept are acknowledged."""

    def __init__(self, broker: Broker, spool: Keeper, name: str, id_field: str | None) -> None:
        self.broker, self.spool, self.id_field = broker, spool, id_field
        self._waiting: list[tuple[MQTTMessage, tuple[str, bool, str, str]]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.client = broker.client(name, persistent=True)
        self.client.manual_ack_set(True)
        self._subscribed = threading.Event()
        self._welcome = Welcome(broker)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._welcome.disconnected
        self.client.on_message = self._received
        self.client.connect_async(broker.host, broker.port)
        self.client.loop_start()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        if not self._subscribed.wait(CONNECT_S):
            self.close()
            raise NovaError(
                f"no MQTT broker at {broker.host}:{broker.port} let us subscribe to {broker.topic!r} "
                f"within {CONNECT_S:.0f} s{self._welcome.trouble()}"
            )

    def _connected(self, client: Client, _data: Any, _flags: Any, code: Any, *_: Any) -> None:
        if self._welcome.connected(code):
            client.subscribe(self.broker.topic, qos=1)

    def _received(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        payload = message.payload.decode(errors="replace")
        name, certain = message_id(payload, self.id_field, message.topic), bool(message.dup)
        if name is not None:
            certain = True
        else:
            name = hashlib.blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=12).hexdigest()
        with self._lock:
            self._waiting.append((message, (name, certain, message.topic, payload)))

    def _write(self) -> None:
        while not self._closed.wait(FLUSH_S):
            with self._lock:
                waiting, self._waiting = self._waiting, []
            if waiting:
                self.spool.append([told for _, told in waiting])
                for message, _ in waiting:
                    self.client.ack(message.mid, message.qos)

    def close(self) -> None:
        """Disconnect; what was not spooled yet was not acknowledged either."""
        self._closed.set()
        self._writer.join(timeout=5)
        self.client.disconnect()
        self.client.loop_stop()


def message_id(payload: str, id_field: str | None, topic: str) -> str | None:
    """The id that a message carries, unique within its topic; None where it has none."""
    if id_field is None:
        return None
    try:
        told = json.loads(payload).get(id_field)
        # JSON can write half a character, and no file can
        return None if told is None else f"{topic}/{told}".encode(errors="backslashreplace").decode()
    except (ValueError, AttributeError, RecursionError):  # a dead letter, later
        return None


class Mqtt(DataSource):
    """`spark.readStream.format("nova_mqtt")` with the options address, spool, client and, if wanted, id."""

    @classmethod
    def name(cls) -> str:
        return "nova_mqtt"

    def schema(self) -> str:
        return "message_id string, topic string, payload string, number long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return MqttReader(dict(self.options))


@dataclass
class Messages(InputPartition):
    """Messages by number."""

    start: int
    end: int


class MqttReader(DataSourceStreamReader):
    """Offsets are message numbers in the spool. The subscriber lives in the driver's Python process only."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._subscriber: Subscriber | None = None
        self._spool: Spool | None = None

    def _spooled(self) -> Spool:
        """The spool, once somebody fills it."""
        if self._spool is None:
            told = {name: self.options[name] for name in CREDENTIALS if name in self.options}
            broker = Broker.parse(self.options["address"], "the option address", told)
            self._spool = Spool(Path(self.options["spool"]))
            self._subscriber = Subscriber(broker, self._spool, self.options["client"], self.options.get("id"))
        return self._spool

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"message": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        end = min(self._spooled().end, start["message"] + MOST_ROWS)
        return {"message": max(start["message"], end)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["message"], end["message"]
        size = max(5000, -(-(last - first) // 4))
        return [Messages(at, min(at + size, last)) for at in range(first, last, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Messages)
        found = list(read_spool(Path(self.options["spool"]), partition.start, partition.end))
        if len(found) != partition.end - partition.start:
            raise NovaError(f"the spool {self.options['spool']} lacks messages {partition.start} … {partition.end}")
        names, topics, payloads = zip(*found, strict=True) if found else ((), (), ())
        yield pa.record_batch(
            [
                *(pa.array(column, pa.string()) for column in (names, topics, payloads)),
                pa.array(range(partition.start, partition.end), pa.int64()),
            ],
            names=["message_id", "topic", "payload", "number"],
        )

    def commit(self, end: dict[str, int]) -> None:
        self._spooled().drop_before(end["message"])

    def stop(self) -> None:
        if self._subscriber is not None:
            self._subscriber.close()


def read_spool(folder: Path, start: int, end: int) -> Iterator[tuple[str, str, str]]:
    """Messages by number, without disturbing who writes the spool."""
    files = sorted(folder.glob("[0-9]*.jsonl"))
    for i, file in enumerate(files):
        first = int(file.stem)
        following = int(files[i + 1].stem) if i + 1 < len(files) else None
        if first >= end or (following is not None and following <= start):
            continue
        for number, message in enumerate(_spooled(file), first):
            if start <= number < end:
                yield message.id, message.topic, message.payload


def open_mqtt(spark: SparkSession, given: StreamInput, spool: Path, place: str, folder: Path) -> DataFrame:
    """A stream of JSON messages as rows with the columns that the scenario names.

    `path` (or the option `address`) is the broker and topic; the option `schema` lists the columns of the payload, by
    default source, time and value under their names in `columns`. Certificates are meant from `folder`.
    """
    from pyspark.sql import functions as sql

    options = {name: str(value) for name, value in given.options.items()}
    address = given.path or options.pop("address", "")
    told = {name: options.pop(name) for name in CREDENTIALS if name in options}
    broker = Broker.parse(address, place, told, folder)
    told |= {name: file for name in FILES if (file := getattr(broker, name)) is not None}
    names = given.columns
    schema = options.pop(
        "schema", f"{quoted(names.source)} STRING, {quoted(names.time)} STRING, {quoted(names.value)} DOUBLE"
    )
    spark.dataSource.register(Mqtt)
    identity = hashlib.blake2b(str(spool.resolve()).encode(), digest_size=6).hexdigest()
    reader = spark.readStream.format("nova_mqtt").option("address", address).option("spool", str(spool.resolve()))
    reader = reader.option("client", options.pop("client", f"nova-{identity}"))
    reader = reader.options(**told)
    if "id" in options:
        reader = reader.option("id", options.pop("id"))
    if options:
        raise InvalidInput(
            [
                Fault(
                    place,
                    f"no such option of an MQTT input; there are address, schema, client, id, {', '.join(CREDENTIALS)}",
                    field=f"options.{name}",
                )
                for name in options
            ]
        )
    said = reader.load().withColumn("body", json_payload(sql.col("payload"), declared(schema, place)))
    return said.select(
        "body.*", sql.col("topic").alias(FILE), sql.col("number").alias(LINE), sql.col("payload").alias(RECORD)
    )


class Publisher:
    """Publishes with QoS 1 and waits for the broker's word. For tasks."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.client = broker.client(name, persistent=False)
        self.client.max_queued_messages_set(0)
        self.client.max_inflight_messages_set(1000)
        self._welcome = Welcome(broker)
        self.client.on_connect = self._answered
        self.client.on_disconnect = self._welcome.disconnected
        try:
            self.client.connect(broker.host, broker.port)
        except OSError as error:
            raise NovaError(f"no MQTT broker at {broker.host}:{broker.port} ({error})") from None
        self.client.loop_start()
        self._welcome.said.wait(CONNECT_S)
        if not self._welcome.given:
            self.client.disconnect()
            self.client.loop_stop()
            raise NovaError(
                f"the MQTT broker at {broker.host}:{broker.port} does not let us in{self._welcome.trouble()}"
            )
        self._sent: list[Any] = []

    def _answered(self, _client: Client, _data: Any, _flags: Any, code: Any, *_: Any) -> None:
        self._welcome.connected(code)

    def publish(self, topic: str, payload: str | bytes) -> None:
        """Send one message; `close` waits for its acknowledgement."""
        self._sent.append(self.client.publish(topic, payload, qos=1))

    def settle(self, timeout_s: float = 30.0) -> None:
        """Wait until all messages are acknowledged; an error where that does not happen."""
        deadline = time.monotonic() + timeout_s
        for sent in self._sent:
            sent.wait_for_publish(max(deadline - time.monotonic(), 0.001))
        lost = sum(not sent.is_published() for sent in self._sent)
        if lost:
            raise NovaError(f"the MQTT broker did not acknowledge {lost} of {len(self._sent)} messages")
        self._sent.clear()

    def close(self) -> None:
        """Settle, then disconnect."""
        try:
            self.settle()
        finally:
            self.client.disconnect()
            self.client.loop_stop()


@dataclass
class Publish:
    """The last step of a task: joins, and publishes its results. For `mapInArrow`."""

    matcher: ArrowMap
    broker: Broker
    query: str
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from nova.spark.job.sinks import identified

        publisher: Publisher | None = None
        rows = 0
        for lines in identified(self.matcher(batches), self.query):
            publisher = publisher or Publisher(self.broker, f"{self.name}-{os.getpid()}-{threading.get_ident()}")
            for _, line in lines:
                publisher.publish(self.broker.topic, line)
            rows += len(lines)
        if publisher is not None:
            publisher.close()
        yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


@dataclass
class MqttSink:
    """Results as JSON messages, at least once: a batch that is repeated after a crash is published again with the same
    ids, so that a listener can leave out what it has."""

    address: str
    options: dict[str, str]
    flow: Flow
    broker: Broker = field(init=False)

    def __post_init__(self) -> None:
        self.broker = Broker.parse(self.address, "--to")

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        from nova.spark.job.sinks import joined

        if matcher is None:  # rows of a query: equal ones may come from several tasks, but are told apart within one
            pairs = pairs.coalesce(1)
        rows, make = joined(pairs, matcher)
        return rows.mapInArrow(
            Publish(make, self.broker, self.flow.query, f"nova-{name_of(self.flow.query)}"),
            "rows bigint",
        )

    def write(self, frame: DataFrame, batch: int) -> None:  # noqa: ARG002
        frame.collect()
