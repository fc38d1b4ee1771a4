"""Around the join: filters and projections before it, where tuples are born; the rest of the query after it.

    input ─ filter, project, copy into windows ─ [route, join] ─ filter ─┬─ project ─────────────────────── sink
                                                                         └─ partial aggregates ─ merge ─ project ─ sink

Partial aggregates are made of each host's results in each batch; where the plan says so, other hosts merge those of
several before the sink gets them (`merging`). The sink keeps partials until no result of their window can come any
more, and then writes one row per group: once, also when a batch is repeated after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from nova.model.errors import Fault, InvalidInput
from nova.model.operators import Grouping, Pipeline, Side
from nova.query.layers import GROUPS
from nova.routing.flow import Flow
from nova.routing.routes import SideName
from nova.spark.job.kept import Kept
from nova.spark.job.selectivity import CAME, PASSED, Selectivity
from nova.spark.job.sinks import Sink, result_rows
from nova.spark.job.tasks import ORIGINAL, ArrowMap
from nova.spark.job.unmatched import Unmatched, found_in
from nova.spark.session import first_line
from nova.spark.sources.clock import Clock
from nova.spark.sources.inputs import MOST_BYTES, Input
from nova.spark.sources.tuples import HIDDEN, REASON, column_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

START = "_start"
"""Start of a group's window, in µs since 1970."""
PAIRS = "pairs"
"""Under which Spark counts the pairs of a batch that join."""
AFTER_END = 10**8
"""Added to the number of the last batch where what is left is written at the end of the input."""
CROWDED = 10_000
"""Partial aggregates beyond which those of one group are merged before their window is over."""


def before(frame: DataFrame, side: Side, place: str, counted: SideName | None = None) -> DataFrame:
    """What of a stream travels: tuples that pass, the columns that are needed, `_key0`, …, and one copy per window.
    `counted`: under which name Spark observes how many tuples come and pass, where it can (not in real time)."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        dead = column_of(REASON).isNotNull() if REASON in frame.columns else F.lit(False)
        if side.columns is not None and counted is not None:
            passes = F.lit(True) if side.where is None else F.expr(side.where)
            frame = frame.observe(counted, F.count_if(~dead).alias(CAME), F.count_if(~dead & passes).alias(PASSED))
        if side.where is not None:
            frame = frame.where(dead | F.expr(side.where))
        names = [name for name in frame.columns if name not in ("source", "time", "value")]
        kept = [name for name in names if side.columns is None or name in (*side.columns, *HIDDEN)]
        missing = sorted(set(side.columns or ()) - set(names))
        if missing:
            raise InvalidInput([Fault(place, "the input has no such column", field="columns", value=missing[0])])
        keys = [F.expr(text).alias(f"_key{number}") for number, text in enumerate(side.keys)]
        moved = [] if side.times is None else [F.col("time").alias(ORIGINAL)]
        chosen = frame.select("source", "time", "value", *(F.col(f"`{name}`") for name in kept), *keys, *moved)
        return chosen if side.times is None else chosen.withColumn("time", F.explode_outer(F.expr(side.times)))
    except AnalysisException as error:
        raise InvalidInput([Fault(place, f"Spark refuses the query: {first_line(error)}", field="sql")]) from None


def keys_of(pipeline: Pipeline) -> tuple[str, ...]:
    """Columns that must be equal for two tuples to join."""
    return tuple(f"_key{number}" for number in range(len(pipeline.left.keys))) or pipeline.on


@dataclass
class AtHosts:
    """A sink for joined rows that does what a query asks of them where they are joined, and hands on what leaves."""

    inner: Sink
    flow: Flow
    pipeline: Pipeline
    counted: Selectivity | None = None
    """Takes in how many pairs satisfy all conditions of the join."""
    found: Callable[[int, pa.Table], None] | None = None
    """Of an outer join: takes in, batch by batch, which tuples have found a partner."""

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        """Joined rows; the rest happens batch by batch."""
        return result_rows(pairs, matcher, self.flow)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Filter, make partial aggregates, and hand on."""
        if self.found is None:
            self._hand_on(frame if self.pipeline.where is None else frame.where(self.pipeline.where), batch)
            return
        joined = (frame if self.pipeline.match is None else frame.where(self.pipeline.match)).persist()
        try:
            self.found(batch, found_in(joined, self.pipeline.keeps))
            self._hand_on(joined, batch)
        finally:
            joined.unpersist()

    def _hand_on(self, rows: DataFrame, batch: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        pairs = Observation()
        if self.counted is not None:
            rows = rows.observe(pairs, F.count(F.lit(1)).alias(PAIRS))
        self.inner.write(self.inner.attach(leaving(rows, self.pipeline), None), batch)
        if self.counted is not None:
            self.counted.joined(batch, int(pairs.get[PAIRS]))


def leaving(rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Rows that satisfy the conditions of the join as they leave their hosts: as partial aggregates where the query
    groups them; without those of an outer join that it leaves out for another reason."""
    passing = rows if pipeline.where is None else rows.where(pipeline.where)
    return passing if pipeline.group is None else partial(passing, pipeline.group)


@dataclass
class AtSink:
    """A sink for what leaves the hosts of a query, that makes its results of it and hands these to another sink."""

    inner: Sink
    pipeline: Pipeline
    folder: Path
    """Keeps the groups of open windows, one file for each batch."""
    bucket_us: int
    """Length of the buckets that the join's state is dropped by."""
    watermark_us: Callable[[], int | None]
    """Event time before which no packet of a batch to come is joined; None: not yet known."""
    counted: Selectivity | None = None
    """Takes in how many groups windows have."""
    unmatched: Unmatched | None = None
    """Where the query keeps tuples that join nothing."""

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        """What leaves the hosts, as it is; a `matcher` only looks at it."""
        return pairs if matcher is None else pairs.mapInArrow(matcher, pairs.schema)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Add what joined nothing, then project or group, and write."""
        if self.unmatched is not None:
            lone = self.unmatched.of_batch(batch, self.watermark_us())
            if len(lone):
                frame = frame.unionByName(leaving(_frame(frame.sparkSession, lone), self.pipeline))
        self._write(frame, batch)

    def _write(self, rows: DataFrame, batch: int) -> None:
        if self.pipeline.group is None:
            self._hand_on(project(rows, self.pipeline), batch)
            return
        group, spark = self.pipeline.group, rows.sparkSession
        groups = Kept(self.folder)
        state, closed = groups.before(batch)
        state = _with_open(state, rows, closed)
        watermark = self.watermark_us()
        if watermark is not None:
            until = watermark - group.size_us - group.slack_us - self.bucket_us
            closed = until if closed is None else max(until, closed)
        over = pc.less_equal(state[START], closed) if closed is not None else pa.nulls(len(state), pa.bool_())
        self._hand_on(finish(spark, state.filter(over), self.pipeline), batch)
        self._closed(state.filter(over), group, batch)
        groups.save(batch, _merged(spark, state.filter(pc.invert(pc.fill_null(over, False))), group), closed)

    def end(self, spark: SparkSession) -> None:
        """The input has ended: write the tuples that joined nothing, and the groups of all windows that are open."""
        lone = None if self.unmatched is None else self.unmatched.rest()
        rows = None if lone is None or not len(lone) else leaving(_frame(spark, lone), self.pipeline)
        if self.pipeline.group is not None:
            self._end_groups(spark, rows)
        elif rows is not None and self.unmatched is not None:
            self._hand_on(project(rows, self.pipeline), AFTER_END + (self.unmatched.open.last() or 0))
        if self.unmatched is not None:
            self.unmatched.forget()

    def _end_groups(self, spark: SparkSession, rows: DataFrame | None) -> None:
        """Write the groups of all windows that are still open, these partial aggregates included."""
        assert self.pipeline.group is not None
        groups = Kept(self.folder)
        last = groups.last()
        if last is None:
            return
        state, closed = groups.before(last + 1)
        if rows is not None:  # a run that died after it had written them comes here again
            state = _with_open(state, rows, closed)
        if state is None or not state.num_rows:
            return
        self._hand_on(finish(spark, state, self.pipeline), AFTER_END + last)
        self._closed(state, self.pipeline.group, AFTER_END + last)
        if self.counted is not None:
            self.counted.note(AFTER_END + last, {})
        latest = pc.max(state[START]).as_py()
        groups.save(last, state.slice(0, 0), latest if closed is None else max(latest, closed))

    def _hand_on(self, rows: DataFrame, batch: int) -> None:
        self.inner.write(self.inner.attach(rows, None), batch)

    def _closed(self, state: pa.Table, group: Grouping, batch: int) -> None:
        """Count the groups of windows that are over; keys that hold others within them are not told apart."""
        names = [START, *(name for name, _ in group.keys)]
        nested = any(pa.types.is_nested(state.schema.field(name).type) for name in names)
        if self.counted is not None and state.num_rows and not nested:
            groups = state.group_by(names).aggregate([]).num_rows
            self.counted.closed(batch, groups, len(pc.unique(state[START])))


def _with_open(state: pa.Table | None, partials: DataFrame, closed: int | None) -> pa.Table:
    """Partial aggregates of windows that are open, with those of earlier batches; those of windows that are over come
    too late."""
    fresh = partials.drop("node").toArrow()
    if closed is not None:
        fresh = fresh.filter(pc.greater(fresh[START], closed))
    return fresh if state is None else pa.concat_tables([state, fresh.cast(state.schema)])


def project(rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The columns that a query selects."""
    return rows.select(*_columns(pipeline.select)) if pipeline.select else rows


def handed_over(spark: SparkSession, folder: Path, flow: Flow, pipeline: Pipeline, clock: Clock | None) -> Input:
    """What a join makes for another one, as the tuples of a stream."""
    from pyspark.sql.pandas.types import from_arrow_schema

    folder.mkdir(parents=True, exist_ok=True)
    rows = project(spark.createDataFrame([], from_arrow_schema(flow.result())), pipeline)
    schema = rows.schema.add(REASON, "string")
    reader = spark.readStream.schema(schema).option("maxBytesPerTrigger", MOST_BYTES)
    return Input(reader.parquet(str(folder)), clock, at_hand=True)


def partial(rows: DataFrame, grouping: Grouping) -> DataFrame:
    """Rows of one batch as partial aggregates by host, window and keys; row by row where they cannot be merged."""
    from pyspark.sql import functions as F

    keys = _columns(grouping.keys)
    spread = rows.withColumn(START, F.explode(F.expr(grouping.window)))
    if not grouping.merge and grouping.partial:
        return spread.select("node", START, *keys, *_columns(grouping.partial))
    named = spread.select("*", *keys)
    names = [name for name, _ in grouping.keys]
    return aggregated(named, ["node", START, *names], grouping.partial)


def finish(spark: SparkSession, state: pa.Table, pipeline: Pipeline) -> DataFrame:
    """Merged groups as the query selects them, with all that it asks of them together."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    grouping = pipeline.group
    assert grouping is not None
    names = [name for name, _ in grouping.keys]
    whole = aggregated(_frame(spark, state), [START, *names], grouping.final)
    start = F.timestamp_micros(F.col(START))
    end = F.timestamp_micros(F.col(START) + F.lit(grouping.size_us))
    bounded = whole.select("*", start.alias("window_start"), end.alias("window_end"))
    kept = bounded if grouping.having is None else bounded.where(grouping.having)
    chosen = kept.select(*_columns(pipeline.select))
    if not pipeline.layers:
        return chosen
    view = f"_nova_{uuid.uuid4().hex}"
    chosen.createOrReplaceTempView(view)
    try:
        return spark.sql(pipeline.layers.replace(GROUPS, view))
    except AnalysisException as error:
        raise InvalidInput([Fault("sql", f"Spark refuses the query: {first_line(error)}", field="sql")]) from None
    finally:
        spark.catalog.dropTempView(view)


def _merged(spark: SparkSession, state: pa.Table, grouping: Grouping) -> pa.Table:
    """Fewer partial aggregates for the same groups, where there are many."""
    if state.num_rows <= CROWDED or not grouping.merge:
        return state
    names = [START, *(name for name, _ in grouping.keys)]
    merged = aggregated(_frame(spark, state), names, grouping.merge).toArrow()
    return merged.select(state.column_names).cast(state.schema)


def _frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a data frame; each column in one piece, as Spark takes no column of none."""
    return spark.createDataFrame(pa.table([column.combine_chunks() for column in table.columns], schema=table.schema))


def aggregated(frame: DataFrame, names: list[str], aggregates: Iterable[tuple[str, str]]) -> DataFrame:
    made = _columns(aggregates)
    return frame.groupBy(*names).agg(*made) if made else frame.select(*names).distinct()


def _columns(named: Iterable[tuple[str, str]]) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.expr(text).alias(name) for name, text in named]
