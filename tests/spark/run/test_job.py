from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streams
from nova.plan import Plan, Replicas
from nova.problem import Problem
from nova.routing.flow import Flow
from nova.scenario.model import Columns
from nova.spark.run.inputs import agree, carried, normalised
from nova.spark.run.job import Job
from nova.spark.run.sinks import Files
from tilings import random_replicas

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None


def run(spark: Any, folder: Path, problem: Problem, plan: Plan, on: tuple[str, ...] = (), cells: int = 8,
        files_per_batch: int = 1) -> pa.Table:
    """Run a plan over the files in folder/left and folder/right to their end."""
    sides = {}
    for side in ("left", "right"):
        schema = spark.read.parquet(str(folder / side)).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(str(folder / side))
        sides[side] = normalised(frame, Columns(), side)
    agreed = agree(sides["left"], sides["right"], on)
    window_us = round(problem.queries[0].window_ms * 1000)
    flow = Flow("climate", window_us, agreed.on, carried(agreed.left), carried(agreed.right), cells)
    job = Job(spark, problem, 0, flow, Files("parquet", "climate", folder / "results"), folder / "job", 60_000)
    job.begin("00000", plan)
    job.start(agreed.left, agreed.right, once=True).awaitTermination()
    return streams.read_results(folder / "results")


@given(seed=st.integers(0, 2**32 - 1), window_ms=st.sampled_from([1.0, 250.0, 1000.0, 3_600_000.0]),
       on=st.sampled_from([(), ("zone",)]), cells=st.sampled_from([1, 8, 2**20]))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_plan_gives_the_plain_join(spark: Any, seed: int, window_ms: float, on: tuple[str, ...],
                                       cells: int) -> None:
    problem = streams.problem(window_ms=window_ms)
    joins = streams.resolve(problem)
    left, right = (streams.tuples(problem, side, 150, 5.0, seed) for side in (0, 1))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        folder = Path(scratch)
        streams.write_parts(left, folder / "left", 2)
        streams.write_parts(right, folder / "right", 2)
        results = run(spark, folder, problem, streams.plan(problem, random_replicas(joins, 4, seed)), on, cells)
        wanted = streams.plain_join(spark, problem, left, right, on)
        found = streams.as_multiset(results, round(window_ms * 1000)) if len(results) else {}
    assert found == wanted
