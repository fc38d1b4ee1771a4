"""Joins of three and four streams, planned and run as two-way joins that read each other's results, give the rows that
Spark SQL and DuckDB give on the same tuples in batch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

import auctions
import market
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Run, Settings

SAME = "TUMBLE({0}.at, INTERVAL '2' SECOND) = TUMBLE({1}.at, INTERVAL '2' SECOND)"
CASES: dict[str, tuple[str, str]] = {
    "windows, filters and a condition on all three": (
        f"""SELECT window_start, b.value, a.category, p.city, upper(p.city) AS big, b.at AS bid_at, p.source AS who
            FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            JOIN people p ON a.seller = p.id AND {SAME.format("a", "p")}
            WHERE b.value > 30 AND p.city <> 'bonn' AND b.value + a.value > p.value""",
        """SELECT make(win2(p.at) * 2000000), b.value, a.category, p.city, upper(p.city), b.at, p.source_id
           FROM bids b JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           JOIN people p ON a.seller = p.id AND win2(a.at) = win2(p.at)
           WHERE b.value > 30 AND p.city <> 'bonn' AND b.value + a.value > p.value""",
    ),
    "intervals along a chain": (
        """SELECT b.bidder, a.category, p.city, b.at, p.at AS seen FROM bids b
           JOIN auctions a ON b.auction = a.id
           AND b.at BETWEEN a.at - INTERVAL '1' SECOND AND a.at + INTERVAL '2' SECOND
           JOIN people p ON b.bidder = p.id AND p.at >= b.at AND p.at <= b.at + INTERVAL '1500' MILLISECOND""",
        """SELECT b.bidder, a.category, p.city, b.at, p.at FROM bids b
           JOIN auctions a ON b.auction = a.id
           AND b.at >= a.at - INTERVAL '1' SECOND AND b.at <= a.at + INTERVAL '2' SECOND
           JOIN people p ON b.bidder = p.id AND p.at >= b.at AND p.at <= b.at + INTERVAL '1500' MILLISECOND""",
    ),
    "sliding windows": (
        """SELECT window_start, b.value, a.value AS reserve, p.city FROM bids b
           JOIN auctions a ON b.auction = a.id
           AND window(b.at, '2 seconds', '1 second') = window(a.at, '2 seconds', '1 second')
           JOIN people p ON p.id = a.seller
           AND window(p.at, '2 seconds', '1 second') = window(b.at, '2 seconds', '1 second')""",
        """SELECT make(w.w), b.value, a.value, p.city FROM bids b JOIN auctions a ON b.auction = a.id
           JOIN people p ON p.id = a.seller JOIN (seconds) w ON micros(b.at) >= w.w AND micros(b.at) < w.w + 2000000
           AND micros(a.at) >= w.w AND micros(a.at) < w.w + 2000000
           AND micros(p.at) >= w.w AND micros(p.at) < w.w + 2000000""",
    ),
    "aggregates of four streams": (
        f"""SELECT window_start, p.city, count(*) AS n, avg(b.value) AS mean, max(a.at) AS last,
            count(DISTINCT v.page) AS pages
            FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            JOIN people p ON a.seller = p.id AND {SAME.format("p", "b")}
            JOIN visits v ON v.visitor = p.id AND {SAME.format("v", "p")}
            GROUP BY window_start, p.city HAVING n > 2""",
        """SELECT make(win2(b.at) * 2000000), p.city, count(*), avg(b.value), max(a.at), count(DISTINCT v.page)
           FROM bids b JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           JOIN people p ON a.seller = p.id AND win2(p.at) = win2(b.at)
           JOIN visits v ON v.visitor = p.id AND win2(v.at) = win2(p.at)
           GROUP BY win2(b.at), p.city HAVING count(*) > 2""",
    ),
    "a window of one join, an interval of another, sums by a third": (
        f"""SELECT a.category, window_end, sum(b.value) AS total, stddev(p.value) AS spread
            FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            JOIN people p ON p.id = b.bidder AND p.at BETWEEN b.at - INTERVAL '2' SECOND AND b.at + INTERVAL '1' SECOND
            AND p.value <> a.value GROUP BY TUMBLE(a.at, INTERVAL '4' SECOND), a.category""",
        """SELECT a.category, make(win4(a.at) * 4000000 + 4000000), sum(b.value), stddev_samp(p.value)
           FROM bids b JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           JOIN people p ON p.id = b.bidder
           AND p.at >= b.at - INTERVAL '2' SECOND AND p.at <= b.at + INTERVAL '1' SECOND
           AND p.value <> a.value GROUP BY win4(a.at), a.category""",
    ),
    "an outer join after an inner one": (
        f"""SELECT window_start, b.value, a.category, v.page FROM bids b
            JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            LEFT JOIN visits v ON v.visitor = b.bidder AND {SAME.format("v", "b")} AND v.value > a.value
            WHERE a.category <> 3 AND coalesce(v.page, 0) < 6""",
        """SELECT make(win2(b.at) * 2000000), b.value, a.category, v.page FROM bids b
           JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           LEFT JOIN visits v ON v.visitor = b.bidder AND win2(v.at) = win2(b.at) AND v.value > a.value
           WHERE a.category <> 3 AND coalesce(v.page, 0) < 6""",
    ),
    "sums of a full join after an inner one": (
        f"""SELECT window_start, count(*) AS n, count(v.page) AS pages, sum(b.value) AS total FROM bids b
            JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
            FULL JOIN visits v ON v.visitor = b.bidder AND {SAME.format("v", "b")} GROUP BY window_start""",
        """SELECT make(coalesce(win2(b.at), win2(v.at)) * 2000000), count(*), count(v.page), sum(b.value) FROM bids b
           JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at)
           FULL JOIN visits v ON v.visitor = b.bidder AND win2(v.at) = win2(b.at)
           GROUP BY coalesce(win2(b.at), win2(v.at))""",
    ),
}
FIRST = market.START_MS * 1000 - 1_000_000
STARTS = ", ".join(f"({FIRST + k * 1_000_000})" for k in range(market.SECONDS + 3))


def spark_text(plain: str) -> str:
    text = re.sub(r"win(\d)\((\w)\.at\)", r"(unix_micros(\2.at) div \g<1>000000)", plain)
    text = re.sub(r"\bmicros\(", "unix_micros(", text).replace("make(", "timestamp_micros(")
    return text.replace("(seconds) w", f"(SELECT col1 AS w FROM VALUES {STARTS}) w")


def duck_text(plain: str) -> str:
    text = re.sub(r"win(\d)\((\w)\.at\)", r"(epoch_us(\2.at) // \g<1>000000)", plain)
    text = re.sub(r"\bmicros\(", "epoch_us(", text).replace("make(", "make_timestamp(")
    return text.replace("(seconds) w", f"(SELECT col0 AS w FROM (VALUES {STARTS})) w")


def run(spark: Any, path: Path, folder: Path, lateness_ms: int) -> dict[str, Any]:
    loaded = load(path)
    plan = optimizer.optimize(loaded.problem, loaded.options)
    job = Run(spark, loaded, plan, Settings(folder, until_end=True, lateness_ms=lateness_ms))
    job.start()
    job.wait()
    return job.report()


def results(folder: Path, query: str) -> Any:
    parts = [pd.read_parquet(file) for file in sorted((folder / "results").glob(f"{query}-*.parquet"))]
    return auctions.rows(record for part in parts for record in part.itertuples(index=False))


def test_rows_equal_spark_and_duckdb(spark: Any, tmp_path: Path) -> None:
    """All cases in one run; tuples come in no order at all, within the run's lateness."""
    import duckdb

    data = market.tables()
    queries = {f"case{number}": query for number, (query, _) in enumerate(CASES.values())}
    path = market.scenario(tmp_path / "s", data, queries, parts=2, in_order=False)
    report = run(spark, path, tmp_path / "run", lateness_ms=market.SECONDS * 1000)
    assert report["late_tuples"] == 0
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for name, table in data.items():
            table.to_parquet(tmp_path / f"{name}.parquet", index=False)
            spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
            base.execute(f"CREATE VIEW {name} AS SELECT * FROM '{tmp_path / name}.parquet'")
        for number, (case, (_, plain)) in enumerate(CASES.items()):
            found = results(tmp_path / "run", f"case{number}")
            assert found == auctions.rows(spark.sql(spark_text(plain)).collect()), case
            told = base.sql(duck_text(plain)).to_arrow_table()
            assert found == auctions.rows(zip(*(column.to_pylist() for column in told.columns), strict=True)), case
            assert found, case
