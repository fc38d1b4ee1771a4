"""Exchange through Kafka: a topic per receiving site, and one for the notices of all.

What is sent lies in the receiver's topic until it has been put into the site's inbox; then it is deleted there. Nobody
needs to be up when something is sent. A receiver notes its offset after a part is safe in its inbox, which takes each
part once.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from nova.credentials import resolved_all
from nova.files import name_of
from nova.model.errors import NovaError
from nova.spark.sites.exchange import DELIVER_S, Channel, Inbox, Part
from nova.spark.sites.presence import Board
from nova.spark.sources.kafka import Address

if TYPE_CHECKING:
    from confluent_kafka import Message

MOST_BYTES = 64 * 2**20
"""The largest part that is sent as one record."""
LONGEST_TOPIC = 249
"""Characters that Kafka takes in the name of a topic."""
OURS = re.compile(r"[A-Za-z0-9_%-]+(?:/[A-Za-z0-9_%-]+)*")
"""Paths of channels, and of parts below them."""
PROBE = "probe"
TIDY_S = 30.0
"""Time between two deletions of what has been received."""


@dataclass
class KafkaExchange:
    """For one site. `settings` are librdkafka's."""

    settings: dict[str, str]
    prefix: tuple[str, ...]
    """Words that the names of its topics begin with."""
    folder: Path
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    notices: dict[str, str] = field(default_factory=dict)
    """What others have put on the board."""
    _posted: dict[str, str] = field(default_factory=dict)
    _back: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Our own notices as Kafka has brought them, and what others had put there before them."""
    failure: BaseException | None = None
    _topics: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)
    _probes: set[str] = field(default_factory=set)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def open(address: str, folder: Path) -> KafkaExchange:
        """`kafka://host:9092/prefix?security.protocol=SSL&…`: what stands behind the question mark goes to the client,
        which connects when it is first needed."""
        parts = urlsplit(address)
        at = Address.parse(urlunsplit(parts._replace(query="")), "--exchange")
        options = resolved_all(dict(parse_qsl(parts.query)), "--exchange")
        prefix = tuple(at.topic.split("/"))
        return KafkaExchange({**options, "bootstrap.servers": at.servers}, prefix, folder)

    def __post_init__(self) -> None:
        try:
            from confluent_kafka import Consumer, Producer
            from confluent_kafka.admin import AdminClient
        except ModuleNotFoundError:
            raise NovaError("sites that exchange through Kafka need: pip install 'nova-placement[kafka]'") from None
        quiet: dict[str, str | int | float | bool] = {**self.settings, "log_level": "2"}
        self.producer = Producer(
            {**quiet, "enable.idempotence": "true", "message.max.bytes": str(MOST_BYTES), "linger.ms": "5"}
        )
        self.consumer = Consumer(
            {
                **quiet,
                "group.id": f"nova-{topic_name(*self.prefix)}-{self.folder}",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "fetch.message.max.bytes": str(MOST_BYTES),
                "receive.message.max.bytes": str(2 * MOST_BYTES),
            }
        )
        self.admin = AdminClient(quiet)

    def _ensure(self, topic: str, **config: str) -> None:
        """Make a topic with one partition, unless it is there."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        if topic in self._topics:
            return
        wanted = NewTopic(topic, num_partitions=1, config={"max.message.bytes": str(MOST_BYTES), **config})
        try:
            self.admin.create_topics([wanted], request_timeout=DELIVER_S)[topic].result(DELIVER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise NovaError(f"Kafka at {self.settings['bootstrap.servers']}: {error.args[0].str()}") from None
        limit = time.monotonic() + DELIVER_S
        while not self._has_leader(topic):
            if time.monotonic() > limit:
                raise NovaError(f"Kafka at {self.settings['bootstrap.servers']}: the topic {topic} has no leader")
            time.sleep(0.05)
        self._topics.add(topic)

    def _has_leader(self, topic: str) -> bool:
        told = self.admin.list_topics(topic, timeout=DELIVER_S).topics[topic].partitions
        return bool(told) and told[0].leader >= 0

    def _inbox_topic(self, site: str) -> str:
        return topic_name(*self.prefix, "to", site)

    @property
    def _board_topic(self) -> str:
        return topic_name(*self.prefix, "board")

    def _produce(self, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
        self._ensure(topic, **({"cleanup.policy": "compact"} if topic == self._board_topic else {"retention.ms": "-1"}))
        failures: list[str] = []

        def delivered(error: Any, _message: Message) -> None:
            if error is not None:
                failures.append(error.str())

        for key, value in records:
            if len(value) + len(key) + 1024 > MOST_BYTES:
                raise NovaError(f"a part of {len(value):,} bytes does not fit a Kafka record of {MOST_BYTES:,}")
            self.producer.produce(topic, value, key=key, partition=0, on_delivery=delivered)
            self.producer.poll(0)
        if self.producer.flush(DELIVER_S) or failures:
            told = failures[0] if failures else f"no acknowledgement within {DELIVER_S:.0f} s"
            raise NovaError(f"Kafka at {self.settings['bootstrap.servers']} did not take what was sent: {told}")

    def send(self, parts: Sequence[Part]) -> None:
        self._check()
        by_target: dict[str, list[tuple[str, bytes]]] = {}
        for channel, name, file in parts:
            if channel.target not in self._given_up:
                by_target.setdefault(channel.target, []).append((f"data/{channel.path}/{name}", file.read_bytes()))
        for target, records in by_target.items():
            self._produce(self._inbox_topic(target), records)

    def finish(self, sent: Iterable[tuple[Channel, int]]) -> None:
        for channel, parts in sent:
            record = (f"finished/{channel.path}", str(parts).encode())
            self._produce(self._inbox_topic(channel.target), [record])

    def listen(self, channel: Channel) -> Path:
        inbox = self._inbox(channel.path)
        self._follow(self._inbox_topic(channel.target), stored=True)
        return inbox.folder

    def complete(self, channel: Channel) -> bool:
        self._check()
        inbox = self._inbox(channel.path)
        return inbox.finished is not None and inbox.total >= inbox.finished

    def board(self) -> Board:
        """A compacted topic, read from its beginning; ready when a record of our own comes, for it comes last."""
        topic = self._board_topic
        self._follow(topic, stored=False)
        probe = uuid.uuid4().hex
        self._produce(topic, [(PROBE, probe.encode())])
        self._read_up_to(lambda: probe in self._probes)
        return self

    def _read_up_to(self, there: Callable[[], bool]) -> None:
        """Wait until the board has been read that far."""
        limit = time.monotonic() + DELIVER_S
        while not there():
            self._check()
            if time.monotonic() > limit:
                server = self.settings["bootstrap.servers"]
                raise NovaError(f"Kafka at {server}: the topic {self._board_topic} cannot be read")
            time.sleep(0.02)

    def post(self, name: str, text: str) -> str | None:
        self._posted[name] = text
        self._produce(self._board_topic, [(name, text.encode())])
        self._read_up_to(lambda: self._back.get(name, ("", None))[0] == text)
        return self._back[name][1]

    def read(self, name: str) -> str | None:
        self._check()
        return self.notices.get(name)

    def give_up(self, site: str) -> None:
        self._given_up.add(site)

    def awaited(self) -> set[str]:
        return set()  # Kafka keeps what is sent to whoever comes

    def _follow(self, topic: str, *, stored: bool) -> None:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, TopicPartition

        self._ensure(topic, **({"retention.ms": "-1"} if stored else {"cleanup.policy": "compact"}))
        if any(one.topic == topic for one in self.consumer.assignment()):
            return
        start = OFFSET_STORED if stored else OFFSET_BEGINNING
        self.consumer.incremental_assign([TopicPartition(topic, 0, start)])
        if self._thread is None:
            self._thread = threading.Thread(target=self._receive, daemon=True)
            self._thread.start()

    def _receive(self) -> None:
        """In the background: notices to the board, parts to inboxes."""
        tidied = time.monotonic()
        while not self._closed.is_set():
            try:
                message = self.consumer.poll(0.2)
                if message is None or message.error() is not None:
                    continue  # the client connects again by itself
                self._take(message)
                if message.topic() != self._board_topic and time.monotonic() - tidied > TIDY_S:
                    tidied = time.monotonic()
                    self._tidy(message)
            except BaseException as failure:
                self.failure = failure  # told where somebody can hear it
                return

    def _take(self, message: Message) -> None:
        key, value = (message.key() or b"").decode(errors="replace"), message.value() or b""
        if message.topic() == self._board_topic:
            text = value.decode(errors="replace")
            if key == PROBE:
                self._probes.add(text)
            elif text == self._posted.get(key):  # ours come back, too
                self._back[key] = text, self.notices.get(key)
            else:
                self.notices[key] = text
            return
        word, _, rest = key.partition("/")
        if not OURS.fullmatch(rest):  # no site sends such a thing: it must not become a path
            self.consumer.commit(message=message, asynchronous=False)
            return
        if word == "finished":
            self._inbox(rest).finish(value)
        else:
            path, _, name = rest.rpartition("/")
            self._inbox(path).take(name, value)
        self.consumer.commit(message=message, asynchronous=False)

    def _tidy(self, message: Message) -> None:
        from confluent_kafka import TopicPartition

        done = TopicPartition(message.topic() or "", 0, message.offset() or 0)
        self.admin.delete_records([done], request_timeout=DELIVER_S)

    def _inbox(self, path: str) -> Inbox:
        with self._lock:
            if path not in self.inboxes:
                self.inboxes[path] = Inbox(self.folder / path)
            return self.inboxes[path]

    def _check(self) -> None:
        if self.failure is not None:
            raise NovaError(f"what Kafka brought could not be kept: {self.failure}")

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.consumer.close()
        self.producer.flush(5)


def topic_name(*names: str) -> str:
    """Ids as one name in Kafka's alphabet for topics. Different ids have names that differ even where Kafka takes `.`
    and `_` for the same, and none is longer than it takes."""
    name = "-".join(name_of(one).replace("_", "%5F").replace("%", ".") for one in names)
    if len(name) <= LONGEST_TOPIC:
        return name
    digest = hashlib.blake2b("/".join(names).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: LONGEST_TOPIC - 35]}...{digest}"  # no other name has three dots side by side
