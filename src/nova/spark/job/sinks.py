"""Sinks: where results go. A batch that is repeated after a crash replaces what it wrote before.

Files are written by the tasks themselves and published by the driver once the whole batch has succeeded: under their
final names there are only complete results, each exactly once, for any reader and without a manifest.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from json.encoder import encode_basestring_ascii
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nova.files import name_of
from nova.model.errors import InvalidInput
from nova.routing.flow import Flow
from nova.spark.job.tasks import ArrowMap
from nova.spark.sources.tuples import BEAT, REASON
from nova.terminal import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = {"parquet": "parquet", "json": "jsonl"}
"""Formats that tasks write themselves, and the endings of their files."""
SHOWN = 20
"""Results that the console shows of each batch."""


class Sink(Protocol):
    """Takes the results of one query, batch by batch."""

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        """The data flow from pairs of packets to what `write` needs; without `matcher`: from rows that are joined
        already."""
        ...

    def write(self, frame: DataFrame, batch: int) -> None:
        """Write the results of one batch. `frame` must be read as a whole: state is saved along the way."""
        ...


def open_sink(format: str, target: str | None, options: Mapping[str, str], flow: Flow, folder: Path) -> Sink:  # noqa: A002
    """The sink for a format; `folder` is the run's, used where no `target` is named."""
    match format:
        case "parquet" | "json":
            return Files(format, flow.query, Path(target) if target else folder / "results")
        case "console":
            return Console(flow)
        case "mqtt":
            from nova.spark.sources.mqtt import MqttSink

            if target is None:
                raise InvalidInput("results to MQTT need an address: --to mqtt://host:1883/topic")
            return MqttSink(target, dict(options), flow)
        case "kafka":
            from nova.spark.sources.kafka import KafkaSink

            if target is None:
                raise InvalidInput("results to Kafka need an address: --to kafka://host:9092/topic")
            return KafkaSink(target, dict(options), flow)
        case _:
            return AnyFormat(format, target, dict(options), flow)


@dataclass(frozen=True)
class Named:
    """Rows that are joined already, under the names of their query. For `mapInArrow`."""

    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.rename_columns(self.names)


def joined(pairs: DataFrame, matcher: ArrowMap | None) -> tuple[DataFrame, ArrowMap]:
    """What a task gets, and what makes results of it. Columns of joined rows are numbered on the way there: PySpark
    hands over no column whose name has a point, as that of `b.price + 1` has."""
    if matcher is not None:
        return pairs, matcher
    return pairs.toDF(*map(str, range(len(pairs.columns)))), Named(tuple(pairs.columns))


def result_rows(pairs: DataFrame, matcher: ArrowMap | None, flow: Flow) -> DataFrame:
    """Results as rows, in the contract's columns; rows that are joined already stay what they are."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if matcher is None:
        return pairs
    return pairs.mapInArrow(matcher, from_arrow_schema(flow.result()))


@dataclass
class WriteFiles:
    """The last step of a task: joins, and writes its results to a file of its own. For `mapInArrow`."""

    matcher: ArrowMap
    format: str
    staging: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = Path(self.staging) / f"{uuid.uuid4().hex}.{FILES[self.format]}"
        if write_batches(self.matcher(batches), self.format, file):
            yield pa.record_batch({"file": pa.array([str(file)])})


def write_batches(batches: Iterable[pa.RecordBatch], format: str, file: Path) -> bool:  # noqa: A002
    """Write record batches to one file, which is only made when there is something to write; returns whether it is."""
    parquet: pq.ParquetWriter | None = None
    opened = False
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            if not opened:
                file.parent.mkdir(parents=True, exist_ok=True)
            opened = True
            if format == "parquet":
                parquet = parquet or pq.ParquetWriter(file, batch.schema, compression="snappy")
                parquet.write_batch(batch)
            else:
                with file.open("a") as out:
                    out.writelines(f"{line}\n" for line in json_lines(batch))
    finally:
        if parquet is not None:
            parquet.close()
    return opened


ID = "id"


def id_column(columns: Iterable[str]) -> str:
    """Under which name a result tells its id, beside these columns of its own."""
    return f"result_{ID}" if ID in columns else ID


def identified(batches: Iterable[pa.RecordBatch], query: str) -> Iterator[list[tuple[str, str]]]:
    """In a task: results as (id, JSON with the id), the same whenever the batch is repeated."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    seen: Counter[str] = Counter()
    for batch in batches:
        told, field = [], json.dumps(id_column(batch.schema.names))
        for line in json_lines(batch):
            digest = hashlib.blake2b(line.encode(), digest_size=12).hexdigest()
            # equal results of a batch come from one task, so their number tells them apart in every repetition
            name = f"{query}-{number}-{digest}-{seen[digest]}"
            told.append((name, f"{{{field}:{json.dumps(name)},{line[1:]}"))
            seen[digest] += 1
        if told:
            yield told


def json_lines(batch: pa.RecordBatch) -> list[str]:
    """Rows as JSON objects; times in ISO 8601."""
    if not batch.num_rows:
        return []
    row = ",".join(f"{json.dumps(name)}:%s".replace("%", "%%", name.count("%")) for name in batch.schema.names)
    return [f"{{{row % values}}}" for values in zip(*map(_json_values, batch.columns), strict=True)]


def _json_values(column: pa.Array) -> list[str]:
    """Each value as JSON."""
    kind = column.type
    told: list[str]
    if pa.types.is_timestamp(kind):
        moments = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).fill_null(0).to_numpy()
        told = [f'"{moment}Z"' for moment in np.datetime_as_string(moments.view("datetime64[us]")).tolist()]
    elif pa.types.is_floating(kind):
        told = [repr(value) if value is not None and isfinite(value) else "null" for value in column.to_pylist()]
    elif pa.types.is_integer(kind):
        told = list(map(str, column.to_pylist()))
    elif pa.types.is_string(kind):
        told = [encode_basestring_ascii(value or "") for value in column.to_pylist()]
    else:
        told = [json.dumps(value, default=str) for value in column.to_pylist()]
    if column.null_count:
        told = [text if there else "null" for text, there in zip(told, column.is_valid().to_pylist(), strict=True)]
    return told


@dataclass
class Files:
    """Parquet or JSON lines in one flat folder: `<query>-<batch>-<part>.parquet`, by `name_of`."""

    format: str
    query: str
    folder: Path

    @property
    def staging(self) -> Path:
        return self.folder / f".staging-{name_of(self.query)}"

    def _file(self, batch: int, part: int) -> Path:
        return self.folder / f"{name_of(self.query)}-{batch:08d}-{part:03d}.{FILES[self.format]}"

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        rows, make = joined(pairs, matcher)
        return rows.mapInArrow(WriteFiles(make, self.format, str(self.staging)), "file string")

    def write(self, frame: DataFrame, batch: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = sorted(row.file for row in frame.collect())
        before = takewhile(Path.exists, (self._file(batch, part) for part in count()))
        for old in reversed(list(before)):  # of an earlier attempt; from the last, so that no gap hides others
            old.unlink()
        for part, file in enumerate(written):
            Path(file).rename(self._file(batch, part))
        for left_over in self.staging.iterdir() if self.staging.exists() else ():
            left_over.unlink()  # of tasks that failed or ran twice


@dataclass
class HandOver:
    """Rows that a later join of the same run reads as they come: one file for each batch, published once. A batch that
    is repeated makes the same rows, so what it published before stays.

    With them goes how far the join has come, as a row that is no tuple (`BEAT`): also where a join makes nothing, those
    that read it drop their state and close their groups in time.
    """

    folder: Path
    come_us: Callable[[], int | None]
    """Event time (µs) that the rows of this and later batches are out of order with as with any tuple of that time;
    None: not yet known."""
    _told: int | None = None
    """The last that was handed over."""

    @property
    def staging(self) -> Path:
        return self.folder / ".staging"

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        rows, make = joined(self._with_beat(pairs), matcher)
        writer = WriteFiles(make, "parquet", str(self.staging))
        return rows.repartition(1).mapInArrow(writer, "file string")

    def _with_beat(self, rows: DataFrame) -> DataFrame:
        """The rows of a batch, and one that says how far the join has come, where that is further than before."""
        from pyspark.sql import functions as F

        rows = rows.withColumn(REASON, F.lit(None).cast("string"))
        come = self.come_us()
        if come is None or (self._told is not None and come <= self._told):
            return rows
        self._told = come
        known = {"time": F.timestamp_micros(F.lit(come)), REASON: F.lit(BEAT)}
        told = [known.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name) for one in rows.schema]
        return rows.union(rows.sparkSession.range(1).select(*told))

    def write(self, frame: DataFrame, batch: int) -> None:
        file = self.folder / f"{batch:08d}.parquet"
        for row in frame.collect():
            if not file.exists():
                Path(row.file).rename(file)
        for left_over in self.staging.iterdir() if self.staging.exists() else ():
            left_over.unlink()


@dataclass
class Console:
    """Prints the first results of each batch. For small streams: all results pass through the driver."""

    flow: Flow

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        return result_rows(pairs, matcher, self.flow)

    def write(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if rows:
            shown = [[plain(value) for value in row] for row in rows[:SHOWN]]
            table(f"{self.flow.query}, batch {batch}: {len(rows):,} results", frame.columns, shown)


@dataclass
class AnyFormat:
    """Any format that Spark writes. Exactly once where the format can tell a repeated batch, at least once else."""

    format: str
    target: str | None
    options: dict[str, str]
    flow: Flow

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        return result_rows(pairs, matcher, self.flow)

    def write(self, frame: DataFrame, batch: int) -> None:
        repeated = {"txnAppId": f"nova-{self.flow.query}", "txnVersion": str(batch)} if self.format == "delta" else {}
        writer = frame.write.format(self.format).options(**(repeated | self.options))
        if self.format == "noop":
            writer.mode("overwrite").save()
        else:
            writer.mode("append").save(self.target)


def plain(value: Any) -> Any:
    """A value as a table shows it."""
    return str(value) if not isinstance(value, int | float | str) else value
