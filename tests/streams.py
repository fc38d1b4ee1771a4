"""Small problems, tuples and plans for the tests of running jobs, and the plain join to compare them with."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nova.model.plan import Plan
from nova.model.problem import Equal, Nodes, Problem, Query, Sources
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.placement.resolve import resolve

START_US = 1_700_000_000_000_000


def problem(regions: int = 2, per_region: int = 2, window_ms: float = 1000.0, nodes: int = 4) -> Problem:
    """Left sources p0…, right sources h0…; sources of one region join."""
    n = regions * per_region
    region = np.tile(np.arange(regions, dtype=np.int32), per_region)
    ids = pa.array([f"p{i}" for i in range(n)] + [f"h{i}" for i in range(n)])
    at = np.random.default_rng(0).uniform(0, 50, (nodes, 2))
    return Problem(
        nodes=Nodes(
            pa.array([f"n{i}" for i in range(nodes)]),
            np.full(nodes, 1e6),
            np.full(nodes, np.inf),
            np.ones(nodes, bool),
            at,
            np.zeros(nodes),
        ),
        streams=("pressure", "humidity"),
        sources=Sources(ids, np.repeat(np.array([0, 1], np.int32), n), np.zeros(2 * n, np.int32), np.full(2 * n, 50.0)),
        queries=(Query("climate", 0, 1, nodes - 1, Equal("region", region, region), window_ms),),
    )


def plan(of: Problem, replicas: Replicas) -> Plan:
    nodes = of.nodes
    assert nodes.coordinates is not None
    assert nodes.heights is not None
    return Plan(resolve(of), replicas, CostSpace(nodes.coordinates, nodes.heights))


def tuples(of: Problem, side: int, n: int, seconds: float, seed: int, keys: int = 3) -> pa.Table:
    """Random tuples of one stream in random order; times coincide now and then, values repeat, keys are missing."""
    rng = np.random.default_rng([seed, side])
    ids = of.sources.ids.take(pa.array(of.sources_of(side)))
    time = START_US + rng.integers(0, int(seconds * 1000), n) * 1000
    key = rng.integers(0, keys, n)
    return pa.table(
        {
            "source_id": ids.take(pa.array(rng.integers(0, len(ids), n))),
            "event_time": pa.array(time, pa.timestamp("us", tz="UTC")),
            "value": pa.array(np.round(rng.normal(size=n), 1)),
            "zone": pa.array([None if i % 17 == 0 else f"z{k}" for i, k in enumerate(key.tolist())]),
        }
    )


def write_parts(folder: Path, *parts: pa.Table) -> Path:
    """One file per part; Spark takes files in the order of their times, so these are set a second apart."""
    folder.mkdir(parents=True)
    for i, part in enumerate(parts):
        file = folder / f"{i:03d}.parquet"
        pq.write_table(part, file)
        os.utime(file, (1e9 + i, 1e9 + i))
    return folder


def plain_join(spark: Any, of: Problem, left: pa.Table, right: pa.Table, on: tuple[str, ...] = ()) -> Counter[Any]:
    """The same query by Spark SQL, in one batch and without Nova: rows as a multiset."""
    query = of.queries[0]
    joins = resolve(of)
    ids = of.sources.ids
    spark.createDataFrame(
        pa.table({"l": ids.take(pa.array(joins.left)), "r": ids.take(pa.array(joins.right))}).to_pandas()
    ).createOrReplaceTempView("allowed")
    spark.createDataFrame(left).createOrReplaceTempView("lefts")
    spark.createDataFrame(right).createOrReplaceTempView("rights")
    length = round(query.window_ms * 1000)
    equal = "".join(f" AND l.{name} = r.{name}" for name in on)
    rows = spark.sql(f"""
        SELECT floor(unix_micros(l.event_time) / {length}) AS w, l.source_id, r.source_id,
               unix_micros(l.event_time), unix_micros(r.event_time), l.value, r.value, l.zone, r.zone
        FROM lefts l JOIN allowed a ON a.l = l.source_id JOIN rights r ON r.source_id = a.r
         AND floor(unix_micros(l.event_time) / {length}) = floor(unix_micros(r.event_time) / {length}){equal}
    """).collect()
    return Counter(tuple(row) for row in rows)


def as_multiset(results: pa.Table, window_us: int) -> Counter[Any]:
    """Results of a run in the shape of `plain_join`."""

    def micros(name: str) -> list[int]:
        return results[name].cast(pa.int64()).to_pylist()

    window = [start // window_us for start in micros("window_start")]
    assert [start + window_us for start in micros("window_start")] == micros("window_end")
    columns = [
        window,
        results["left_source"].to_pylist(),
        results["right_source"].to_pylist(),
        micros("left_time"),
        micros("right_time"),
        *(results[name].to_pylist() for name in ("left_value", "right_value", "left_zone", "right_zone")),
    ]
    return Counter(zip(*columns, strict=True))


def read_results(folder: Path) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]) if files else pa.table({})


def replace_replicas(plan: Plan, replicas: Replicas) -> Plan:
    """The plan with other replicas."""
    return replace(plan, replicas=replicas)
