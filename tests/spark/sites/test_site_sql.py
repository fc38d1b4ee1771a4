"""Queries in SQL at sites give the rows that Spark SQL gives on the same tuples in batch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import auctions
import market
from at_sites import side_by_side
from nova import optimizer
from nova.model.merges import Merges
from nova.model.plan import Plan
from nova.model.replicas import Replicas
from nova.scenario import Scenario, load
from nova.spark.sites.deploy import shares
from nova.spark.sites.exchange import FolderExchange
from nova.spark.sites.share import Settled

BOTH = "HOP({0}.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
SAME = "TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)"
ROWS = (
    f"""SELECT upper(b.bidder) AS who, b.value * 2 AS `b.twice`, a.category, b.at FROM bids b JOIN auctions a
        ON b.auction + 1 = a.id + 1 AND {SAME} WHERE b.value > 60 AND b.value > a.value""",
    """SELECT upper(b.bidder), b.value * 2, a.category, b.at FROM bids b JOIN auctions a ON b.auction = a.id
       AND win(b.at) = win(a.at) WHERE b.value > 60 AND b.value > a.value""",
)
GROUPS = (
    f"""SELECT window_start, a.category, count(*) AS n, sum(b.value) AS total, avg(b.value) AS mean, min(b.at) AS first,
        stddev(b.value) AS spread, sum(CAST(b.value AS DECIMAL(10, 2))) AS exact FROM bids b JOIN auctions a
        ON b.auction = a.id AND {SAME} WHERE b.value > a.value GROUP BY window_start, a.category HAVING n > 2""",
    """SELECT timestamp_micros(win(b.at) * 2000000), a.category, count(*), sum(b.value), avg(b.value), min(b.at),
       stddev(b.value), sum(CAST(b.value AS DECIMAL(10, 2))) FROM bids b JOIN auctions a ON b.auction = a.id
       AND win(b.at) = win(a.at) WHERE b.value > a.value GROUP BY win(b.at), a.category HAVING count(*) > 2""",
)
HOP = (
    f"""SELECT window_start, b.value, a.id FROM bids b JOIN auctions a ON {BOTH.format("b")} = {BOTH.format("a")}
        AND b.auction = a.id WHERE b.bidder <> 'bob'""",
    """SELECT timestamp_micros(w * 1000000L), b.value, a.id FROM bids b JOIN auctions a ON b.auction = a.id JOIN
       (SELECT explode(sequence(1699999990, 1700000020)) AS w) ON unix_micros(b.at) >= w * 1000000L
       AND unix_micros(b.at) < w * 1000000L + 2000000 AND unix_micros(a.at) >= w * 1000000L
       AND unix_micros(a.at) < w * 1000000L + 2000000 WHERE b.bidder <> 'bob'""",
)
INTERVAL = (
    """SELECT b.bidder, window_start, count(DISTINCT b.auction) AS auctions, max(b.value) - min(b.value) AS span
       FROM bids b JOIN auctions a ON b.auction = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND
       GROUP BY TUMBLE(b.at, INTERVAL '2' SECOND), b.bidder""",
    """SELECT b.bidder, timestamp_micros(win(b.at) * 2000000), count(DISTINCT b.auction), max(b.value) - min(b.value)
       FROM bids b JOIN auctions a ON b.auction = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '2' SECOND
       GROUP BY win(b.at), b.bidder""",
)


def spread(loaded: Scenario, hosts: tuple[int, ...], ways: tuple[tuple[int, int], ...], whole: str = "") -> Plan:
    """A plan whose sub-joins run on these hosts in turn, those of the query `whole` on fog; partial aggregates go these
    ways between them, and then to the sink."""
    plan = optimizer.optimize(loaded.problem, loaded.options)
    query = plan.joins.query
    alone = np.array([one.id == whole for one in loaded.problem.queries])[query]
    nodes = np.where(alone, 2, np.array(hosts)[np.arange(len(query)) % len(hosts)]).astype(np.int32)
    groups = [one.pipeline.group for one in loaded.problem.queries]
    merging = [number for number, group in enumerate(groups) if group is not None and group.merge]
    merges = Merges.of([(number, *way) for number in merging for way in ways])
    return replace(plan, replicas=Replicas.whole(np.arange(len(query)), nodes), merges=merges)


def expected(spark: Any, text: str) -> Counter[Any]:
    """The rows of Spark SQL in batch; `win(t)` is the number of the window of two seconds."""
    return auctions.rows(spark.sql(re.sub(r"win\((\w+)\.at\)", r"(unix_micros(\1.at) div 2000000)", text)).collect())


def found(folder: Path, query: str) -> Counter[Any]:
    parts = [pd.read_parquet(file) for file in sorted((folder / "results").glob(f"{query}-*.parquet"))]
    return auctions.rows(record for part in parts for record in part.itertuples(index=False))


def views(spark: Any, folder: Path, **tables: pd.DataFrame) -> None:
    for name, table in tables.items():
        table.to_parquet(folder / f"{name}.parquet", index=False)
        spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)


def test_rows_equal_spark_and_only_what_passes_travels(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuples in no order. Those that do not pass at their source's site, and those without a key, do not leave it."""
    bids, opened = auctions.tables()
    texts = {"rows": ROWS, "groups": GROUPS}
    queries = {name: text for name, (text, _) in texts.items()}
    path = auctions.scenario(tmp_path / "s", queries, bids, opened, 1, in_order=False, selectivity={"group": 5})
    loaded = load(path)
    exchanged: Counter[tuple[str, str]] = Counter()
    send = FolderExchange.send

    def counting(self: FolderExchange, parts: Any) -> None:
        for channel, _, file in parts:
            if channel.kind in ("left", "right"):
                exchanged[channel.query, channel.kind] += sum(pq.read_table(file)["tuples"].to_pylist())
        send(self, parts)

    monkeypatch.setattr(FolderExchange, "send", counting)
    settled = Settled(str(tmp_path / "exchange"), 20_000)
    made = list(shares(spark, loaded, spread(loaded, (1, 2), ((1, 2),), "rows"), settled))
    sites = side_by_side(spark, made, settled.exchange, tmp_path / "run")
    views(spark, tmp_path, bids=bids, auctions=opened)
    for name, (_, plain) in texts.items():
        wanted = expected(spark, plain)
        assert wanted, name
        assert found(tmp_path / "run" / "hq", name) == wanted, name
    passing = bids[(bids["value"] > 60) & bids["auction"].notna()]
    assert exchanged["rows", "left"] == len(passing) < len(bids) / 1.3
    assert exchanged["rows", "right"] == len(opened)
    told = {name: {one["query"]: one for one in site.report()["queries"]} for name, site in sites.items()}
    assert told["edge1"]["rows"]["tuples"]["left"] < len(bids) / 2
    assert told["fog"]["groups"]["merged"] > 0
    assert not told["edge2"]["groups"]["merged"]


LEFT = (
    f"""SELECT b.auction, b.value, a.category, b.source AS site FROM bids b LEFT JOIN auctions a ON b.auction = a.id
        AND {SAME} AND b.value > a.value AND a.category > 0 WHERE b.value > 20 AND coalesce(a.value, 0) < 90""",
    """SELECT b.auction, b.value, a.category, b.source_id FROM bids b LEFT JOIN auctions a ON b.auction = a.id
       AND win(b.at) = win(a.at) AND b.value > a.value AND a.category > 0
       WHERE b.value > 20 AND coalesce(a.value, 0) < 90""",
)
FULL = (
    f"""SELECT window_start, count(*) AS n, count(a.id) AS opened, sum(b.value) AS total FROM bids b
        FULL JOIN auctions a ON b.auction = a.id AND {SAME} AND b.value > 150 GROUP BY window_start HAVING n > 1""",
    """SELECT timestamp_micros(coalesce(win(b.at), win(a.at)) * 2000000), count(*), count(a.id), sum(b.value)
       FROM bids b FULL JOIN auctions a ON b.auction = a.id AND win(b.at) = win(a.at) AND b.value > 150
       GROUP BY coalesce(win(b.at), win(a.at)) HAVING count(*) > 1""",
)
RIGHT = (
    """SELECT a.id, a.at AS opened, b.at, b.bidder FROM bids b RIGHT JOIN auctions a ON b.auction = a.id
       AND b.at BETWEEN a.at - INTERVAL '300' MILLISECOND AND a.at + INTERVAL '1' SECOND""",
    """SELECT a.id, a.at, b.at, b.bidder FROM bids b RIGHT JOIN auctions a ON b.auction = a.id
       AND b.at >= a.at - INTERVAL '300' MILLISECOND AND b.at <= a.at + INTERVAL '1' SECOND""",
)
ALONE = (
    "SELECT upper(bidder) AS who, value * 2 AS twice FROM bids WHERE value > 90",
    "SELECT upper(bidder), value * 2 FROM bids WHERE value > 90",
)
COUNTED = (
    """SELECT window_start, auction, count(*) AS n, avg(value) AS mean FROM bids WHERE value > 10
       GROUP BY HOP(at, INTERVAL '1' SECOND, INTERVAL '2' SECOND), auction HAVING count(*) > 1""",
    """SELECT timestamp_micros(w * 1000000L), auction, count(*), avg(value) FROM bids JOIN
       (SELECT explode(sequence(1699999990, 1700000020)) AS w) ON unix_micros(at) >= w * 1000000L
       AND unix_micros(at) < w * 1000000L + 2000000 WHERE value > 10 GROUP BY w, auction HAVING count(*) > 1""",
)


def equal(spark: Any, folder: Path, texts: dict[str, tuple[str, str]]) -> None:
    """Run queries of the auction at sites, with partial aggregates by way of edge1 and fog, and compare."""
    bids, opened = auctions.tables()
    queries = {name: text for name, (text, _) in texts.items()}
    loaded = load(auctions.scenario(folder / "s", queries, bids, opened, 3, in_order=False, selectivity={"group": 5}))
    compare(
        spark, folder, loaded, spread(loaded, (0, 1, 2), ((1, 0), (0, 2))), texts, {"bids": bids, "auctions": opened}
    )


def compare(
    spark: Any,
    folder: Path,
    loaded: Scenario,
    plan: Plan,
    texts: dict[str, tuple[str, str]],
    tables: dict[str, pd.DataFrame],
) -> None:
    settled = Settled(str(folder / "exchange"), 20_000)
    side_by_side(spark, list(shares(spark, loaded, plan, settled)), settled.exchange, folder / "run")
    views(spark, folder, **tables)
    wrong = []
    for name, (_, plain) in texts.items():
        wanted, rows = expected(spark, plain), found(folder / "run" / "hq", name)
        if rows != wanted or not wanted:
            wrong.append((name, rows.total(), wanted.total(), list((rows - wanted).items())[:2]))
    assert not wrong


@pytest.mark.slow
def test_outer_joins_equal_spark(spark: Any, tmp_path: Path) -> None:
    equal(spark, tmp_path, {"left": LEFT, "full": FULL, "right": RIGHT})


@pytest.mark.slow
def test_queries_of_one_stream_and_other_windows_equal_spark(spark: Any, tmp_path: Path) -> None:
    equal(spark, tmp_path, {"alone": ALONE, "counted": COUNTED, "hop": HOP, "interval": INTERVAL})


@pytest.mark.slow
def test_chains_equal_spark(spark: Any, tmp_path: Path) -> None:
    """What the first joins make on edge2 and fog travels on to the joins on edge3."""
    tables = market.tables()
    queries = {name: text for name, (text, _) in market.CHAINS.items()}
    loaded = load(market.scenario(tmp_path / "s", tables, queries, 2, in_order=False))
    compare(spark, tmp_path, loaded, market.on_two_and_one(loaded), market.CHAINS, tables)
