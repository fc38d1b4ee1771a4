"""Queries in SQL run under a plan give the rows that Spark SQL and DuckDB give on the same tuples in batch."""

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
from nova.scenario import load
from nova.spark.job.folder import RunFolder
from nova.spark.job.kept import Kept
from nova.spark.job.run import Run, Settings
from nova.spark.replan.handover import put

SAME = "TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)"

CASES: dict[str, tuple[str, str]] = {
    "filters, expressions and a residual": (
        f"""SELECT b.auction, upper(b.bidder) AS who, b.value * 2 AS twice, a.category, b.at AS bid_at
            FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME}
            WHERE b.value > 40 AND a.category IN (1, 2) AND b.value > a.value""",
        """SELECT b.auction, upper(b.bidder) who, b.value * 2 twice, a.category, b.at bid_at
           FROM bids b JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           WHERE b.value > 40 AND a.category IN (1, 2) AND b.value > a.value""",
    ),
    "an interval": (
        """SELECT b.auction, a.category, b.source AS left_one, b.at, a.at AS opened FROM bids b JOIN auctions a
           ON b.auction = a.id AND b.at BETWEEN a.at - INTERVAL '500' MILLISECOND AND a.at + INTERVAL '3' SECOND""",
        """SELECT b.auction, a.category, b.source_id, b.at, a.at opened FROM bids b JOIN auctions a ON b.auction = a.id
           AND b.at >= a.at - INTERVAL '500' MILLISECOND AND b.at <= a.at + INTERVAL '3' SECOND""",
    ),
    "sliding windows": (
        """SELECT window_start, b.auction, b.value, a.value AS reserve FROM bids b JOIN auctions a
           ON HOP(b.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND) = HOP(a.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND)
           AND b.auction = a.id WHERE b.bidder <> 'bob'""",
        """SELECT make(w.w), b.auction, b.value, a.value reserve
           FROM bids b JOIN auctions a ON b.auction = a.id JOIN (seconds) w
           ON micros(b.at) >= w.w AND micros(b.at) < w.w + 2000000
           AND micros(a.at) >= w.w AND micros(a.at) < w.w + 2000000
           WHERE b.bidder <> 'bob'""",
    ),
    "aggregates by the join's window": (
        f"""SELECT window_start, window_end, a.category, count(*) AS n, sum(b.value) AS total, avg(b.value) AS mean,
            min(b.at) AS first, max(b.bidder) AS last, stddev(b.value) AS spread, count(a.category) AS known
            FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME}
            WHERE b.value > 20 GROUP BY window_start, window_end, a.category HAVING n > 1""",
        """SELECT make(win2(b.at) * 2000000), make(win2(b.at) * 2000000 + 2000000), a.category, count(*) n,
           sum(b.value) total, avg(b.value) mean, min(b.at), max(b.bidder), stddev_samp(b.value), count(a.category)
           FROM bids b JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           WHERE b.value > 20 GROUP BY win2(b.at), a.category HAVING count(*) > 1""",
    ),
    "aggregates of an interval join in windows of their own, one that cannot be merged": (
        """SELECT b.bidder, window_start, count(DISTINCT b.auction) AS auctions, max(b.value) - min(b.value) AS span
           FROM bids b JOIN auctions a ON b.auction = a.id AND b.at >= a.at AND b.at <= a.at + INTERVAL '2' SECOND
           GROUP BY TUMBLE(b.at, INTERVAL '2' SECOND), b.bidder""",
        """SELECT b.bidder, make(win2(b.at) * 2000000), count(DISTINCT b.auction), max(b.value) - min(b.value)
           FROM bids b JOIN auctions a ON b.auction = a.id AND b.at >= a.at AND b.at <= a.at + INTERVAL '2' SECOND
           GROUP BY win2(b.at), b.bidder""",
    ),
}


def _spark_text(text: str) -> str:
    return (
        text.replace("win2(b.at)", "(unix_micros(b.at) div 2000000)")
        .replace("win2(a.at)", "(unix_micros(a.at) div 2000000)")
        .replace("make(", "timestamp_micros(")
        .replace("micros(b.at)", "unix_micros(b.at)")
        .replace("unix_unix_", "unix_")
        .replace("micros(a.at)", "unix_micros(a.at)")
        .replace("unix_unix_", "unix_")
    )


def _duck_text(text: str) -> str:
    return (
        text.replace("win2(b.at)", "(epoch_us(b.at) // 2000000)")
        .replace("win2(a.at)", "(epoch_us(a.at) // 2000000)")
        .replace("make(", "make_timestamp(")
        .replace("micros(b.at)", "epoch_us(b.at)")
        .replace("micros(a.at)", "epoch_us(a.at)")
    )


def test_rows_equal_spark_and_duckdb(spark: Any, tmp_path: Path) -> None:
    """All cases in one run."""
    import duckdb

    bids, opened = auctions.tables()
    ids = {f"case{number}": texts for number, texts in enumerate(CASES.values())}
    queries = {name: query for name, (query, _) in ids.items()}
    run(spark, auctions.scenario(tmp_path / "s", queries, bids, opened), tmp_path / "run")
    first = auctions.START_MS * 1000 - 1_000_000
    starts = ", ".join(f"({first + k * 1_000_000})" for k in range(20))
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for frame, table in (("bids", bids), ("auctions", opened)):
            table.to_parquet(tmp_path / f"{frame}.parquet", index=False)
            spark.read.parquet(str(tmp_path / f"{frame}.parquet")).createOrReplaceTempView(frame)
            base.execute(f"CREATE VIEW {frame} AS SELECT * FROM '{tmp_path / frame}.parquet'")
        for (name, (_, plain)), case in zip(ids.items(), CASES, strict=True):
            found = results(tmp_path / "run", name)
            spark_text = _spark_text(plain).replace("(seconds) w", f"(SELECT col1 AS w FROM VALUES {starts}) w")
            assert found == auctions.rows(spark.sql(spark_text).collect()), case
            duck_text = _duck_text(plain).replace("(seconds) w", f"(SELECT col0 AS w FROM (VALUES {starts})) w")
            told = base.sql(duck_text).to_arrow_table()
            assert found == auctions.rows(zip(*(column.to_pylist() for column in told.columns), strict=True)), case
            assert found, case


def test_groups_survive_a_crash_a_new_plan_and_disorder(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuples come in no order. The second batch fails after its results are out but before its groups are kept; then
    the run goes on, under another plan. No group is lost, none comes twice."""
    query, plain = CASES["aggregates by the join's window"]
    bids, opened = auctions.tables()
    path = auctions.scenario(tmp_path / "s", query, bids, opened, 3, in_order=False)
    save, written = Kept.save, Kept.last

    def fail(self: Kept, batch: int, state: Any, closed: int | None) -> None:
        if written(self) == 0:
            raise RuntimeError("power is gone")
        save(self, batch, state, closed)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", fail)
        with pytest.raises(NovaError, match="power is gone"):
            run(spark, path, tmp_path / "run", lateness_ms=20_000)
    loaded = load(path)
    cut = replace(loaded.problem.nodes, capacity=np.array([4000.0, 150.0, 150.0, 10.0]))
    other = optimizer.optimize(replace(loaded.problem, nodes=cut), replace(loaded.options, partition="window"))
    put(replace(other, digest=loaded.digest), loaded.problem, RunFolder(tmp_path / "run"))
    run(spark, path, tmp_path / "run", lateness_ms=20_000)
    for frame, table in (("bids", bids), ("auctions", opened)):
        table.to_parquet(tmp_path / f"{frame}.parquet", index=False)
        spark.read.parquet(str(tmp_path / f"{frame}.parquet")).createOrReplaceTempView(frame)
    assert results(tmp_path / "run", "q") == auctions.rows(spark.sql(_spark_text(plain)).collect())


def run(spark: Any, path: Path, folder: Path, lateness_ms: int = 2000) -> None:
    """Plan and run a scenario to the end of its files."""
    loaded = load(path)
    plan = optimizer.optimize(loaded.problem, loaded.options)
    job = Run(spark, loaded, plan, Settings(folder, until_end=True, lateness_ms=lateness_ms))
    job.start()
    job.wait()


def results(folder: Path, query: str) -> Any:
    """The results of one query as a multiset."""
    parts = [pd.read_parquet(file) for file in sorted((folder / "results").glob(f"{query}-*.parquet"))]
    return auctions.rows(record for part in parts for record in part.itertuples(index=False))
