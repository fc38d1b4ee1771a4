"""Good pings → one row per pair and time bucket.

One shuffle brings the pings of a pair and bucket together, ordered by a 64-bit hash of the group only: Spark sorts a
single long by radix, several times quicker than ids and times. The rest of the order is made inside the groups, where
they are small, by `kernel.summarise`. Memory per task is a batch plus the largest single group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from nova.model.problem import Bools
from nova.spark.ingest.measurements.kernel import COUNTS, VALUES, Longs, quantiles, summarise

BATCH_ROWS = 1 << 18
"""Rows that go to Python at a time: a few MB, enough for vectors to pay."""

UNDATED = "undated"
"""Partition of pings without a time: readers other than Spark cannot name the type of an empty one."""
_GROUP = ("a", "b", "bucket")
_SCHEMA = (
    "a string, b string, bucket long, "
    + ", ".join(f"{name} long" for name in COUNTS)
    + ", "
    + ", ".join(f"{name} double" for name in VALUES)
)


def aggregate(good: DataFrame, bucket_us: int, partitions: int) -> DataFrame:
    """One row per unordered pair (a < b) and bucket, with both directions merged and told apart; see docs.

    `good` has `from_id, to_id, time, timed, sequence, rtt, lost, repeated`; RTTs are in ms, times and `bucket_us` in
    µs. Pings of files without times fall into one bucket, null.
    """
    return summarised(directed(good, bucket_us), partitions)


def directed(good: DataFrame, bucket_us: int) -> DataFrame:
    """Pings as pairs: `a, b, bucket, back, repeated, time, sequence, rtt`, with a < b and null for a lost ping."""
    start = f.when(f.col("timed"), f.col("time") - f.pmod(f.col("time"), f.lit(bucket_us)))
    return good.select(
        f.least("from_id", "to_id").alias("a"),
        f.greatest("from_id", "to_id").alias("b"),
        start.alias("bucket"),
        (f.col("from_id") > f.col("to_id")).alias("back"),
        "repeated",
        f.coalesce("time", f.lit(0)).alias("time"),
        "sequence",
        f.when(~f.col("lost"), f.col("rtt")).alias("rtt"),
    )


def summarised(rows: DataFrame, partitions: int) -> DataFrame:
    """Figures of every pair and bucket of `directed` pings."""
    keyed = rows.select(f.xxhash64(*_GROUP).alias("key"), *_GROUP, "back", "repeated", "time", "sequence", "rtt")
    ordered = keyed.repartition(partitions, "key").sortWithinPartitions("key")
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    summed = ordered.mapInArrow(_summaries, _SCHEMA)
    nan = [f.when(~f.isnan(name), f.col(name)).alias(name) for name in VALUES]
    tidy = summed.select("a", "b", f.timestamp_micros("bucket").alias("bucket"), *COUNTS, *nan)
    return tidy.select(
        "a",
        "b",
        "bucket",
        "count",
        "lost",
        (f.col("lost") / f.col("count")).alias("loss"),
        "min_ms",
        "median_ms",
        "p90_ms",
        "jitter_ms",
        "count_ab",
        "lost_ab",
        "median_ab_ms",
        "count_ba",
        "lost_ba",
        "median_ba_ms",
        (f.col("median_ab_ms") - f.col("median_ba_ms")).alias("asymmetry_ms"),
        "duplicates",
        day(f.col("bucket")).alias("day"),
    )


def day(bucket: Column) -> Column:
    """The partition that a bucket (a timestamp) belongs to."""
    return f.coalesce(f.date_format(bucket, "yyyy-MM-dd"), f.lit(UNDATED))


def latency(pairs: DataFrame, partitions: int) -> DataFrame:
    """One RTT per pair, as scenarios take it (`from, to, rtt_ms`): the median over buckets of their medians, so that a
    busy hour counts no more than a quiet one. Pairs that never answered have none.

    Grouped like the pings themselves: Spark's own exact percentile sorts whole rows once there are many groups.
    """
    keyed = pairs.where("median_ms is not null").select(f.xxhash64("a", "b").alias("key"), "a", "b", "median_ms")
    return (
        keyed.repartition(partitions, "key")
        .sortWithinPartitions("key")
        .mapInArrow(_latencies, "`from` string, `to` string, rtt_ms double")
    )


def _latencies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole_groups(batches):
        table = table.sort_by([(name, "ascending") for name in ("key", "a", "b", "median_ms")]).combine_chunks()
        starts = np.append(np.flatnonzero(_changes(table, ("key", "a", "b"))), len(table))
        middle = quantiles(_numbers(table["median_ms"]), starts, 0.5)
        heads = table.take(pa.array(starts[:-1]))
        yield from pa.table({"from": heads["a"], "to": heads["b"], "rtt_ms": middle}).to_batches(BATCH_ROWS)


def _summaries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole_groups(batches):
        yield from summaries(table)


def whole_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Whole groups out of a stream of batches ordered by key: the last group of a batch waits for the next one."""
    waiting: list[pa.Table] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        keys = table["key"].chunk(0).to_numpy()
        if waiting and keys[-1] == waiting[0]["key"][0].as_py():
            waiting.append(table)
            continue
        cut = int(np.searchsorted(keys, keys[-1]))
        if cut or waiting:
            yield pa.concat_tables([*waiting, table.slice(0, cut)])
        waiting = [table.slice(cut)]
    if waiting:
        yield pa.concat_tables(waiting)


def summaries(table: pa.Table) -> list[pa.RecordBatch]:
    """Figures of all groups of a table of whole groups, ordered by `key`."""
    table = table.combine_chunks()
    changes = _changes(table, _GROUP)
    inside = changes.copy()
    keys = _longs(table["key"])
    inside[1:] &= keys[1:] == keys[:-1]
    inside[0] = False
    if inside.any():  # two groups share a hash: their rows may be mixed, so order them in full
        table = table.sort_by([(name, "ascending") for name in ("key", *_GROUP)]).combine_chunks()
        changes = _changes(table, _GROUP)
    starts = np.append(np.flatnonzero(changes), len(table)).astype(np.int64)
    counts, values = summarise(
        starts,
        _numbers(table["back"]),
        _numbers(table["repeated"]),
        _longs(table["time"]),
        _longs(table["sequence"]),
        _numbers(table["rtt"].fill_null(float("nan"))),
    )
    heads = table.select(list(_GROUP)).take(pa.array(starts[:-1]))
    columns: dict[str, Any] = {name: _chunk(heads[name]) for name in _GROUP}
    return pa.table(columns | counts | values).to_batches(max_chunksize=BATCH_ROWS)  # type: ignore[no-any-return]


def _changes(table: pa.Table, names: Sequence[str]) -> Bools:
    """Mask of rows that differ from the row before in one of the columns."""
    changed = np.ones(len(table), dtype=np.bool_)
    changed[1:] = False
    for name in names:
        column = _chunk(table[name])
        if column.null_count:
            column = column.fill_null(np.iinfo(np.int64).min)  # of the group's columns only the bucket may be null
        changed[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    return changed


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _longs(column: pa.ChunkedArray) -> Longs:
    return np.asarray(_numbers(column), dtype=np.int64)


def _numbers(column: pa.ChunkedArray) -> Any:
    return _chunk(column).to_numpy(zero_copy_only=False)
