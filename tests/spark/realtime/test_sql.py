"""Queries in SQL in real time give the rows that Spark SQL gives on the same tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import auctions
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Settings
from nova.spark.realtime.inputs import Unfit
from nova.spark.realtime.run import RealtimeRun, why_not

SAME = "TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)"
SAME_SPARK = "unix_micros(b.at) div 2000000 = unix_micros(a.at) div 2000000"
JOINED = "FROM bids b JOIN auctions a ON b.auction = a.id"
CASES = {
    "filters, computed columns, a residual, and a column of the name `id`": (
        f"""SELECT b.auction, upper(b.bidder) AS who, b.value * 2 AS twice, a.category, b.at AS bid_at, a.id,
            b.value > 100 AS dear, date(b.at) AS day, b.source AS site {JOINED} AND {SAME}
            WHERE b.value > 40 AND a.category IN (1, 2) AND b.value > a.value""",
        f"""SELECT b.auction, upper(b.bidder), b.value * 2, a.category, b.at, a.id, b.value > 100, date(b.at),
            b.source_id {JOINED} AND {SAME_SPARK} WHERE b.value > 40 AND a.category IN (1, 2) AND b.value > a.value""",
    ),
    "computed keys, a null, the window": (
        f"""SELECT window_start, a.category, coalesce(a.category, -1) AS known,
            CASE WHEN b.value > 90 THEN 'dear' END AS dear
            FROM bids b JOIN auctions a ON b.auction % 5 = a.id % 5 AND {SAME}""",
        f"""SELECT timestamp_micros((unix_micros(b.at) div 2000000) * 2000000), a.category, coalesce(a.category, -1),
            CASE WHEN b.value > 90 THEN 'dear' END
            FROM bids b JOIN auctions a ON b.auction % 5 = a.id % 5 AND {SAME_SPARK}""",
    ),
    "an interval": (
        f"""SELECT b.auction, a.category, b.at, a.at AS opened {JOINED}
            AND b.at BETWEEN a.at - INTERVAL '500' MILLISECOND AND a.at + INTERVAL '3' SECOND""",
        f"""SELECT b.auction, a.category, b.at, a.at {JOINED}
            AND b.at >= a.at - INTERVAL '500' MILLISECOND AND b.at <= a.at + INTERVAL '3' SECOND""",
    ),
    "sliding windows": (
        f"""SELECT window_start, b.auction, b.value, a.value AS reserve {JOINED} AND
            HOP(b.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND) = HOP(a.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND)
            WHERE b.bidder <> 'bob'""",
        """SELECT w.window.start, w.auction, w.value, v.value
           FROM (SELECT *, window(at, '2 seconds', '1 second') AS window FROM bids) w
           JOIN (SELECT *, window(at, '2 seconds', '1 second') AS window FROM auctions) v
           ON w.auction = v.id AND w.window = v.window WHERE w.bidder <> 'bob'""",
    ),
}
"""Each as Nova's dialect and as Spark's."""


@pytest.mark.parametrize("cases", list(zip(*[iter(CASES)] * 2, strict=True)), ids=("tumbling", "copied"))
def test_rows_equal_those_of_spark(spark: Any, tmp_path: Path, cases: tuple[str, str]) -> None:
    """Two cases in one run."""
    bids, opened = auctions.tables()
    queries = {f"case{number}": CASES[case][0] for number, case in enumerate(cases)}
    loaded = load(auctions.scenario(tmp_path / "s", queries, bids, opened))
    settings = Settings(tmp_path / "run", until_end=True, speed=6.0)
    assert why_not(loaded, settings, None) is None
    running = RealtimeRun(spark, loaded, optimizer.optimize(loaded.problem, loaded.options), settings)
    running.start()
    running.wait()
    for name, table in (("bids", bids), ("auctions", opened)):
        table.to_parquet(tmp_path / f"{name}.parquet", index=False)
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    told = {query["query"]: query for query in running.report()["queries"]}
    for number, case in enumerate(cases):
        found = results(tmp_path / "run", f"case{number}")
        ids = found.column_names[-1]
        assert ids == ("result_id" if "`id`" in case else "id")
        assert len(set(found[ids].to_pylist())) == len(found) > 0, case
        rows = auctions.rows(zip(*(column.to_pylist() for column in found.drop_columns([ids]).columns), strict=True))
        assert rows == auctions.rows(spark.sql(CASES[case][1]).collect()), case
        assert told[f"case{number}"]["results"] == len(found)
        if "computed keys" in case:
            assert told[f"case{number}"]["tuples"] == {"left": len(bids), "right": len(opened)}
        if "filters" in case:  # those that pass, as the plan counts them
            assert told[f"case{number}"]["tuples"]["left"] == (bids["value"] > 40).sum()


def test_nothing_passes(spark: Any, tmp_path: Path) -> None:
    """Neither of the pairs, where Spark can tell beforehand, nor of the tuples of a stream."""
    bids, opened = auctions.tables()
    never = {
        f"case{number}": f"SELECT b.value {JOINED} AND {SAME} WHERE {no}"
        for number, no in enumerate(("1 = 2", "b.value < 0"))
    }
    loaded = load(auctions.scenario(tmp_path / "s", never, bids, opened))
    settings = Settings(tmp_path / "run", until_end=True, speed=6.0)
    running = RealtimeRun(spark, loaded, optimizer.optimize(loaded.problem, loaded.options), settings)
    running.start()
    running.wait()
    report = running.report()
    assert report["results"] == 0
    assert [query["tuples"]["left"] for query in report["queries"]] == [len(bids), 0]


def results(folder: Path, query: str) -> pa.Table:
    """What a run wrote for a query."""
    files = sorted((folder / "results").glob(f"{query}-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (f"SELECT count(*) AS n {JOINED} AND {SAME} GROUP BY window_start", "query q aggregates"),
        ("SELECT b.value FROM bids b WHERE b.value > 3", "query q reads one stream"),
        (f"SELECT b.value FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND {SAME}", "query q is an outer join"),
        (
            f"""SELECT b.value {JOINED} AND {SAME} JOIN bids c ON c.auction = a.id AND
                TUMBLE(c.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)""",
            "joins more than two streams",
        ),
    ],
)
def test_what_goes_in_batches_is_told(tmp_path: Path, sql: str, why: str) -> None:
    loaded = load(auctions.scenario(tmp_path, sql, *auctions.tables()))
    assert why in (why_not(loaded, Settings(tmp_path, speed=1.0), None) or "")


@pytest.mark.parametrize(
    ("column", "why"),
    [("array(b.value)", "'x' is of type list"), ("rand()", "for chance"), ("current_timestamp()", "the time of now")],
)
def test_what_cannot_be_repeated_or_travel_is_refused_at_the_start(
    spark: Any, tmp_path: Path, column: str, why: str
) -> None:
    loaded = load(auctions.scenario(tmp_path / "s", f"SELECT {column} AS x {JOINED} AND {SAME}", *auctions.tables()))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    with pytest.raises(Unfit, match=why):
        RealtimeRun(spark, loaded, plan, Settings(tmp_path / "run", speed=6.0)).start()
