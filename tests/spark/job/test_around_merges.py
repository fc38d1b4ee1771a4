"""Merges on the way to the sink change who puts partial aggregates together, never what comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import auctions
from nova import optimizer
from nova.model.errors import NovaError
from nova.model.merges import NO_MERGES, Merges
from nova.model.plan import Plan
from nova.scenario import Scenario, load
from nova.spark.job.folder import RunFolder
from nova.spark.job.kept import Kept
from nova.spark.job.merging import levels
from nova.spark.job.run import Run, Settings
from nova.spark.replan.handover import put

QUERY = """SELECT window_start, a.category, count(*) AS n, sum(b.value) AS total, avg(b.value) AS mean,
           min(b.at) AS first, max(b.bidder) AS last, stddev(b.value) AS spread,
           sum(CAST(b.value AS DECIMAL(10, 2))) AS exact FROM bids b JOIN auctions a ON b.auction = a.id
           AND TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)
           GROUP BY window_start, a.category"""
PLAIN = """SELECT timestamp_micros((unix_micros(b.at) div 2000000) * 2000000), a.category, count(*), sum(b.value),
           avg(b.value), min(b.at), max(b.bidder), stddev(b.value), sum(CAST(b.value AS DECIMAL(10, 2)))
           FROM bids b JOIN auctions a ON b.auction = a.id
           AND unix_micros(b.at) div 2000000 = unix_micros(a.at) div 2000000
           GROUP BY unix_micros(b.at) div 2000000, a.category"""


def test_who_sends_first() -> None:
    """Those farthest from the sink: what a host merges is there before it sends."""
    to = {"a": "c", "b": "c", "c": "d", "e": "d"}
    assert levels(to) == [{"a": "c", "b": "c"}, {"c": "d", "e": "d"}]
    assert levels({}) == []


def test_rows_equal_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without merges, whose second batch fails after its results are out; it goes on, in no order, under a plan
    in which edge2 sends to edge1, and edge1 to fog. All rows are those of Spark SQL, each once."""
    bids, opened = auctions.tables()
    path = auctions.scenario(tmp_path / "s", QUERY, bids, opened, 3, in_order=False, selectivity={"group": 5})
    loaded = load(path)
    plan = spread(loaded)
    save, written = Kept.save, Kept.last

    def fail(self: Kept, batch: int, state: Any, closed: int | None) -> None:
        if written(self) == 0:
            raise RuntimeError("power is gone")
        save(self, batch, state, closed)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", fail)
        with pytest.raises(NovaError, match="power is gone"):
            run(spark, loaded, plan, tmp_path / "run")
    put(replace(plan, merges=Merges.of([(0, 1, 0), (0, 0, 2)])), loaded.problem, RunFolder(tmp_path / "run"))
    report = run(spark, loaded, plan, tmp_path / "run")
    merged = {host["node"]: host["merged"] for host in report["hosts"]}
    assert merged["edge1"] > 0
    assert merged["fog"] > 0
    assert merged["edge2"] == 0
    for frame, table in (("bids", bids), ("auctions", opened)):
        table.to_parquet(tmp_path / f"{frame}.parquet", index=False)
        spark.read.parquet(str(tmp_path / f"{frame}.parquet")).createOrReplaceTempView(frame)
    parts = [pd.read_parquet(file) for file in sorted((tmp_path / "run" / "results").glob("q-*.parquet"))]
    found = auctions.rows(record for part in parts for record in part.itertuples(index=False))
    assert found == auctions.rows(spark.sql(PLAIN).collect())


def spread(loaded: Scenario) -> Plan:
    """A plan whose sub-joins run on edge1, edge2 and fog in turn, and send straight to the sink."""
    plan = optimizer.optimize(loaded.problem, loaded.options)
    nodes = np.arange(len(plan.replicas), dtype=np.int32) % 3
    return replace(plan, replicas=replace(plan.replicas, node=nodes), merges=NO_MERGES)


def run(spark: Any, loaded: Scenario, plan: Plan, folder: Path) -> dict[str, Any]:
    """Run to the end of the files."""
    job = Run(spark, loaded, plan, Settings(folder, until_end=True, lateness_ms=20_000))
    job.start()
    job.wait()
    return job.report()
