"""Records: a Kafka topic as a feed, and results to a topic, in real time.

Each record stands in the log with its partition and offset, so a run that goes on after a crash reads behind what its
logs hold: every record is in a log once. Results go out with their ids as keys, at least once.

The client and its options are those of the batch mode: see `sources/kafka.py`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from nova.files import appearing
from nova.model.errors import NovaError
from nova.model.reading import recall
from nova.spark.dead_letters import LetterBox
from nova.spark.job.sinks import json_lines
from nova.spark.realtime.background import Background
from nova.spark.realtime.feeds import Tap, document, put_aside
from nova.spark.sources.kafka import (
    ANSWER_S,
    Address,
    Deliverer,
    Layout,
    client_options,
    consumer_settings,
    hopeless,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

MOST = 5000
"""Records that go into the log together, at most."""
WAIT_S = 0.001
"""Records that come within this time go into the log together."""
QUIET_S = 1.0
"""A topic that was read to its end and is silent for so long has ended, for who runs to the end of the input."""
LOOK_S = 5.0
"""Time between two looks for new partitions."""
NOTE_S = 1.0
"""Time between two notes of how far the topic was read."""
BESIDE = "ll"
"""Kinds of the columns that stand in the log behind a tuple's: partition and offset."""


class Record(NamedTuple):
    """What the broker hands over."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    stamp_ms: int

    @staticmethod
    def of(message: Message) -> Record:
        """As the client tells it."""
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return Record(partition, offset, _bytes(message.key()), _bytes(message.value()) or b"", message.timestamp()[1])


def _bytes(told: str | bytes | None) -> bytes | None:
    return told.encode() if isinstance(told, str) else told


def record_reader(
    layout: Layout, read: Callable[[Sequence[dict[str, Any]]], pa.Table]
) -> Callable[[Sequence[Record]], pa.Table]:
    """Reads records as tuples: JSON values, with the record's key and time where the input names columns for them."""

    def tuples(records: Sequence[Record]) -> pa.Table:
        documents = []
        for record in records:
            fields = document(record.value)
            if layout.key is not None:
                fields[layout.key] = None if record.key is None else record.key.decode(errors="replace")
            if layout.stamp is not None:
                fields[layout.stamp] = datetime.fromtimestamp(record.stamp_ms / 1000, UTC)
            documents.append(fields)
        return read(documents)

    return tuples


@dataclass
class Records(Background):
    """The records of a topic as they come."""

    layout: Layout
    place: str
    taps: Sequence[Tap]
    read: Callable[[Sequence[Record]], pa.Table]
    letters: LetterBox
    """Where records go that cannot be used; they are of no source."""
    stream: str
    note: Path
    """How far the topic was read when the logs had how many tuples, written now and then: a start looks through what
    the logs got since."""
    next: list[dict[int, int]] = field(default_factory=list)
    """The offset behind the last record of each partition in each log."""
    dead: Counter[str] = field(default_factory=Counter)
    _ends: set[int] = field(default_factory=set)
    """Partitions that were read to their end."""
    _quiet: bool = False
    """Whether all were."""
    _last_s: float = 0.0
    _noted_s: float = 0.0

    def start(self) -> None:
        self.recall()
        super().start()

    @property
    def ended(self) -> bool:
        """Topics have no end; but for now they have ended when all was read and no more comes for a while."""
        return self._quiet and time.monotonic() - self._last_s > QUIET_S

    def recall(self) -> None:
        """How far each log has come."""
        rows, noted = [0] * len(self.taps), [dict[str, int]() for _ in self.taps]
        if self.note.exists():
            rows, noted = recall(self.note, tuple[list[int], list[dict[str, int]]])
        self.next = []
        for tap, before, known in zip(self.taps, rows, noted, strict=True):
            at = {int(partition): offset for partition, offset in known.items()}
            for frame in tap.log.frames(BESIDE):
                if frame.first + len(frame.columns[0]) > before:
                    for partition, offset in zip(*(c.to_pylist() for c in frame.columns[-2:]), strict=True):
                        at[partition] = max(at.get(partition, 0), offset + 1)
            self.next.append(at)

    def work(self) -> None:
        from confluent_kafka import Consumer, KafkaError

        options = {"fetch.wait.max.ms": "50"} | client_options(self.layout.options, self.place)
        consumer = Consumer(consumer_settings(self.layout.at, options))
        topic = self.layout.at.topic
        assigned: set[int] = set()
        looked_s = -LOOK_S
        try:
            while not self._stopped.is_set():
                if time.monotonic() - looked_s > (LOOK_S if assigned else 0.2):
                    self._assign(consumer, topic, assigned)
                    looked_s = time.monotonic()
                if any(tap.log.full for tap in self.taps):  # the rest waits in the topic
                    self._stopped.wait(0.01)
                    continue
                got = consumer.consume(MOST, 0.05) if not assigned else self._together(consumer)
                records = []
                for message in got:
                    error = message.error()
                    if error is None:
                        records.append(Record.of(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._ends.add(message.partition() or 0)
                    elif hopeless(error):
                        raise NovaError(f"{self.place}: Kafka: {error.str()}")
                if records:
                    self._ends -= {record.partition for record in records}
                    self._last_s = time.monotonic()
                    self.append(records)
                self._quiet = bool(assigned) and self._ends >= assigned
        finally:
            consumer.close()

    def _together(self, consumer: Consumer) -> list[Message]:
        """The next record, and what comes with it."""
        first = consumer.poll(0.05)
        return [] if first is None else [first, *consumer.consume(MOST, WAIT_S)]

    def _assign(self, consumer: Consumer, topic: str, assigned: set[int]) -> None:
        """Read all partitions, each from behind what the logs have of it."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

        try:
            there = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        except KafkaException as error:
            if assigned:  # it was there: the client connects again by itself
                return
            raise NovaError(f"{self.place}: Kafka: {error.args[0].str()}") from None
        first_look = not assigned and not any(self.next)
        latest = self.layout.start == "latest" and first_look
        new = []
        for partition in sorted(set(there) - assigned):
            offsets = [at.get(partition) for at in self.next]
            known = [offset for offset in offsets if offset is not None]
            start = min(known) if len(known) == len(offsets) else OFFSET_END if latest else OFFSET_BEGINNING
            new.append(TopicPartition(topic, partition, start))
        if new:
            consumer.incremental_assign(new)
            assigned |= {one.partition for one in new}

    def append(self, records: Sequence[Record]) -> None:
        """Put records into the logs that do not have them yet."""
        topic = self.layout.at.topic

        def place(fresh: Sequence[Record], at: int) -> tuple[str, int, str]:
            one = fresh[at]
            return f"{topic}/{one.partition}", one.offset, one.value.decode(errors="replace")

        for tap, at in zip(self.taps, self.next, strict=True):
            fresh = [one for one in records if one.offset >= at.get(one.partition, 0)]
            if not fresh:
                continue
            letters = self.letters if tap is self.taps[0] else None
            tuples, source = put_aside(
                self.read(fresh), tap.known, letters, self.dead, self.stream, partial(place, fresh)
            )
            partitions = pa.array([one.partition for one in fresh], pa.int64())
            tap.take(tuples, source, partitions, pa.array([one.offset for one in fresh], pa.int64()))
            for one in fresh:
                at[one.partition] = one.offset + 1
        if time.monotonic() - self._noted_s > NOTE_S:
            self._noted_s = time.monotonic()
            with appearing(self.note) as draft:
                draft.write_text(json.dumps([[tap.log.rows for tap in self.taps], self.next]))


class ToKafka:
    """JSON records with the ids of results as keys, at least once: a consumer can leave out what it has."""

    at_once = True

    def __init__(self, address: str, options: Mapping[str, str]) -> None:
        self._deliverer = Deliverer(Address.parse(address, "--to"), client_options(options, "--to-option"))

    def take(self, name: str, results: pa.Table) -> None:  # noqa: ARG002
        keys = results.column(results.num_columns - 1).to_pylist()  # the ids
        lines = [line for part in results.to_batches() for line in json_lines(part)]
        for key, line in zip(keys, lines, strict=True):
            self._deliverer.send(key, line)

    def settle(self) -> None:
        self._deliverer.settle()

    def close(self) -> None:
        self.settle()
