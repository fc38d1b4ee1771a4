"""Kafka: streams from topics and results to topics, in batches here and record by record in `realtime/records.py`.

The client is librdkafka's, from PyPI, in both modes: no package for the JVM has to fit Spark's version. Offsets are in
Spark's checkpoint, so a run that is continued reads every record once. Results carry an id that is the same when a
batch is repeated after a crash: a consumer that takes each id once has every result exactly once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from nova.credentials import resolved_all
from nova.extras import optional
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.scenario.model import StreamInput
from nova.spark.sources.clock import MOST_ROWS
from nova.spark.sources.tuples import FILE, LINE, RECORD, declared, json_payload, quoted

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nova.routing.flow import Flow
    from nova.spark.job.tasks import ArrowMap

PORT = 9092
PREFIX = "kafka."
"""What the names of the client's own options begin with."""
OPTIONS = ("schema", "key", "timestamp", "startingOffsets", "maxOffsetsPerTrigger", f"{PREFIX}…")
STARTS = ("earliest", "latest")
ANSWER_S = 30.0
"""Longest wait for the broker: to say what it has, to hand over records that it said it has, to take results."""
TOGETHER = 5000
"""Records that are handed to Spark at a time."""
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def cache() -> Path:
    """The folder that `script/kafka` fills with a broker, for tests and benchmarks."""
    return Path(os.environ.get("NOVA_KAFKA") or Path.home() / ".cache" / "nova" / "kafka")


@dataclass(frozen=True)
class Address:
    """Where to connect: `kafka://host:9092,host:9092/topic`."""

    servers: str
    topic: str

    @staticmethod
    def parse(address: str, place: str) -> Address:
        """Read an address; what is missing is said."""
        parts = urlsplit(address)
        servers = [host if ":" in host else f"{host}:{PORT}" for host in parts.netloc.split(",") if host]
        topic = parts.path.strip("/")
        if parts.scheme != "kafka" or not servers or not topic or "@" in parts.netloc:
            wanted = "a Kafka address looks like kafka://host:9092/topic (security goes into options)"
            raise InvalidInput([Fault(place, wanted, value=address)])
        return Address(",".join(servers), topic)


def client_options(options: Mapping[str, str], place: str) -> dict[str, str]:
    """The client's own among the options, with what their references stand for; others, and what the client does not
    know, are refused."""
    with optional("Kafka"):
        from confluent_kafka import KafkaException, Producer

    strange = [name for name in options if not name.startswith(PREFIX)]
    if strange:
        wrong = f"no such option of Kafka; there are {', '.join(OPTIONS)}"
        raise InvalidInput([Fault(place, wrong, field=f"options.{name}", value=options[name]) for name in strange])
    own = {name.removeprefix(PREFIX): value for name, value in options.items()}
    resolved = resolved_all(own, f"{place}.options")
    try:
        Producer({**resolved, "log_level": 0})
    except KafkaException as error:
        raise InvalidInput(
            [
                Fault(
                    f"{place}.options",
                    f"Kafka's client (librdkafka) refuses them: {error.args[0].str()}; it has kafka.sasl.username and "
                    "kafka.sasl.password in place of a JAAS text, kafka.ssl.ca.location in place of Java's trust store",
                )
            ]
        ) from None
    return resolved


def consumer_settings(at: Address, options: Mapping[str, str]) -> dict[str, Any]:
    """For who reads partitions from offsets that stand elsewhere. `options`: of `client_options`."""
    return {
        **options,
        "bootstrap.servers": at.servers,
        "group.id": "nova",  # only a name
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "log_level": 0,
    }


def hopeless(error: KafkaError) -> bool:
    """Whether an error of a consumer stays: its records are gone, say. From others the client recovers by itself."""
    from confluent_kafka import KafkaError

    return error.fatal() or error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True)
class Layout:
    """What an input says about its topic and records."""

    ddl: str
    """Columns of the JSON value."""
    key: str | None
    """Name of a column for the record's key."""
    stamp: str | None
    """Name of a column for Kafka's own time."""
    at: Address
    start: str
    """`earliest` or `latest`: where reading begins."""
    most: int
    """Records that one batch takes at the most."""
    options: dict[str, str]
    """The client's own, as the scenario has them: references to secrets are still references."""

    @staticmethod
    def of(given: StreamInput, place: str) -> Layout:
        """`path` is the address. The option `schema` lists the columns of the value, by default source, time and value
        under their names in `columns`; `key` and `timestamp` name columns for the record's key and Kafka's own time;
        `startingOffsets` is `earliest` (the default) or `latest`, `maxOffsetsPerTrigger` bounds a batch. All others are
        the client's: `kafka.security.protocol`…"""
        options = {name: str(value) for name, value in given.options.items()}
        names = given.columns
        key, stamp = options.pop("key", None), options.pop("timestamp", None)
        usual = {names.source: "STRING", names.time: "STRING", names.value: "DOUBLE"}
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in usual.items() if name not in (key, stamp))
        ddl = options.pop("schema", columns)
        start, most = options.pop("startingOffsets", STARTS[0]), options.pop("maxOffsetsPerTrigger", str(MOST_ROWS))
        faults = []
        if start not in STARTS:
            faults.append(Fault(place, f"one of {', '.join(STARTS)}", field="options.startingOffsets", value=start))
        if not most.isdigit() or int(most) < 1:
            faults.append(Fault(place, "a whole number from 1", field="options.maxOffsetsPerTrigger", value=most))
        if not given.path:
            faults.append(Fault(place, "Kafka input needs a path such as kafka://host:9092/topic", field="path"))
        if faults:
            raise InvalidInput(faults)
        at = Address.parse(given.path or "", place)
        client_options(options, place)
        return Layout(ddl, key, stamp, at, start, int(most), options)

    def columns(self, place: str) -> StructType:
        """All columns of a record; needs a session of Spark."""
        from pyspark.sql.types import StringType, StructField, StructType, TimestampType

        own = [StructField(self.key, StringType())] if self.key else []
        own += [StructField(self.stamp, TimestampType())] if self.stamp else []
        return StructType([*declared(self.ddl, place).fields, *own])


def open_kafka(spark: SparkSession, given: StreamInput, place: str) -> DataFrame:
    """Records with JSON values as rows with the columns that the scenario names."""
    from pyspark.sql import functions as sql

    layout = Layout.of(given, place)
    spark.dataSource.register(Kafka)
    reader = spark.readStream.format(Kafka.name()).option("servers", layout.at.servers).option("topic", layout.at.topic)
    reader = reader.option("start", layout.start).option("most", str(layout.most)).option("place", place)
    reader = reader.option("client", json.dumps(layout.options))
    frame = reader.load().withColumn("body", json_payload(sql.col("value"), declared(layout.ddl, place)))
    own = [sql.col("key").alias(layout.key)] if layout.key else []
    own += [sql.col("timestamp").alias(layout.stamp)] if layout.stamp else []
    return frame.select(
        "body.*",
        *own,
        sql.concat_ws("/", sql.lit(layout.at.topic), "partition").alias(FILE),
        sql.col("offset").alias(LINE),
        sql.col("value").alias(RECORD),
    )


class Kafka(DataSource):
    """`spark.readStream.format("nova_kafka")` with the options servers, topic, start, most, place and client."""

    @classmethod
    def name(cls) -> str:
        return "nova_kafka"

    def schema(self) -> str:
        return "key string, value string, partition long, offset long, timestamp timestamp"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return KafkaReader(dict(self.options))


@dataclass
class Span(InputPartition):
    """Records of one partition by offset, the last excluded."""

    partition: int
    start: int
    end: int


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are Kafka's: partition → the next record's. Secrets are looked up where the run was started, once."""

    def __init__(self, options: dict[str, str]) -> None:
        self.topic, self.start, self.most, self.place = (options[name] for name in ("topic", "start", "most", "place"))
        client = client_options(json.loads(options["client"]), self.place)
        self.settings = consumer_settings(Address(options["servers"], self.topic), client)
        self._till: dict[str, int] | None = None
        """Where to stop, when only what is there now is to be read."""
        self._asks: Consumer | None = None

    def __getstate__(self) -> dict[str, Any]:  # tasks open their own
        return {**self.__dict__, "_asks": None}

    def _there(self) -> dict[str, tuple[int, int]]:
        """Partition → its first and its next offset, now."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        if self._asks is None:
            self._asks = Consumer(self.settings)
        try:
            found = self._asks.list_topics(self.topic, timeout=ANSWER_S).topics[self.topic].partitions
            return {
                str(number): self._asks.get_watermark_offsets(TopicPartition(self.topic, number), timeout=ANSWER_S)
                for number in sorted(found)
            }
        except KafkaException as error:
            raise NovaError(f"{self.place}: Kafka: {error.args[0].str()}") from None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {number: ends[STARTS.index(self.start)] for number, ends in self._there().items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._till = {number: end for number, (_, end) in self._there().items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        ends = {number: end for number, (_, end) in self._there().items()} if self._till is None else self._till
        waiting = {number: max(end - start.get(number, 0), 0) for number, end in ends.items()}
        # each partition its part of what a batch may take, rounded up: none starves
        share = min(1.0, int(self.most) / max(sum(waiting.values()), 1))
        return start | {number: start.get(number, 0) + ceil(count * share) for number, count in waiting.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        spans = (Span(int(number), start.get(number, 0), last) for number, last in end.items())
        return [span for span in spans if span.end > span.start]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        assert isinstance(partition, Span)
        consumer = Consumer(self.settings)
        try:
            consumer.assign([TopicPartition(self.topic, partition.partition, partition.start)])
            yield from self._read(consumer, partition)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, span: Span) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import KafkaError

        at, deadline = span.start, time.monotonic() + ANSWER_S
        while at < span.end:
            rows = []
            for message in consumer.consume(TOGETHER, 0.1):
                error, offset = message.error(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if hopeless(error):
                        raise NovaError(f"{self.place}: Kafka: {error.str()}")
                    continue
                assert offset is not None
                if error is None and offset < span.end:
                    moment_us = message.timestamp()[1] * 1000
                    rows.append((text(message.key()), text(message.value()) or "", span.partition, offset, moment_us))
                # marks of transactions take offsets too, but are no records: a later record or the end of the
                # partition tells that they were passed
                at = max(at, offset + (error is None))
            if rows:
                deadline = time.monotonic() + ANSWER_S
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
                )
            elif at < span.end and time.monotonic() > deadline:
                missing = f"offset {at} of {self.topic}/{span.partition}"
                raise NovaError(f"{self.place}: Kafka did not hand over {missing} in {ANSWER_S:.0f} s")

    def stop(self) -> None:
        if self._asks is not None:
            self._asks.close()


def text(told: str | bytes | None) -> str | None:
    """Of a record's key or value: what is no UTF-8 is replaced, and so will not parse."""
    return told.decode(errors="replace") if isinstance(told, bytes) else told


class Deliverer:
    """Writes records to a topic."""

    def __init__(self, at: Address, options: Mapping[str, str]) -> None:
        from confluent_kafka import Producer

        self.at = at
        self._failures: list[str] = []
        self._producer = Producer(
            {
                "linger.ms": 1,
                **options,
                "bootstrap.servers": at.servers,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def send(self, key: str, value: str) -> None:
        """Hand one record to the client; `settle` says whether it arrived."""
        while True:
            try:
                self._producer.produce(self.at.topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:  # the client's queue is full
                self._producer.poll(0.01)

    def settle(self) -> None:
        """Wait until the broker has all records; an error where that does not happen."""
        left = self._producer.flush(ANSWER_S)
        if left or self._failures:
            why = self._failures[0] if self._failures else f"{left} records were not taken in {ANSWER_S:.0f} s"
            raise NovaError(f"Kafka at {self.at.servers}, topic {self.at.topic}: {why}")

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())


@dataclass
class Deliver:
    """The last step of a task: joins, and writes a record for each result: its id as key, JSON as value. For
    `mapInArrow`."""

    matcher: ArrowMap
    query: str
    at: Address
    options: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from nova.spark.job.sinks import identified

        deliverer: Deliverer | None = None
        rows = 0
        for lines in identified(self.matcher(batches), self.query):
            deliverer = deliverer or Deliverer(self.at, self.options)
            for name, line in lines:
                deliverer.send(name, line)
            rows += len(lines)
        if deliverer is not None:
            deliverer.settle()
        yield pa.record_batch({"rows": pa.array([rows], pa.int64())})


@dataclass
class KafkaSink:
    """Results as JSON records with their id as key, at least once: a batch that is repeated after a crash writes the
    same ids again, so that a consumer can leave out what it has."""

    address: str
    options: Mapping[str, str]
    flow: Flow
    at: Address = field(init=False)

    def __post_init__(self) -> None:
        self.at = Address.parse(self.address, "--to")
        self.options = client_options(self.options, "--to-option")

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        from nova.spark.job.sinks import joined

        if matcher is None:  # rows of a query: equal ones may come from several tasks, but are told apart within one
            pairs = pairs.coalesce(1)
        rows, make = joined(pairs, matcher)
        return rows.mapInArrow(Deliver(make, self.flow.query, self.at, self.options), "rows bigint")

    def write(self, frame: DataFrame, batch: int) -> None:  # noqa: ARG002
        frame.collect()
