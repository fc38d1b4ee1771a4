from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streams
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.routing.flow import Flow, without_null_keys
from nova.routing.packets import Names, pack, results, route
from nova.routing.xxh64 import hash_strings
from nova.spark.job.job import NewPlan, routes_of
from nova.spark.job.meter import Meter
from nova.spark.realtime.feeds import Known, Tap
from nova.spark.realtime.job import RealtimeJob
from nova.spark.realtime.results import Publisher, Results, ToFiles
from tilings import random_replicas

CARRIED = pa.schema([("value", pa.float64()), ("zone", pa.string())])
FLOW = Flow("climate", 1_000_000, ("zone",), CARRIED, CARRIED, cells=1)


class Runs:
    """A job with its producer and its consumer; results are published as `nova run` does."""

    def __init__(self, spark: Any, problem: Problem, folder: Path, **settings: Any) -> None:
        self.problem = problem
        self.names = Names(problem.sources.ids, problem.nodes.ids)
        every_ms = settings.pop("every_ms", 60_000)
        lateness_ms = settings.pop("lateness_ms", 60_000)
        self.job = RealtimeJob(spark, problem, 0, FLOW, folder / "job", lateness_ms, every_ms, **settings)
        self.folder = folder / "results"
        self.publisher = Publisher(
            self.job.staged,
            self.job.committed,
            Results(FLOW, lambda: self.names),
            ToFiles("parquet", "climate", self.folder),
        )

    def say(self, side: int, tuples: pa.Table) -> None:
        known = Known(self.problem.sources.ids, np.arange(len(self.problem.sources), dtype=np.int32))
        columns = tuples.rename_columns(["source", "time", "value", "zone"])
        log = (self.job.left, self.job.right)[side]
        Tap(log, CARRIED, known).take(columns, known.of(columns["source"]))

    def until_read(self) -> None:
        end = time.monotonic() + 60
        while not self.job.worked_off():
            assert time.monotonic() < end
            assert self.job.started is not None
            assert self.job.started.exception() is None
            time.sleep(0.01)

    def to_the_end(self, plan: Plan, sides: Sequence[pa.Table]) -> pa.Table:
        """Begin, read all tuples of both sides, and end; returns all results so far."""
        self.job.begin("00000", plan)
        self.job.start()
        for side in (0, 1):
            self.say(side, sides[side])
        self.until_read()
        return self.close()

    def close(self) -> pa.Table:
        self.job.close()
        self.publisher.step()
        return streams.read_results(self.folder)


def by_python(job: RealtimeJob, problem: Problem, names: Names, sides: list[pa.Table]) -> Counter[Any]:
    """The results of the batch mode's own routing and joining, with their hosts."""
    hashes = hash_strings(problem.sources.ids.to_pylist())
    packets = []
    for side, tuples in zip(("left", "right"), sides, strict=True):
        batch = tuples.rename_columns(["source", "time", "value", "zone"]).combine_chunks().to_batches()[0]
        batch = without_null_keys(batch, FLOW.on)
        source = pa.compute.index_in(batch.column("source"), value_set=problem.sources.ids).to_numpy()
        routed = route(job.schedule.timeline(), FLOW, side, source, hashes, batch)
        packets.append(pack(routed, FLOW, side, source, batch, per_node=False))
    left, right = packets
    at = [(i, j) for i, b in enumerate(left.bucket) for j, c in enumerate(right.bucket) if b == c]
    bodies = [pa.array([p.body[pair[k]] for pair in at], pa.binary()) for k, p in enumerate((left, right))]
    joined = pa.Table.from_batches(list(results(FLOW, job.schedule.timeline(), names, *bodies)))
    return with_hosts(joined)


def with_hosts(joined: pa.Table) -> Counter[Any]:
    plain = ("left_source", "right_source", "left_time", "right_time", "left_value", "right_value", "node")
    return Counter(zip(*(joined[name].to_pylist() for name in plain), strict=True))


def test_any_plans_give_the_plain_join_on_their_hosts_and_switch_while_it_runs(spark: Any, tmp_path: Path) -> None:
    """Random tilings of shares, windows and keys; the first switch comes before any tuple, the others between."""
    problem = streams.problem()
    joins = streams.resolve(problem)
    plans = [streams.plan(problem, random_replicas(joins, 4, seed, keyed=True)) for seed in (1, 2, 3, 4)]
    wanted: list[NewPlan] = []
    runs = Runs(spark, problem, tmp_path, new_plans=lambda known: [plan for plan in wanted if plan.name not in known])
    runs.job.begin("00000", plans[0])
    runs.job.start()
    said: list[list[pa.Table]] = [[], []]
    for part, plan in enumerate(plans[1:]):
        wanted.append(NewPlan(f"0000{part + 1}", routes_of(problem, plan, 0)))
        runs.job.take_up()
        for side in (0, 1):
            tuples = streams.tuples(problem, side, 120, 5.0 * (part + 1), 10 + part)
            said[side].append(tuples)
            for start in range(0, 120, 40):
                runs.say(side, tuples.slice(start, 40))
        runs.until_read()
    found = runs.close()
    sides = [pa.concat_tables(parts) for parts in said]
    assert streams.as_multiset(found, 1_000_000) == streams.plain_join(spark, problem, *sides, on=("zone",))
    assert with_hosts(found) == by_python(runs.job, problem, runs.names, sides)
    assert len(set(found["id"].to_pylist())) == len(found) > 500
    starts = [entry.first_window for entry in runs.job.schedule.entries()]
    assert starts == sorted(starts)
    assert len(starts) == 4
    windows = {moment // 1_000_000 for moment in found["window_start"].cast(pa.int64()).to_pylist()}
    assert min(windows) < starts[2] < starts[3] <= max(windows)


def test_state_goes_with_the_watermark_and_late_tuples_are_left_out(spark: Any, tmp_path: Path) -> None:
    """And whoever stops and goes on has the same results, with the same ids."""
    problem = streams.problem()
    joins = streams.resolve(problem)
    plan = streams.plan(problem, random_replicas(joins, 4, 5, keyed=True))
    hour = 3_600_000_000
    early = [streams.tuples(problem, side, 60, 3.0, 1) for side in (0, 1)]

    def later(table: pa.Table) -> pa.Table:
        shifted = pa.array(table["event_time"].cast(pa.int64()).to_numpy() + hour, table["event_time"].type)
        return table.set_column(1, "event_time", shifted)

    for attempt, tuples in enumerate((early, [later(table) for table in early], early)):
        runs = Runs(spark, problem, tmp_path, lateness_ms=10_000)
        found = runs.to_the_end(plan, tuples)
        reading = runs.job.reading()
        assert reading.tally.tuples == Counter(left=60, right=60)
        if attempt == 2:  # the third time all is behind the watermark
            assert reading.state_tuples == 0
            meter = Meter("climate")
            meter.set_open(reading.buckets)
            assert runs.job.started is not None
            for progress in runs.job.started.recentProgress:
                meter.progress(json.loads(progress.json))
            assert meter.late == reading.tally.copies.total() > 100
    wanted = streams.plain_join(spark, problem, *early, on=("zone",))
    assert len(found) == 2 * wanted.total()
    assert len(set(found["id"].to_pylist())) == len(found)


def test_times_of_tuples_that_cannot_be_used_say_nothing(spark: Any, tmp_path: Path) -> None:
    """Dead letters come alone, one far ahead and one without a time (zero in the log), and Spark takes a checkpoint."""
    problem = streams.problem()
    plan = streams.plan(problem, random_replicas(streams.resolve(problem), 4, 5, keyed=True))
    sides = [streams.tuples(problem, side, 60, 3.0, 1) for side in (0, 1)]
    strange = sides[0].slice(0, 2)
    times = pa.array([0, 4_000_000_000_000_000], strange["event_time"].type)
    strange = strange.set_column(0, strange.column_names[0], pa.array(["nobody", "nobody"]))
    strange = strange.set_column(1, "event_time", times)
    for tuples in ([strange, strange], sides):
        runs = Runs(spark, problem, tmp_path, lateness_ms=10_000)
        found = runs.to_the_end(plan, tuples)
    assert streams.as_multiset(found, 1_000_000) == streams.plain_join(spark, problem, *sides, on=("zone",))
    tally = runs.job.reading().tally
    moments = pa.concat_tables(sides)["event_time"].cast(pa.int64()).to_pylist()
    assert (tally.first_time, tally.last_time) == (min(moments), max(moments))


def test_a_first_checkpoint_that_was_not_finished_is_begun_again(spark: Any, tmp_path: Path) -> None:
    """Whoever is killed while Spark writes it leaves a draft of the commit, with which Spark does not begin."""
    problem = streams.problem()
    plan = streams.plan(problem, random_replicas(streams.resolve(problem), 4, 5, keyed=True))
    sides = [streams.tuples(problem, side, 60, 3.0, 1) for side in (0, 1)]
    runs = Runs(spark, problem, tmp_path)
    (runs.job.checkpoint / "commits").mkdir(parents=True)
    (runs.job.checkpoint / "commits" / ".0.draft.tmp").touch()
    assert len(runs.to_the_end(plan, sides)) == streams.plain_join(spark, problem, *sides, on=("zone",)).total() > 0


@pytest.mark.slow
def test_a_query_that_dies_repeats_its_results_with_their_ids(spark: Any, tmp_path: Path) -> None:
    """The query is stopped amid a batch, again and again: what it had told since its checkpoint comes again."""
    problem = streams.problem()
    plan = streams.plan(problem, random_replicas(streams.resolve(problem), 4, 7, keyed=True))
    sides = [streams.tuples(problem, side, 900, 9.0, 3) for side in (0, 1)]
    seen: set[str] = set()
    for attempt in range(3):
        runs = Runs(spark, problem, tmp_path, every_ms=2000)
        runs.job.begin("00000", plan)
        runs.job.start()
        for start in range(300 * attempt, 300 * attempt + 300, 20):
            for side in (0, 1):
                runs.say(side, sides[side].slice(start, 20))
            time.sleep(0.05)
        runs.until_read()
        runs.publisher.step()
        if attempt < 2:
            assert runs.job.started is not None
            runs.job.started.stop()  # its batch is not committed
            runs.job.left.close()
            runs.job.right.close()
    found = runs.close()
    assert streams.as_multiset(found, 1_000_000) == streams.plain_join(spark, problem, *sides, on=("zone",))
    seen.update(found["id"].to_pylist())
    assert len(seen) == len(found)
