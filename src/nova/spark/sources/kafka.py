"""Kafka: streams from topics and results to topics, through Spark's own connector. (In real time there is a client of
its own: see `realtime/records.py`.)

Offsets are in Spark's checkpoint, so a run that is continued reads every record once. Results carry an id that is the
same when a batch is repeated after a crash: a consumer that takes each id once has every result exactly once.

The connector is a Maven package. Its jars are taken from the cache folder that `script/kafka` fills, else Spark fetches
them from Maven Central when the session starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from nova.credentials import resolved_all
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.scenario.model import StreamInput
from nova.spark.sources.clock import MOST_ROWS
from nova.spark.sources.tuples import FILE, LINE, RECORD, declared, json_payload, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nova.routing.flow import Flow
    from nova.spark.job.tasks import ArrowMap

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
PORT = 9092


def cache() -> Path:
    """The folder that `script/kafka` fills."""
    return Path(os.environ.get("NOVA_KAFKA") or Path.home() / ".cache" / "nova" / "kafka")


def connector() -> dict[str, str]:
    """Spark settings that bring the connector into a new session."""
    import pyspark

    jars = sorted((cache() / "connector").glob("*.jar"))
    if any(jar.name.startswith("spark-sql-kafka") for jar in jars):
        return {"spark.jars": ",".join(map(str, jars))}
    return {"spark.jars.packages": f"{PACKAGE}:{pyspark.__version__}"}


def require(spark: SparkSession) -> None:
    """Say what to do where a session lacks the connector."""
    assert spark._jvm is not None
    try:
        spark._jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider()
    except TypeError:  # what py4j cannot find is a package, and that cannot be called
        raise NovaError(
            f"this Spark session has no Kafka connector: start it with --packages {PACKAGE}:{spark.version}"
        ) from None


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


@dataclass(frozen=True)
class Layout:
    """What an input says about its records."""

    ddl: str
    """Columns of the JSON value."""
    key: str | None
    """Name of a column for the record's key."""
    stamp: str | None
    """Name of a column for Kafka's own time."""
    settings: dict[str, str]
    """All other options, in the connector's words."""

    @staticmethod
    def of(given: StreamInput, place: str) -> Layout:
        """`path` is the address. The option `schema` lists the columns of the value, by default source, time and value
        under their names in `columns`; `key` and `timestamp` name columns for the record's key and Kafka's own time.
        All others are the connector's: `startingOffsets` (here `earliest`), `maxOffsetsPerTrigger`,
        `kafka.security.protocol`…"""
        options = {name: str(value) for name, value in given.options.items()}
        names = given.columns
        key, stamp = options.pop("key", None), options.pop("timestamp", None)
        usual = {names.source: "STRING", names.time: "STRING", names.value: "DOUBLE"}
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in usual.items() if name not in (key, stamp))
        ddl = options.pop("schema", columns)
        settings = {"startingOffsets": "earliest"}
        if given.path:
            at = Address.parse(given.path, place)
            settings |= {"kafka.bootstrap.servers": at.servers, "subscribe": at.topic}
        elif "kafka.bootstrap.servers" not in options:
            raise InvalidInput([Fault(place, "Kafka input needs a path such as kafka://host:9092/topic", field="path")])
        return Layout(ddl, key, stamp, settings | options)

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
    key, stamp = layout.key, layout.stamp
    settings = {"maxOffsetsPerTrigger": str(MOST_ROWS), **layout.settings}
    require(spark)
    reader = spark.readStream.format("kafka").options(**resolved_all(settings, f"{place}.options"))
    text = sql.col("value").cast("string")
    frame = reader.load().withColumn("body", json_payload(text, declared(layout.ddl, place)))
    own = [sql.col("key").cast("string").alias(key)] if key else []
    own += [sql.col("timestamp").alias(stamp)] if stamp else []
    return frame.select(
        "body.*",
        *own,
        sql.concat_ws("/", "topic", "partition").alias(FILE),
        sql.col("offset").alias(LINE),
        text.alias(RECORD),
    )


@dataclass
class Records:
    """The last step of a task: joins, and makes a record of each result: its id as key, JSON as value."""

    matcher: ArrowMap
    query: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from nova.spark.job.sinks import identified

        for lines in identified(self.matcher(batches), self.query):
            keys, values = zip(*lines, strict=True)
            yield pa.record_batch({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})


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

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        from nova.spark.job.sinks import as_it_is

        require(pairs.sparkSession)
        if matcher is None:  # rows of a query: equal ones may come from several tasks, but are told apart within one
            pairs = pairs.coalesce(1)
        return pairs.mapInArrow(Records(matcher or as_it_is, self.flow.query), "key string, value string")

    def write(self, frame: DataFrame, batch: int) -> None:  # noqa: ARG002
        options = {"kafka.bootstrap.servers": self.at.servers, "topic": self.at.topic}
        frame.write.format("kafka").options(**(options | resolved_all(self.options, "--to-option"))).save()
