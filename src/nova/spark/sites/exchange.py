"""Exchange: how sites hand tuples and results to each other, through shared folders or an MQTT broker.

What is sent has a name that is the same whenever it is sent again; receivers take each name once. A sender that has
sent everything says so, so that a receiver knows when it has everything. In both cases Spark reads files from a folder:
the shared one, or the site's own, into which a subscriber puts what the broker brings.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nova.files import name_of, write_safely
from nova.model.errors import NovaError
from nova.model.reading import recall
from nova.spark.sites.presence import Board, FolderBoard
from nova.spark.sources.mqtt import CONNECT_S, Broker

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PART, COUNT = re.compile(r"[0-9]{1,18}-[0-9]{1,18}"), re.compile(rb"[0-9]{1,18}")
"""Names of parts: batch and number; and how many there were."""
Kind = Literal[
    "left",
    "left_come",
    "left_lone",
    "left_lone_come",
    "right",
    "right_come",
    "right_lone",
    "right_lone_come",
    "found",
    "partials",
    "partials_come",
    "results",
    "results_come",
]
"""Tuples of a side; those of an outer join that may join nothing, and which of them were joined; partial aggregates to
a site that merges them, and what the sink gets. `…_come` says how far these have come, and is sent after them."""
Part = tuple["Channel", str, Path]
"""Where a part goes, its name `<batch>-<number>`, and its file."""
WAIT_S = 600.0
"""How long a sender waits for a site that is not there yet to begin to listen."""
DELIVER_S = 60.0
"""How long the broker may take to acknowledge the parts of a batch."""

RETRY_S = 0.5
"""Time between two attempts where there is no connection."""


@dataclass(frozen=True)
class Channel:
    """What goes from one site to another in one query."""

    query: str
    kind: Kind
    sender: str
    target: str

    @property
    def path(self) -> str:
        return "/".join(name_of(part) for part in (self.query, self.kind, self.target, self.sender))


class Exchange(Protocol):
    """A way to send and receive, for one site."""

    def send(self, parts: Sequence[Part]) -> None:
        """Deliver the parts of a batch; returns when they are safe. Batches are sent in order."""
        ...

    def listen(self, channel: Channel) -> Path:
        """The folder in which everything appears that comes through a channel, each part once."""
        ...

    def finish(self, sent: Iterable[tuple[Channel, int]]) -> None:
        """Say how many parts were sent through channels, and that there will be no more."""
        ...

    def complete(self, channel: Channel) -> bool:
        """Whether everything that will ever come through a channel is here."""
        ...

    def board(self) -> Board:
        """Notices that all sites see."""
        ...

    def give_up(self, site: str) -> None:
        """Send nothing more to a site."""
        ...

    def awaited(self) -> set[str]:
        """Sites without which nothing can be sent just now."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


def open_exchange(address: str, site: Path) -> Exchange:
    """Folders for a path, a broker for an address like `mqtt://host:1883/prefix`, `mqtts://…` or
    `kafka://host:9092/prefix`. `site` is the site's own folder."""
    if address.startswith("kafka://"):
        from nova.spark.sites.kafka_exchange import KafkaExchange

        return KafkaExchange.open(address, site.resolve() / "inbox")
    if address.startswith(("mqtt://", "mqtts://")):
        return BrokerExchange(Broker.parse(address, "--exchange"), site.resolve() / "inbox")
    return FolderExchange(Path(address).resolve())


def fresh(address: str) -> str:
    """The address for a new deployment: with a name of its own, so that what an earlier one left there is not read. An
    address that cannot work is refused here, not at every site; secrets are looked up only there."""
    place, question, options = address.partition("?")
    if "://" not in address:
        place, question, options = str(Path(address).resolve()), "", ""
    renewed = f"{place.rstrip('/')}/{uuid.uuid4().hex[:8]}{question}{options}"
    if place.startswith("kafka://"):
        from nova.spark.sources.kafka import Address

        Address.parse(place, "--exchange")
    elif "://" in place:
        Broker.parse(address, "--exchange")
    return renewed


def read_parts(spark: SparkSession, folder: Path, schema: StructType | str) -> DataFrame:
    """Files as they appear in a folder; they are deleted when they have been worked off."""
    reader = spark.readStream.schema(schema).option("pathGlobFilter", "*.parquet").option("cleanSource", "delete")
    return reader.parquet(str(folder))


@dataclass
class FolderExchange:
    """Files in folders that all sites see."""

    root: Path

    def _end(self, channel: Channel) -> Path:
        return (self.root / channel.path).with_suffix(".end")

    def send(self, parts: Sequence[Part]) -> None:
        for channel, name, file in parts:
            inbox = self.root / channel.path
            inbox.mkdir(parents=True, exist_ok=True)
            write_safely(inbox / f"{name}.parquet", file.read_bytes())

    def listen(self, channel: Channel) -> Path:
        inbox = self.root / channel.path
        inbox.mkdir(parents=True, exist_ok=True)
        return inbox

    def finish(self, sent: Iterable[tuple[Channel, int]]) -> None:
        for channel, parts in sent:
            self._end(channel).parent.mkdir(parents=True, exist_ok=True)
            write_safely(self._end(channel), str(parts))

    def complete(self, channel: Channel) -> bool:
        return self._end(channel).exists()  # written after all parts

    def board(self) -> Board:
        return FolderBoard(self.root / "board")

    def give_up(self, site: str) -> None:
        """What is sent to it lies there: it disturbs nobody."""

    def awaited(self) -> set[str]:
        return set()

    def close(self) -> None:
        """Folders need no connection."""


@dataclass(frozen=True)
class _Received:
    """What an inbox remembers."""

    total: int
    batch: int
    names: set[str]
    finished: int | None


@dataclass
class Inbox:
    """What came through one channel of a broker: each part once, as a file, and how many there were.

    A sender repeats its last batch at most, so it is enough to remember the names of one batch: parts of earlier ones
    are repetitions.
    """

    folder: Path
    total: int = 0
    batch: int = -1
    names: set[str] = field(default_factory=set)
    finished: int | None = None
    """Parts that the sender has sent in all, once it says so."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._memory.exists():
            told = recall(self._memory, _Received, "a site")
            self.total, self.batch, self.names, self.finished = told.total, told.batch, told.names, told.finished

    @property
    def _memory(self) -> Path:
        return self.folder.with_suffix(".json")

    def take(self, name: str, content: bytes) -> None:
        """Keep a part, unless it is known; it is safe when this returns. What has another name than parts have comes
        from no site: it is left alone, and does not become a path."""
        if not PART.fullmatch(name):
            return
        batch = int(name.split("-")[0])
        if batch < self.batch or name in self.names:
            return
        write_safely(self.folder / f"{name}.parquet", content)
        self.names = {*self.names, name} if batch == self.batch else {name}
        self.batch, self.total = batch, self.total + 1
        self._remember()

    def finish(self, told: bytes) -> None:
        """The sender has sent so many parts, and there will be no more; what is no number comes from no site."""
        if not COUNT.fullmatch(told):
            return
        self.finished = int(told)
        self._remember()

    def _remember(self) -> None:
        told = {"total": self.total, "batch": self.batch, "names": sorted(self.names), "finished": self.finished}
        write_safely(self._memory, json.dumps(told))


class BrokerExchange:
    """Messages with QoS 1 through an MQTT broker, on one connection. The broker keeps what comes while the site is
    away, as it has a persistent session; a message is acknowledged when it is safe in its inbox.

    Topics below the prefix: `data/<channel>/<name>` with a file as payload, and, retained, `listening/<channel>` and
    `finished/<channel>`.
    """

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        own = hashlib.blake2b(str(folder).encode(), digest_size=8).hexdigest()  # the same after a restart
        self.inboxes: dict[str, Inbox] = {}
        self.listening: set[str] = set()
        """Paths of channels at whose other end somebody listens."""
        self.failure: BaseException | None = None
        self.notices: dict[str, str] = {}
        """What others have put on the board."""
        self._posted: dict[str, str] = {}
        self._back: dict[str, tuple[str, str | None]] = {}
        """Our own notices as the broker has brought them, and what others had put there before them."""
        self._given_up: set[str] = set()
        self._awaited: set[str] = set()
        self._probes: set[str] = set()
        self._changed = threading.Condition()
        self._wanted: list[str] = []
        self._confirmed: dict[int, threading.Event] = {}
        self._connected = threading.Event()
        self.client: Client = broker.client(f"nova-{own}", persistent=True)
        self.client.max_queued_messages_set(0)
        self.client.on_connect = self._on_connect
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda _c, _d, mid, *_: self._subscribed(mid).set()
        self._open = False

    def _connect(self) -> None:
        if self._open:
            return
        try:
            self.client.connect(self.broker.host, self.broker.port)
        except OSError as error:
            raise NovaError(f"no MQTT broker at {self.broker.host}:{self.broker.port} ({error})") from None
        self.client.loop_start()
        self._open = True
        if not self._connected.wait(CONNECT_S):
            raise NovaError(f"the MQTT broker at {self.broker.host}:{self.broker.port} does not let us in")

    def _on_connect(self, client: Client, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        if code.is_failure:
            return
        for topic in self._wanted:  # anew: the broker may have forgotten us
            client.subscribe(topic, qos=1)
        self._connected.set()

    def _subscribed(self, mid: int) -> threading.Event:
        with self._changed:
            return self._confirmed.setdefault(mid, threading.Event())

    def _subscribe(self, *topics: str) -> None:
        self._wanted += topics  # before connecting: what the broker kept for us comes at once
        self._connect()
        for topic in topics:
            _, mid = self.client.subscribe(topic, qos=1)
            if mid is None or not self._subscribed(mid).wait(CONNECT_S):
                raise NovaError(f"the MQTT broker at {self.broker.host} does not let us subscribe to {topic}")

    def _topic(self, *parts: str) -> str:
        return "/".join([self.broker.topic, *parts])

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        """Runs in the client's thread; the message is acknowledged when this returns."""
        word, _, rest = message.topic.removeprefix(f"{self.broker.topic}/").partition("/")
        try:
            if word == "listening":
                self.listening.add(rest)
            elif word == "finished":
                self._inbox(rest).finish(bytes(message.payload))
            elif word == "board":
                text = message.payload.decode(errors="replace")
                if text == self._posted.get(rest):  # ours come back, too
                    self._back[rest] = text, self.notices.get(rest)
                else:
                    self.notices[rest] = text
            elif word == "probe":
                self._probes.add(rest)
            else:
                path, _, name = rest.rpartition("/")
                self._inbox(path).take(name, bytes(message.payload))
        except BaseException as failure:
            self.failure = failure  # told where somebody can hear it; without an acknowledgement it comes again
            raise
        finally:
            with self._changed:
                self._changed.notify_all()

    def _inbox(self, path: str) -> Inbox:
        with self._changed:
            if path not in self.inboxes:
                self.inboxes[path] = Inbox(self.folder / path)
            return self.inboxes[path]

    def _check(self) -> None:
        if self.failure is not None:
            raise NovaError(f"what the broker brought could not be kept: {self.failure}")

    def board(self) -> Board:
        """Retained messages; ready when those that are there have come: a message of our own comes after them."""
        probe = uuid.uuid4().hex
        self._subscribe(self._topic("board", "#"), self._topic("probe", probe))
        self._publish([(self._topic("probe", probe), b"1", False)])
        with self._changed:
            self._changed.wait_for(lambda: probe in self._probes, CONNECT_S)
        return self

    def post(self, name: str, text: str) -> str | None:
        self._posted[name] = text
        self._publish([(self._topic("board", name), text.encode(), True)])
        with self._changed:
            if not self._changed.wait_for(lambda: self._back.get(name, ("", None))[0] == text, DELIVER_S):
                raise NovaError(f"the MQTT broker at {self.broker.host} does not bring what is sent to it")
        return self._back[name][1]

    def read(self, name: str) -> str | None:
        return self.notices.get(name)

    def give_up(self, site: str) -> None:
        with self._changed:
            self._given_up.add(site)
            self._changed.notify_all()

    def awaited(self) -> set[str]:
        return set(self._awaited)

    def send(self, parts: Sequence[Part]) -> None:
        self._await_listeners({channel for channel, _, _ in parts})
        parts = [part for part in parts if part[0].target not in self._given_up]
        self._publish(
            [(self._topic("data", channel.path, name), file.read_bytes(), False) for channel, name, file in parts]
        )

    def _publish(self, messages: Sequence[tuple[str, bytes, bool]]) -> None:
        """Returns when the broker has acknowledged all. Where the connection breaks on the way, everything is sent
        again: receivers know what they have."""
        self._connect()
        end = time.monotonic() + DELIVER_S
        while time.monotonic() < end:
            sent = [self.client.publish(topic, content, qos=1, retain=retain) for topic, content, retain in messages]
            try:
                for one in sent:
                    one.wait_for_publish(max(end - time.monotonic(), 0.001))
                if all(one.is_published() for one in sent):
                    return
            except RuntimeError:  # not connected just now: the client connects again by itself
                time.sleep(RETRY_S)
        raise NovaError(
            f"the MQTT broker at {self.broker.host}:{self.broker.port} did not acknowledge "
            f"{len(messages)} messages within {DELIVER_S:.0f} s"
        )

    def _await_listeners(self, channels: set[Channel]) -> None:
        """A broker keeps messages only for who has subscribed once: wait for the others' first start."""
        missing = {channel.path for channel in channels} - self.listening
        unasked = [self._topic("listening", path) for path in sorted(missing)]
        unasked = [topic for topic in unasked if topic not in self._wanted]
        if unasked:
            self._subscribe(*unasked)

        def all_there() -> bool:
            self._awaited = {
                channel.target
                for channel in channels
                if channel.path not in self.listening and channel.target not in self._given_up
            }
            return not self._awaited or self.failure is not None

        with self._changed:
            there = self._changed.wait_for(all_there, WAIT_S)
        self._check()
        if not there:
            names = sorted({channel.target for channel in channels if channel.path not in self.listening})
            raise NovaError(f"nobody listens yet at {', '.join(names)}: start these sites, too")

    def listen(self, channel: Channel) -> Path:
        inbox = self._inbox(channel.path)
        self._subscribe(self._topic("data", channel.path, "+"), self._topic("finished", channel.path))
        self._publish([(self._topic("listening", channel.path), b"1", True)])
        return inbox.folder

    def finish(self, sent: Iterable[tuple[Channel, int]]) -> None:
        self._publish([(self._topic("finished", channel.path), str(parts).encode(), True) for channel, parts in sent])

    def complete(self, channel: Channel) -> bool:
        self._check()
        inbox = self._inbox(channel.path)
        return inbox.finished is not None and inbox.total >= inbox.finished

    def close(self) -> None:
        if self._open:
            self.client.disconnect()
            self.client.loop_stop()
            self._open = False
