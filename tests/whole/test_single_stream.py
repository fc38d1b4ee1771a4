"""Queries of one stream: planned like joins, run without one, with the rows of Spark SQL in batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import auctions
from nova import optimizer
from nova.controller import Controller
from nova.controller.events import SourceAdded
from nova.model.load import node_loads
from nova.model.rates import result_rates
from nova.scenario import load
from nova.spark.job.folder import RunFolder
from nova.spark.job.job import routes_of
from nova.spark.job.run import BatchRunning, Run, Settings
from nova.spark.replan.handover import put

CASES: dict[str, tuple[str, str]] = {
    "a projection": (
        """SELECT auction, upper(bidder) AS who, value * 2 AS twice, at FROM bids
           WHERE value > 40 AND auction IS NOT NULL""",
        "SELECT auction, upper(bidder), value * 2, at FROM bids WHERE value > 40 AND auction IS NOT NULL",
    ),
    "tumbling groups": (
        """SELECT window_start, b.bidder, count(*) AS n, avg(b.value) AS mean, stddev(b.value) AS spread
           FROM bids AS b WHERE b.value > 20 GROUP BY TUMBLE(b.at, INTERVAL '2' SECOND), b.bidder HAVING n > 1""",
        """SELECT timestamp_micros(unix_micros(at) div 2000000 * 2000000), bidder, count(*), avg(value), stddev(value)
           FROM bids WHERE value > 20 GROUP BY unix_micros(at) div 2000000, bidder HAVING count(*) > 1""",
    ),
    "sliding groups that cannot be merged": (
        """SELECT window_end, count(DISTINCT auction) AS auctions, percentile(value, 0.5) AS median FROM bids
           GROUP BY HOP(at, INTERVAL '1' SECOND, INTERVAL '3' SECOND)""",
        """SELECT window.end, count(DISTINCT auction), percentile(value, 0.5) FROM bids
           GROUP BY window(at, '3 seconds', '1 second')""",
    ),
}


def test_rows_equal_spark_through_a_new_plan(spark: Any, tmp_path: Path) -> None:
    """All cases in one run, of tuples in no order; a plan that divides them otherwise comes along the way."""
    bids, opened = auctions.tables()
    ids = {f"case{number}": texts for number, texts in enumerate(CASES.values())}
    queries = {name: query for name, (query, _) in ids.items()}
    path = auctions.scenario(tmp_path / "s", queries, bids, opened, 3, in_order=False)
    loaded = load(path)
    plan = optimizer.optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=13_000))
    run.folder.open(loaded.digest, plan, loaded.problem)
    cut = replace(loaded.problem.nodes, capacity=np.array([250.0, 400.0, 700.0, 10.0]))
    other = optimizer.optimize(replace(loaded.problem, nodes=cut), loaded.options)
    assert len(other.replicas) > len(plan.replicas)
    put(replace(other, digest=loaded.digest), loaded.problem, RunFolder(tmp_path / "run"))
    run.start()
    run.wait()
    bids.to_parquet(tmp_path / "bids.parquet", index=False)
    spark.read.parquet(str(tmp_path / "bids.parquet")).createOrReplaceTempView("bids")
    for (name, (_, plain)), case in zip(ids.items(), CASES, strict=True):
        parts = [pd.read_parquet(file) for file in sorted((tmp_path / "run" / "results").glob(f"{name}-*.parquet"))]
        found = auctions.rows(record for part in parts for record in part.itertuples(index=False))
        assert found == auctions.rows(spark.sql(plain).collect()), case
        assert found, case


def test_groups_are_written_whenever_the_last_batch_ends(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a query ends right after it was asked whether it had."""
    ended, asked = BatchRunning.ended, set[int]()

    def asked_too_early(self: BatchRunning) -> bool:
        if self.query.isActive or id(self) not in asked:
            asked.update({id(self)} if not self.query.isActive else ())
            return False
        return ended(self)

    monkeypatch.setattr(BatchRunning, "ended", asked_too_early)
    bids, opened = auctions.tables()
    loaded = load(auctions.scenario(tmp_path / "s", CASES["tumbling groups"][0], bids, opened))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=13_000))
    run.start()
    run.wait()
    assert run.report()["results"] > 0
    assert sum(len(pd.read_parquet(file)) for file in (tmp_path / "run" / "results").glob("*.parquet")) > 0


def test_each_source_is_placed_and_charged_once(tmp_path: Path) -> None:
    """A source has one sub-join, with its own shadow; its host is charged what passes the filter, and gets no more."""
    bids, opened = auctions.tables()
    loaded = load(auctions.scenario(tmp_path, CASES["a projection"][0], bids, opened))
    problem = loaded.problem
    plan = optimizer.optimize(problem, loaded.options)
    assert len(plan.joins) == 2
    passing = problem.sources.rate[problem.sources_of(problem.queries[0].left)].sum()
    assert 0 < passing < 600
    assert np.isclose(node_loads(plan.joins, plan.replicas, len(problem.nodes)).sum(), passing)
    assert np.isclose(result_rates(problem, plan.joins).sum(), passing)


def test_a_tuple_goes_one_way_under_any_division(tmp_path: Path) -> None:
    """Also where a plan divides the shadow's side, each tuple has one route."""
    bids, opened = auctions.tables()
    loaded = load(auctions.scenario(tmp_path, CASES["a projection"][0], bids, opened))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    halves = [replace(plan.replicas, right_to=plan.replicas.right_to * 0.5)]
    halves.append(replace(plan.replicas, right_from=plan.replicas.right_to * 0.5))
    divided = replace(plan, replicas=type(plan.replicas).concat(halves))
    routes = routes_of(loaded.problem, divided, 0)
    source = loaded.problem.sources_of(loaded.problem.queries[0].left)
    rows, _ = routes.left.reach(source, np.full(len(source), 0.7), np.full(len(source), 0.2))
    assert sorted(rows.tolist()) == list(range(len(source)))


def test_a_source_that_comes_later_is_placed(tmp_path: Path) -> None:
    bids, opened = auctions.tables()
    loaded = load(auctions.scenario(tmp_path, CASES["tumbling groups"][0], bids, opened))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    controller = Controller.from_plan(loaded.problem, plan)
    controller.handle(SourceAdded(stream="bids", source="b3", node="edge1", rate=30.0))
    after = controller.plan()
    ids = controller.problem().sources.ids
    named = {ids[int(row)].as_py() for row in after.joins.left[after.replicas.join]}
    assert named == {"b1", "b2", "b3"}
