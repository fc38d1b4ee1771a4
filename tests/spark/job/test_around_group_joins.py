"""Joins of groups, NEXMark's 5, 7 and 8 as Flink and Beam write them among them: the rows of Spark SQL in batch, and of
DuckDB, of tuples that come in no order, some at the very end of a window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

import auctions
import market
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Run, Settings

HOP = "TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '4' SECOND))"
TUMBLE = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(at), INTERVAL '2' SECOND))"
TEXTS = {
    "q5": f"""SELECT AuctionBids.auction, AuctionBids.num FROM (
          SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime FROM {HOP}
          GROUP BY auction, window_start, window_end) AS AuctionBids
        JOIN (SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime FROM (
            SELECT count(*) AS num, window_start AS starttime, window_end AS endtime FROM {HOP}
            GROUP BY auction, window_start, window_end) AS CountBids
          GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids
        ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
        AND AuctionBids.num >= MaxBids.maxn""",
    "q7": f"""SELECT B.auction, B.value, B.bidder, B.at FROM bids B JOIN (
          SELECT MAX(value) AS maxprice, window_end AS at FROM {TUMBLE.format("bids")}
          GROUP BY window_start, window_end) B1
        ON B.value = B1.maxprice WHERE B.at BETWEEN B1.at - INTERVAL '2' SECOND AND B1.at""",
    "q8": f"""SELECT P.id, P.city, P.starttime FROM (
          SELECT id, city, window_start AS starttime, window_end AS endtime FROM {TUMBLE.format("people")}
          GROUP BY id, city, window_start, window_end) P
        JOIN (SELECT seller, window_start AS starttime, window_end AS endtime FROM {TUMBLE.format("auctions")}
          GROUP BY seller, window_start, window_end) A
        ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""",
    "q7 of Beam": f"""SELECT B.auction, B.value, B.bidder, B.w FROM (
          SELECT auction, value, bidder, window_start AS w FROM {TUMBLE.format("bids")}
          GROUP BY auction, value, bidder, window_start) B
        JOIN (SELECT max(value) AS top, window_start AS w FROM {TUMBLE.format("bids")} GROUP BY window_start) M
        ON B.w = M.w AND B.value = M.top""",
    "other conditions": f"""SELECT H.w, H.auction, H.n, L.n AS low, L.few FROM (
          SELECT auction, count(*) AS n, window_start AS w FROM {TUMBLE.format("bids")} WHERE value > 60
          GROUP BY auction, window_start HAVING n > 1) H
        LEFT JOIN (SELECT auction, count(*) AS n, count(DISTINCT bidder) AS few, window_start AS w
          FROM {TUMBLE.format("bids")} WHERE value <= 60 GROUP BY auction, window_start) L
        ON L.w = H.w AND L.auction = H.auction""",
    "shares": f"""SELECT A.w, A.auction, A.n / T.n AS share FROM (
          SELECT auction, count(*) AS n, window_start AS w FROM {TUMBLE.format("bids")} WHERE bidder > 2
          GROUP BY auction, window_start) A
        JOIN (SELECT count(*) AS n, window_start AS w FROM {TUMBLE.format("bids")} GROUP BY window_start
          HAVING count(*) > 3) T ON A.w = T.w""",
    "of three streams": f"""SELECT w, count(*) AS n, max(top) AS top FROM (
        SELECT P.w, P.id, A.top, A.kinds FROM (
          SELECT id, window_start AS w FROM {TUMBLE.format("people")} WHERE city <> 'bonn' GROUP BY id, window_start) P
        JOIN (SELECT seller, max(value) AS top, count(DISTINCT category) AS kinds, window_start AS w
          FROM {TUMBLE.format("auctions")} GROUP BY seller, window_start HAVING min(value) < 150) A
        ON P.id = A.seller AND P.w = A.w
        JOIN (SELECT DISTINCT visitor, window_start AS w FROM {TUMBLE.format("visits")}) V
        ON V.visitor = A.seller AND V.w = A.w WHERE A.top > P.id) GROUP BY w""",
    "a stream and its mean": f"""SELECT B.value, B.auction, M.w FROM bids B JOIN (
          SELECT auction, sum(value) AS s, count(*) AS n, window_start AS w, window_end AS e FROM
          {TUMBLE.format("bids")} GROUP BY auction, window_start, window_end) M
        ON B.auction = M.auction AND B.at >= M.w AND B.at < M.e WHERE B.value * M.n > 1.5 * M.s""",
}


def batch_sql(text: str) -> str:
    """The same, of tables whose tuples have the bounds of their windows."""
    text = text.replace(HOP, "bids_hop")
    for name in market.COLUMNS:
        text = text.replace(TUMBLE.format(name), f"{name}_tumble")
    return text


def windows(table: pd.DataFrame, size: int, slide: int) -> pd.DataFrame:
    """A tuple once for each of its windows, lengths in seconds."""
    last = table["at"].dt.floor(f"{slide}s")
    copies = [last - pd.Timedelta(seconds=slide * back) for back in range(size // slide)]
    ends = [start + pd.Timedelta(seconds=size) for start in copies]
    return pd.concat([table.assign(window_start=a, window_end=b) for a, b in zip(copies, ends, strict=True)])


def test_rows_equal_spark_and_duckdb(spark: Any, tmp_path: Path) -> None:
    tables = market.tables()
    bids = tables["bids"].sort_values("at").reset_index(drop=True)
    at = bids["at"].dt.floor("2s")
    bids.loc[::9, "at"] = at[::9]
    tops = bids.groupby(bids["at"].dt.floor("2s"))["value"].max()
    edges = bids.index[bids["at"] == bids["at"].dt.floor("2s")]
    before = (bids.loc[edges, "at"] - pd.Timedelta(seconds=2)).map(tops)
    bids.loc[edges, "value"] = before.fillna(7).astype(int)
    tables["bids"] = pd.concat([bids, bids[::5]]).sample(frac=1, random_state=1).reset_index(drop=True)
    ids = {f"t{number}": name for number, name in enumerate(TEXTS)}
    path = market.scenario(tmp_path / "s", tables, {q: TEXTS[name] for q, name in ids.items()}, 2, in_order=False)
    loaded = load(path)
    plan = optimizer.optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=10_000))
    run.start()
    run.wait()
    wide = {f"{name}_tumble": windows(table, 2, 2) for name, table in tables.items()}
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for name, table in (tables | wide | {"bids_hop": windows(tables["bids"], 4, 2)}).items():
        file = tmp_path / f"{name}.parquet"
        table.to_parquet(file, index=False)
        spark.read.parquet(str(file)).createOrReplaceTempView(name)
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM '{file}'")
    wrong = []
    for query, name in ids.items():
        files = [str(file) for file in (tmp_path / "run" / "results").glob(f"{query}-*.parquet")]
        found = auctions.rows(spark.read.parquet(*files).collect()) if files else auctions.rows([])
        for engine in ("spark", "duckdb"):
            text = batch_sql(TEXTS[name])
            records = (
                spark.sql(text).collect()
                if engine == "spark"
                else [tuple(row.values()) for row in duck.execute(text).to_arrow_table().to_pylist()]
            )
            expected = auctions.rows(records)
            if found != expected or not found:
                wrong.append((name, engine, sum(found.values()), sum(expected.values()), list(found - expected)[:2]))
    assert not wrong
