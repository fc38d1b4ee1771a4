"""Whatever the plan, the result is the plain join. Plans of all approaches run in one Spark job, side by side: each has
sources of its own, which join only among themselves."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streams
from nova import optimizer
from nova.baselines import BASELINES, place
from nova.model.options import Options
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.routing.flow import Flow
from nova.scenario.model import Columns
from nova.spark.job.job import Job
from nova.spark.job.sinks import Files
from nova.spark.sources.inputs import agree, carried
from nova.spark.sources.tuples import normalised
from tilings import random_replicas

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
REGIONS, PER_REGION, NODES = 2, 2, 6
RANDOM = 4


def small(capacity: float, window_ms: float) -> Problem:
    """Eight sources, eight sub-joins of 100 tuples/s; sources are spread over the nodes."""
    problem = streams.problem(REGIONS, PER_REGION, window_ms, NODES)
    return replace(
        problem,
        nodes=replace(problem.nodes, capacity=np.full(NODES, capacity)),
        sources=replace(problem.sources, node=np.arange(len(problem.sources), dtype=np.int32) % NODES),
    )


@cache
def planned() -> dict[str, Replicas]:
    """The replicas that each approach chooses. Ours must split: no node can take a sub-join whole."""
    made = {}
    for partition in ("auto", "grid", "window"):
        problem = small(90.0, 1000.0)
        options = Options(partition=partition, allow_overload=True, embedding="stress")
        made[f"nova {partition}"] = optimizer.optimize(problem, options).replicas
    problem = small(1e6, 1000.0)
    joins = streams.resolve(problem)
    assert problem.nodes.coordinates is not None
    assert problem.nodes.heights is not None
    space = CostSpace(problem.nodes.coordinates, problem.nodes.heights)
    for name in BASELINES:
        made[name] = place(name, problem, joins, space).plan.replicas
    return made


def test_ours_are_split_both_ways() -> None:
    grid, window = planned()["nova grid"], planned()["nova window"]
    assert (grid.left_to - grid.left_from < 1).any()
    assert (window.slice_to - window.slice_from < 1).any()


def side_by_side(plans: list[Replicas], window_ms: float) -> tuple[Problem, Plan]:
    """One problem with sources of its own for each plan, and one plan of all."""
    regions = REGIONS * len(plans)
    whole = streams.problem(regions, PER_REGION, window_ms, NODES)
    joins, of = streams.resolve(whole), streams.resolve(small(1e6, window_ms))
    n = REGIONS * PER_REGION
    row = {(int(left), int(right)): j for j, (left, right) in enumerate(zip(joins.left, joins.right, strict=True))}

    def there(source: int, copy: int) -> int:
        side, i = divmod(source, n)
        return side * regions * PER_REGION + (i // REGIONS) * regions + copy * REGIONS + i % REGIONS

    parts = []
    for copy, replicas in enumerate(plans):
        join = np.array([row[there(int(of.left[j]), copy), there(int(of.right[j]), copy)] for j in replicas.join])
        parts.append(replace(replicas, join=join.astype(np.int32)))
    return whole, streams.plan(whole, Replicas.concat(parts))


@given(
    seed=st.integers(0, 2**32 - 1),
    window_ms=st.sampled_from([1.0, 250.0, 1000.0, 3_600_000.0]),
    on=st.sampled_from([(), ("zone",)]),
    cells=st.sampled_from([1, 8, 2**20]),
)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plan_gives_the_plain_join(
    spark: Any, seed: int, window_ms: float, on: tuple[str, ...], cells: int
) -> None:
    joins = streams.resolve(small(1e6, window_ms))
    plans = [*planned().values(), *(random_replicas(joins, NODES, seed + i, keyed=bool(on)) for i in range(RANDOM))]
    problem, plan = side_by_side(plans, window_ms)
    # In no order at all, so up to 5 s late: windows are continued in every batch.
    left, right = (streams.tuples(problem, side, 80 * len(plans), 5.0, seed) for side in (0, 1))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        folder = Path(scratch)
        for side, table in (("left", left), ("right", right)):
            half = len(table) // 2
            streams.write_parts(folder / side, table.slice(0, half), table.slice(half))
        results = run(spark, folder, problem, plan, on, cells)
        wanted = streams.plain_join(spark, problem, left, right, on)
        found = streams.as_multiset(results, round(window_ms * 1000)) if len(results) else {}
    assert found == wanted


def run(spark: Any, folder: Path, problem: Problem, plan: Plan, on: tuple[str, ...], cells: int) -> pa.Table:
    """Run a plan over the files in folder/left and folder/right, one a batch, to their end."""
    sides = []
    for side in ("left", "right"):
        reader = spark.readStream.schema(spark.read.parquet(str(folder / side)).schema)
        frame = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        sides.append(normalised(frame, Columns(), side))
    agreed = agree(*sides, on)
    window_us = round(problem.queries[0].window_ms * 1000)
    flow = Flow("climate", window_us, agreed.on, carried(agreed.left), carried(agreed.right), cells)
    job = Job(spark, problem, 0, flow, Files("parquet", "climate", folder / "results"), folder / "job", 5_000)
    job.begin("00000", plan)
    job.start(agreed.left, agreed.right, once=True).awaitTermination()
    return streams.read_results(folder / "results")
