"""NEXMark on 100 nodes: all queries in one run, each with the rows of Spark SQL in batch; and the bench, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import invoke_json
from nova_lab.bench import nexmark

MORE = {
    "inner": nexmark.Query(
        ("bid", "auction"),
        """SELECT a.id, b.bidder, b.value AS price, b.date_time AS at, coalesce(b.channel, 'none') AS channel,
           CASE WHEN b.value > a.value THEN 'sold' ELSE 'open' END AS state, b.value % 7 AS rest
           FROM bid b, auction a WHERE a.id = b.auction AND b.date_time >= a.date_time AND b.date_time <= a.expires
           AND b.date_time - INTERVAL '6' SECOND <= a.date_time AND b.value >= a.value""",
    ),
    "shares": nexmark.Query(
        ("bid", "auction"),
        """SELECT window_end, b.channel, count(*) AS n, sum(CASE WHEN b.value > 500 THEN 1 ELSE 0 END) AS high,
           round(avg(b.value) / count(*), 6) AS ratio, count(DISTINCT b.bidder) AS bidders
           FROM bid b JOIN auction a ON b.auction = a.id AND window(b.date_time, '4 seconds', '2 seconds')
           = window(a.date_time, '4 seconds', '2 seconds') WHERE NOT (a.category = 11 OR b.channel LIKE 'w%')
           GROUP BY window_end, b.channel""",
        """SELECT timestamp_micros(w + 4000000), channel, count(*), sum(CASE WHEN value > 500 THEN 1 ELSE 0 END),
           round(avg(value) / count(*), 6), count(DISTINCT bidder) FROM (
           SELECT explode(array(s, s - 2000000)) AS w, t.* FROM (
           SELECT b.*, a.date_time AS opened, unix_micros(b.date_time) div 2000000 * 2000000 AS s
           FROM bid b JOIN auction a ON b.auction = a.id WHERE NOT (a.category = 11 OR b.channel LIKE 'w%')) t)
           WHERE unix_micros(opened) >= w AND unix_micros(opened) < w + 4000000 GROUP BY w, channel""",
    ),
}


def test_all_queries_in_one_run(spark: Any, tmp_path: Path) -> None:
    seconds = 20.0
    tables = nexmark.events(1500, seconds)
    nexmark.write_tables(tmp_path, tables, 2)
    queries = nexmark.QUERIES | MORE
    rates = {name: len(table) / seconds for name, table in tables.items()}
    path = nexmark.scenario(tmp_path, rates, {name: query.sql for name, query in queries.items()})
    nexmark.planned_job(spark, path, tmp_path / "run")
    for name, query in queries.items():
        results = [str(file) for file in (tmp_path / "run" / "results").glob(f"{name}-*.parquet")]
        assert results, name
        assert nexmark.differences(spark, query, tmp_path, results) == 0, name


def test_bench_tells_both_jobs(spark: Any) -> None:
    figures = invoke_json("bench", "nexmark", "--query", "q4", "--events", 400, "--batches", 1)
    assert figures["nodes"] == 100
    (one,) = figures["queries"]
    assert one["query"] == "q4"
    assert one["rows_unlike_batch"] == 0
    assert one["results"] > 0
    assert one["ratio"] == pytest.approx(one["tuples_per_s"] / one["plain_tuples_per_s"])
