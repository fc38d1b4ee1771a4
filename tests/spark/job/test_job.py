from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streams
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.routing.flow import Flow
from nova.scenario.model import Columns
from nova.spark.job.job import Job, NewPlan, routes_of
from nova.spark.job.sinks import Files
from nova.spark.sources.inputs import carried
from nova.spark.sources.tuples import normalised


def three_batches(folder: Path, problem: Problem, seed: int) -> tuple[pa.Table, pa.Table]:
    """Left and right tuples in three files each; each continues windows of the one before and goes beyond them."""
    sides = []
    for side, name in enumerate(("left", "right")):
        parts = [streams.tuples(problem, side, 80, seconds, seed + i) for i, seconds in enumerate((5.0, 10.0, 15.0))]
        streams.write_parts(folder / name, *parts)
        sides.append(pa.concat_tables(parts))
    return sides[0], sides[1]


class Crash(Exception):
    pass


@pytest.mark.parametrize("crash", [None, "before", "during", "after"])
def test_a_switch_of_plans_loses_and_doubles_nothing(spark: Any, tmp_path: Path, crash: str | None) -> None:
    """The job dies before, in or after the batch of the switch, and is started again from its checkpoint."""
    problem = streams.problem()
    joins = streams.resolve(problem)
    left, right = three_batches(tmp_path, problem, 11)
    sides = [
        normalised(
            spark.readStream.schema(spark.read.parquet(str(tmp_path / side)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / side)),
            Columns(),
            side,
        )
        for side in ("left", "right")
    ]
    flow = Flow("climate", 1_000_000, (), carried(sides[0]), carried(sides[1]))
    old, new = (
        streams.plan(problem, Replicas.whole(np.arange(len(joins)), np.full(len(joins), node))) for node in (1, 2)
    )
    crashed: list[str] = []

    def new_plans(known: list[str]) -> Any:
        return [NewPlan("00001", routes_of(problem, new, 0))] if job.batch_now >= 1 and "00001" not in known else []

    class Crashing(Files):
        def write(self, frame: Any, batch: int) -> None:
            if crash == "during" and batch == 1 and not crashed:
                crashed.append(crash)
                raise Crash
            super().write(frame, batch)

    class Watched(Job):
        batch_now = 0

        def take_up(self, batch: int) -> None:
            self.batch_now = batch
            if crash == "before" and batch == 1 and not crashed:
                crashed.append(crash)
                raise Crash
            super().take_up(batch)

        def remember(self, tally: Any) -> None:
            super().remember(tally)
            if crash == "after" and self.batch_now == 1 and not crashed:
                crashed.append(crash)
                raise Crash

    for attempt in range(2 if crash else 1):
        job = Watched(
            spark,
            problem,
            0,
            flow,
            Crashing("parquet", "climate", tmp_path / "results"),
            tmp_path / "job",
            60_000,
            new_plans,
        )
        job.begin("00000", old)
        query = job.start(*sides, once=True)
        if crash and attempt == 0:
            with pytest.raises(Exception, match="Crash"):
                query.awaitTermination()
        else:
            query.awaitTermination()

    results = streams.read_results(tmp_path / "results")
    assert streams.as_multiset(results, 1_000_000) == streams.plain_join(spark, problem, left, right)
    _, second = job.schedule.entries()
    assert second.plan == "00001"
    window = results["window_start"].cast(pa.int64()).to_numpy() // 1_000_000
    node = np.array(results["node"].to_pylist())
    assert set(node[window < second.first_window]) == {"n1"}  # also what came after the switch
    assert set(node[window >= second.first_window]) == {"n2"}
    assert window.min() < second.first_window <= window.max()


def test_tuples_behind_the_watermark_are_left_out_and_counted(spark: Any, tmp_path: Path) -> None:
    from nova.spark.job.meter import Meter

    problem = streams.problem()
    hour = 3_600_000_000
    for side, name in enumerate(("left", "right")):
        early = streams.tuples(problem, side, 40, 3.0, 1)
        at = early.column_names.index("event_time")
        shifted = pa.array(early["event_time"].cast(pa.int64()).to_numpy() + hour, early.schema.field(at).type)
        ahead = early.set_column(at, "event_time", shifted)
        streams.write_parts(tmp_path / name, early.slice(0, 30), ahead, early.slice(30))
    sides = [
        normalised(
            spark.readStream.schema(spark.read.parquet(str(tmp_path / side)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / side)),
            Columns(),
            side,
        )
        for side in ("left", "right")
    ]
    flow = Flow("climate", 1_000_000, (), carried(sides[0]), carried(sides[1]))
    meter = Meter("climate")
    job = Job(
        spark,
        problem,
        0,
        flow,
        Files("parquet", "climate", tmp_path / "results"),
        tmp_path / "job",
        10_000,
        after=meter.batch,
    )
    joins = streams.resolve(problem)
    job.begin("00000", streams.plan(problem, Replicas.whole(np.arange(len(joins)), np.zeros(len(joins), int))))
    query = job.start(*sides, once=True)
    query.awaitTermination()
    for report in query.recentProgress:
        meter.progress(report)
    assert meter.late == 20
    assert meter.tuples.total() == 160
