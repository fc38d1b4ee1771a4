"""Continuous mode: result files that arrive in a folder update the figures and move the nodes that they concern.

Structured Streaming only says which files are new, exactly once, in its checkpoint; a batch then reads them like the
one-off command does, whatever their format. Everything a batch writes is named after the batch or replaced as a whole,
and it builds on the state of the batch before, which is kept until the next one is done. So a batch that is repeated
after a crash overwrites its own traces, and nothing is lost or doubled.

    store/slot=…/batch=N   good pings by time bucket and batch: what figures are computed from
    pairs/day=…/slot=…     figures per pair and bucket; only the buckets of the batch are replaced
    quarantine/batch=N     rows that were turned down
    state/N                RTTs of every pair, coordinates, the nodes that were placed, and `done.json`, written last
    events.jsonl           `node_moved` events, for `nova reoptimize --events`
    coordinates.parquet    the newest coordinates, as columns of a scenario's nodes
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from nova.costspace.table import axes, write_coordinates
from nova.files import appearing
from nova.model.errors import NovaError
from nova.model.options import Options
from nova.model.reading import recall
from nova.model.space import CostSpace
from nova.model.tables import read_parquet
from nova.spark.ingest.embed.engine import embed_table
from nova.spark.ingest.embed.newcomers import place_nodes
from nova.spark.ingest.measurements.aggregate import directed, summarised
from nova.spark.ingest.measurements.files import InputFile, format_of, named, with_head
from nova.spark.ingest.measurements.lines import BLANK, HEADER
from nova.spark.ingest.measurements.nodes import known_nodes
from nova.spark.ingest.measurements.pipeline import Task, partitions, quarantine
from nova.spark.ingest.measurements.read import read
from nova.spark.ingest.measurements.validate import judge

FILES_PER_BATCH = 1000
LEAST_NODES = 4
"""So many nodes, all connected, are needed before there are coordinates at all."""
CHANGED_SHARE, CHANGED_MS = 0.05, 1.0
"""A pair's RTT has changed if it differs by more than both: less does not move a node by anything that matters."""
PLACED_SHARE = 0.25
"""A node is placed anew where so many of its pairs changed. Where one node moves, all others have one changed pair, and
none of them moved."""
PASSES = 2
"""How often nodes that move together are placed, each seeing where the others went."""

_FILES = "path string, modificationTime timestamp, length long, content binary"
_RTTS = "a string, b string, bucket timestamp, rtt_ms double, placed_ms double"
"""`placed_ms`: RTT when one of the two was last placed, null before; changes add up until then."""


@dataclass(frozen=True)
class _Done:
    """What is needed of a finished batch."""

    events_bytes: int
    """Length of the log of events behind it."""


@dataclass(frozen=True)
class Following:
    """What to watch, and how."""

    task: Task
    """One input: the folder. `task.output` is a local folder."""
    options: Options
    moved_ms: float = 10.0
    """A node has moved when it is so far, in ms of latency, from where it was announced last."""
    every_s: float = 10.0
    once: bool = False
    """Take what is there, then stop."""


def follow(
    spark: SparkSession, following: Following, tell: Callable[[dict[str, Any]], None] = lambda _: None
) -> StreamingQuery:
    """Start to follow; `tell` hears about every batch that is done. The query runs until it is stopped."""
    follower = Follower(spark, following, tell)
    (folder,) = following.task.inputs
    new = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .load(folder)
        .select("path", "length")
    )
    writer = new.writeStream.foreachBatch(follower.batch).option(
        "checkpointLocation", str(follower.folder / "checkpoint")
    )
    if following.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{following.every_s} seconds").start()


class Follower:
    """Works off batches of new files."""

    def __init__(self, spark: SparkSession, following: Following, tell: Callable[[dict[str, Any]], None]) -> None:
        self.spark, self.following, self.tell = spark, following, tell
        self.task = following.task
        self.folder = Path(following.task.output)
        self.nodes = known_nodes(spark, self.task.nodes) if self.task.nodes else None
        self.bucket_us = round(self.task.bucket_ms * 1000)

    def batch(self, new: DataFrame, number: int) -> None:
        """One batch, from new files to `done.json`. Called again with the same files, it does nothing or the same."""
        state = self.folder / "state" / str(number)
        if (state / "done.json").exists():
            return  # it was done, only Spark did not get to write that down
        started = time.monotonic()
        before = self.folder / "state" / str(number - 1)
        if number > 0 and not (before / "done.json").exists():
            raise NovaError(f"{before} is missing: the state of the batch before. Was the folder changed by hand?")
        files, unknown = self._files(new)
        figures: dict[str, Any] = {"batch": number, "files": len(files), "unknown_files": unknown}
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        slots: list[str] = []
        if files:
            counted, slots = self._take_in(files, number)
            figures |= counted
        changed = self._rtts(slots, before, state)
        moved, placed = self._move(self._to_place(changed, before, state), before, state)
        figures |= {"changed_pairs": changed.count(), "placed": placed, "moved": len(moved)}
        offset = self._announce(moved, before)
        figures["seconds"] = round(time.monotonic() - started, 3)
        done = json.dumps({"events_bytes": offset, **figures})
        with appearing(state / "done.json") as draft:
            draft.write_text(done)
        for old in (self.folder / "state").iterdir():
            if int(old.name) < number - 1:
                shutil.rmtree(old)
        self.tell(figures | {"events": moved})

    def _files(self, new: DataFrame) -> tuple[list[InputFile], list[str]]:
        """The batch's files that can be read, and the names of those whose ending says nothing."""
        found: list[InputFile] = []
        unknown: list[str] = []
        for row in new.orderBy("path").collect():
            form = format_of(row["path"])
            if form is None:
                unknown.append(row["path"])
            else:
                found.append(with_head(self.spark, named(self.spark, row["path"], row["length"], form)))
        return found, unknown

    def _take_in(self, files: list[InputFile], number: int) -> tuple[dict[str, Any], list[str]]:
        """Judge the new pings, store the good ones, quarantine the others, and bring the figures of their buckets up
        to date. Returns counts and the buckets."""
        raw = read(self.spark, files, self.task.columns)
        # rows of files without any numbers are told apart by their batch as well
        stamped = f.when(~f.col("numbered"), f.lit(number)).otherwise(f.col("time"))
        judged, seen = judge(raw.frame, self.task.rules, self.nodes)
        good = judged.where("reason is null").withColumn("time", stamped)
        pings = directed(good, self.bucket_us).select(
            "*", _slot(f.col("bucket")).alias("slot"), f.lit(number).alias("batch")
        )
        store = str(self.folder / "store")
        _replace(pings, store, "slot", "batch")
        mine = list(Path(store).glob(f"slot=*/batch={number}"))
        slots = sorted(path.parent.name.removeprefix("slot=") for path in mine)
        kept = self._stored(slots, number).where(f.col("batch") == number).count() if slots else 0
        rows = seen.get["rows"]
        turned_down = quarantine(
            self.spark,
            files,
            self.task,
            self.nodes,
            str(self.folder / "quarantine" / f"batch={number}"),
            anything=rows != kept,
        )
        if rows != kept + sum(turned_down.values()):
            raise NovaError(
                f"{rows:,} rows were read, but {kept:,} were good and {sum(turned_down.values()):,} "
                "turned down. Did a file change while it was read?"
            )
        if slots:
            figures = summarised(self._stored(slots, number), partitions(self.spark, files))
            slotted = figures.withColumn("slot", _slot(f.unix_micros("bucket")))
            _replace(slotted, str(self.folder / "pairs"), "day", "slot")
        return {
            "rows": rows,
            "good": kept,
            "quarantined": turned_down,
            "header_lines": seen.get[HEADER],
            "blank_lines": seen.get[BLANK],
        }, slots

    def _stored(self, slots: list[str], number: int) -> DataFrame:
        """Good pings of some buckets, of this batch and those before; one that was begun after it does not count."""
        store = self.folder / "store"
        return (
            self.spark.read.option("basePath", str(store))
            .parquet(*(str(store / f"slot={slot}") for slot in slots))
            .where(f.col("batch") <= number)
        )

    def _rtts(self, slots: list[str], before: Path, state: Path) -> DataFrame:
        """Write the current RTT of every pair (that of its newest bucket) and return the pairs that are new or changed
        since one of their nodes was placed."""
        old = self._placed(before)
        if slots:
            pairs = self.spark.read.parquet(str(self.folder / "pairs")).where(
                f.col("slot").isin(slots) & f.col("median_ms").isNotNull()
            )
            newest = (
                pairs.groupBy("a", "b")
                .agg(
                    f.max_by(f.struct("bucket", "median_ms"), f.coalesce("bucket", f.timestamp_micros(f.lit(0)))).alias(
                        "m"
                    )
                )
                .select("a", "b", f.col("m.bucket").alias("bucket_new"), f.col("m.median_ms").alias("rtt_new"))
            )
            both = old.join(newest, ["a", "b"], "full")
            fresh = f.col("rtt_new").isNotNull() & (
                f.col("rtt_ms").isNull() | f.col("bucket").isNull() | (f.col("bucket_new") >= f.col("bucket"))
            )
            old = both.select(
                "a",
                "b",
                f.when(fresh, f.col("bucket_new")).otherwise(f.col("bucket")).alias("bucket"),
                f.when(fresh, f.col("rtt_new")).otherwise(f.col("rtt_ms")).alias("rtt_ms"),
                "placed_ms",
            )
        old.write.mode("overwrite").parquet(str(state / "rtt"))
        step = f.abs(f.col("rtt_ms") - f.col("placed_ms"))
        changed = f.col("placed_ms").isNull() | (
            (step > CHANGED_MS) & (step > CHANGED_SHARE * f.least("rtt_ms", "placed_ms"))
        )
        return self._read(state / "rtt", _RTTS).where(changed)

    def _placed(self, before: Path) -> DataFrame:
        """RTTs of the batch before; those of the nodes that it placed are now the ones that changes count from."""
        old = self._read(before / "rtt", _RTTS)
        if not (before / "placed.parquet").exists():
            return old
        placed = self.spark.read.parquet(str(before / "placed.parquet"))
        ends = [placed.select(f.col("id").alias(end), f.lit(True).alias(f"{end}_placed")) for end in ("a", "b")]
        now = f.col("a_placed").isNotNull() | f.col("b_placed").isNotNull()
        return (
            old.join(ends[0], "a", "left")
            .join(ends[1], "b", "left")
            .select(
                "a",
                "b",
                "bucket",
                "rtt_ms",
                f.when(now, f.col("rtt_ms")).otherwise(f.col("placed_ms")).alias("placed_ms"),
            )
        )

    def _to_place(self, changed: DataFrame, before: Path, state: Path) -> pa.StringArray:
        """Ids of the nodes that are new or have many changed pairs; all of them before there are coordinates."""

        def ends(pairs: DataFrame, count: str) -> DataFrame:
            return pairs.select(f.explode(f.array("a", "b")).alias("id")).groupBy("id").agg(f.count("*").alias(count))

        counted = ends(changed, "changed").join(ends(self._read(state / "rtt", _RTTS), "pairs"), "id")
        asked = counted.where(f.col("changed") >= PLACED_SHARE * f.col("pairs")).select("id")
        if (before / "coordinates.parquet").exists():
            known = self.spark.read.parquet(str(before / "coordinates.parquet")).select("id")
            asked = asked.union(counted.select("id").join(known, "id", "left_anti")).distinct()
        return asked.orderBy("id").toArrow()["id"].combine_chunks()

    def _move(self, who: pa.StringArray, before: Path, state: Path) -> tuple[list[dict[str, Any]], int]:
        """Place these nodes anew, write all coordinates, and return the events of those that moved and the number of
        nodes that were placed."""
        options = self.following.options
        current = self._read(state / "rtt", _RTTS).select(f.col("a").alias("from"), f.col("b").alias("to"), "rtt_ms")
        if (before / "coordinates.parquet").exists():
            table = read_parquet(before / "coordinates.parquet", "coordinates")
            if len(who):
                table = self._replaced(table, current, who)
            placed = who
        else:
            table = self._first(current, state) if len(who) >= LEAST_NODES else None
            placed = who if table is None else table["id"]
        if table is None:
            return [], 0
        names = [*axes(options.dimensions), "height"]
        now = np.column_stack([table[name].to_numpy() for name in names])
        told = np.column_stack([table[f"told_{name}"].to_numpy() for name in names])
        far = np.linalg.norm(now[:, :-1] - told[:, :-1], axis=1) + np.abs(now[:, -1] - told[:, -1])
        moved = far > self.following.moved_ms
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        ids = table["id"].to_pylist()
        events = [
            {
                "event": "node_moved",
                "node": ids[row],
                "coordinates": now[row, :-1].tolist(),
                "height": float(now[row, -1]),
                "time": at,
            }
            for row in np.flatnonzero(moved)
        ]
        told[moved] = now[moved]
        content = {"id": table["id"]} | {name: now[:, k] for k, name in enumerate(names)}
        content |= {f"told_{name}": told[:, k] for k, name in enumerate(names)}
        with appearing(state / "coordinates.parquet") as draft:
            pq.write_table(pa.table(content), draft)
        space = CostSpace(np.ascontiguousarray(now[:, :-1]), np.ascontiguousarray(now[:, -1]))
        write_coordinates(self.folder / "coordinates.parquet", table["id"].combine_chunks(), space)
        with appearing(state / "placed.parquet") as draft:
            pq.write_table(pa.table({"id": placed}), draft)
        return events, len(placed)

    def _first(self, current: DataFrame, state: Path) -> pa.Table | None:
        """Coordinates of all nodes, the first time."""
        work = state / "work"
        done = embed_table(self.spark, current, work, "follow", self.following.options)
        shutil.rmtree(work)
        inside = np.isfinite(done.space.heights)
        names = [*axes(done.space.dimensions), "height"]
        values = np.column_stack([done.space.coordinates, done.space.heights])[inside]
        columns: dict[str, Any] = {"id": done.ids.filter(pa.array(inside))}
        columns |= {name: values[:, k] for k, name in enumerate(names)}
        return pa.table(columns | {f"told_{name}": values[:, k] for k, name in enumerate(names)})

    def _replaced(self, table: pa.Table, current: DataFrame, touched: pa.StringArray) -> pa.Table:
        """The coordinates with those of the touched nodes found anew; nodes seen for the first time come after them.
        A node that is new has not been announced, so it has not moved."""
        names = [name for name in table.column_names if name != "id" and not name.startswith("told_")]
        before = len(table)
        for _ in range(PASSES):
            space = CostSpace(
                np.column_stack([table[name].to_numpy() for name in names[:-1]]), table["height"].to_numpy().copy()
            )
            found = place_nodes(
                self.spark, current, touched, table["id"].combine_chunks(), space, self.following.options
            )
            known = pc.index_in(found["id"], value_set=table["id"].combine_chunks())
            old = known.is_valid().to_numpy(zero_copy_only=False)
            rows = known.to_numpy(zero_copy_only=False)[old].astype(np.int64)
            columns: dict[str, Any] = {
                "id": pa.concat_arrays(
                    [
                        table["id"].combine_chunks(),
                        found["id"].combine_chunks().filter(pa.array(~old)).cast(pa.string()),
                    ]
                )
            }
            for name in names:
                values = table[name].to_numpy().copy()
                fresh = found[name].to_numpy()
                values[rows] = fresh[old]
                columns[name] = np.concatenate([values, fresh[~old]])
                columns[f"told_{name}"] = np.concatenate([table[f"told_{name}"].to_numpy(), fresh[~old]])
            for name in names:
                columns[f"told_{name}"][before:] = columns[name][before:]
            table = pa.table(columns)
        return table

    def _announce(self, events: list[dict[str, Any]], before: Path) -> int:
        """Append the events to the log behind those of the batch before; what an unfinished batch wrote is cut off.
        Returns the length of the log in bytes."""
        log = self.folder / "events.jsonl"
        start = recall(before / "done.json", _Done, "a batch").events_bytes if before.exists() else 0
        with log.open("r+b" if log.exists() else "w+b") as file:
            file.truncate(start)
            file.seek(start)
            file.write("".join(json.dumps(event) + "\n" for event in events).encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def _read(self, path: Path, schema: str) -> DataFrame:
        """A table of the state; empty before there is one."""
        if not path.exists():
            return self.spark.createDataFrame([], schema)
        return self.spark.read.schema(schema).parquet(str(path))


def _slot(bucket: Column) -> Column:
    """Name of a bucket (µs since the epoch) as a partition."""
    return f.coalesce(f.date_format(f.timestamp_micros(bucket), "yyyyMMdd'T'HHmmss.SSS"), f.lit("undated"))


def _replace(table: DataFrame, folder: str, *names: str) -> None:
    """Write the table by partitions and replace just those that it has."""
    table.write.partitionBy(*names).option("partitionOverwriteMode", "dynamic").mode("overwrite").parquet(folder)
