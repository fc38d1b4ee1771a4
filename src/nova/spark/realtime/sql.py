"""SQL: what a query asks of tuples before the join and of pairs after it, as Spark's own expressions.

The JVM part compiles them (`Sql.java`) and runs them row by row: filters, projections and copies into windows where
tuples are routed, residual conditions and the selected columns where they are joined.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from nova.model.errors import Fault, InvalidInput
from nova.model.operators import Pipeline, Side
from nova.model.problem import Problem
from nova.routing.flow import Flow
from nova.routing.routes import SideName
from nova.spark.job.around import before, keys_of, project
from nova.spark.job.tasks import ORIGINAL
from nova.spark.realtime.frames import kind_of
from nova.spark.realtime.inputs import Unfit
from nova.spark.session import first_line
from nova.spark.sources.inputs import Sides, agree, carried, flow_of
from nova.spark.sources.tuples import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TIMES = "_times"
"""Column with the times of a tuple's copies."""


@dataclass(frozen=True)
class Around:
    """What is done around a join. Frames have no rows: they say what becomes of those of their input."""

    logged: dict[SideName, pa.Schema]
    """What tuples carry in their logs."""
    before: dict[SideName, DataFrame]
    """From source, time and what the log has to source, time, what travels, and `TIMES` where tuples are copied."""
    after: DataFrame
    """From the columns of results to those that the query selects."""
    copied: frozenset[SideName]
    """Sides whose tuples are copied into windows; they carry the time of the event as `ORIGINAL`."""
    lateness_ms: int
    """How far copies lie from the event time of their tuple at most."""

    @property
    def selected(self) -> pa.Schema:
        """The columns that the query selects."""
        return arrow(self.after)


def why_not(pipeline: Pipeline, several: bool) -> str | None:
    """Why a query in SQL cannot be had in real time; None where it can. `several`: whether it is one of the joins of
    several streams."""
    if several:
        return "joins more than two streams"
    if pipeline.single:
        return "reads one stream"
    if pipeline.keeps:
        return "is an outer join"
    if pipeline.group is not None:
        return "aggregates"
    return None


def around(
    spark: SparkSession, problem: Problem, number: int, left: DataFrame, right: DataFrame, place: str
) -> tuple[Flow, Around]:
    """How the tuples of a query in SQL travel, and what happens around its join; `left` and `right` have the columns of
    its streams."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    query = problem.queries[number]
    pipeline = query.pipeline
    left, right = left.drop(*HIDDEN), right.drop(*HIDDEN)  # logs do not have the places of recorded tuples

    def passing(frame: DataFrame, side: Side) -> DataFrame:
        chosen = before(_empty(spark, frame.schema), replace(side, times=None), place)
        return chosen if side.times is None else chosen.withColumn(ORIGINAL, sql.col("time"))

    sides = agree(passing(left, pipeline.left), passing(right, pipeline.right), keys_of(pipeline))
    flow = flow_of(problem, number, sides, 1)
    try:
        pairs = _empty(spark, from_arrow_schema(flow.result()))
        after = project(pairs if pipeline.where is None else pairs.where(pipeline.where), pipeline)
    except AnalysisException as error:
        raise InvalidInput([Fault(place, f"Spark refuses the query: {first_line(error)}", field="sql")]) from None
    found = Around(
        {"left": carried(left), "right": carried(right)},
        _copying(sides, pipeline),
        after,
        frozenset(side for side in ("left", "right") if getattr(pipeline, side).times is not None),
        math.ceil(pipeline.lateness_ms),
    )
    _check(spark, query.id, found, flow)
    return flow, found


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, which Spark must not know: it would leave out all that is asked of them."""
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)


def _copying(sides: Sides, pipeline: Pipeline) -> dict[SideName, DataFrame]:
    from pyspark.sql import functions as sql

    frames: dict[SideName, DataFrame] = {"left": sides.left, "right": sides.right}
    for side, frame in frames.items():
        times = getattr(pipeline, side).times
        if times is not None:
            frames[side] = frame.withColumn(TIMES, sql.expr(times))
    return frames


def _check(spark: SparkSession, query: str, found: Around, flow: Flow) -> None:
    """Refuse what cannot travel, and what would not be the same again after a crash."""
    for column in (*flow.left, *flow.right, *found.selected):
        if kind_of(column.type) is None:
            raise Unfit(f"query {query}: the column {column.name!r} is of type {column.type}")
    jvm = spark._jvm
    assert jvm is not None
    for frame in (*found.before.values(), found.after):
        if not jvm.nova.realtime.Sql.steady(frame._jdf):
            raise Unfit(f"query {query} asks for the time of now or for chance")


def arrow(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(frame.schema, timezone="UTC")])
