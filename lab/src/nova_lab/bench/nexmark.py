"""NEXMark: persons open auctions and bid on them; the queries of the benchmark under a plan, and as plain Spark jobs.

Queries 0 to 5 and 7 to 9, with a window where the original has none (a stream has no end): 3 bounds how long after a
person its auctions come, 4 and 9 how long an auction lasts, and both group auctions by when they were opened. 6
averages over the last ten auctions of a seller, by count and not by time, which no window here is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

from nova.model.problem import Floats
from nova.optimizer import optimize
from nova.routing.position import Longs
from nova.scenario import load
from nova.spark.job.run import CONFIG, Run, Settings
from nova_lab.bench.stream import WARM, batch_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_MS = 1_700_000_000_000
SHARES = {"person": 0.114, "auction": 0.142, "bid": 0.744}
"""Of all events. The original has 1 : 3 : 46; more persons and auctions give joins more to do."""
SOURCES = 10
"""Of each stream, spread over the topology."""
NODES = 100
LATENESS_MS = 2000
GROUPS = "_groups"


@dataclass(frozen=True)
class Query:
    """One query: its text for Nova, and how the same is written for Spark alone. `$sold` stands for `SOLD`."""

    reads: tuple[str, ...]
    sql: str
    plain: str = ""
    """What Spark runs as a stream, or in batch; empty: the same text."""
    around: str = ""
    """What is asked of the windows that are complete, over `_groups`: Spark has no ranks in streams."""

    def __post_init__(self) -> None:
        for name in ("sql", "plain"):
            object.__setattr__(self, name, getattr(self, name).replace("$sold", SOLD))

    def spark_sql(self) -> str:
        """The whole as one text for Spark in batch."""
        text = self.plain or self.sql
        return self.around.replace(GROUPS, f"({text})") if self.around else text


SOLD = """FROM bid b JOIN auction a ON a.id = b.auction AND b.date_time <= a.expires
           AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL '6' SECOND"""
"""Bids that an auction took in time."""
QUERIES = {
    "q0": Query(("bid",), "SELECT auction, bidder, value AS price, date_time, channel FROM bid"),
    "q1": Query(("bid",), "SELECT auction, bidder, 0.908 * value AS price, date_time FROM bid"),
    "q2": Query(("bid",), "SELECT auction, value AS price FROM bid WHERE auction % 12 = 0"),
    "q3": Query(
        ("auction", "person"),
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
           AND a.date_time BETWEEN p.date_time - INTERVAL '1' SECOND AND p.date_time + INTERVAL '10' SECOND
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    "q4": Query(
        ("bid", "auction"),
        """SELECT w, category, avg(final) AS mean FROM (
            SELECT window_start AS w, a.id, a.category, max(b.value) AS final $sold
            GROUP BY TUMBLE(a.date_time, INTERVAL '5' SECOND), a.id, a.category) GROUP BY w, category""",
        """SELECT window.start AS w, id, category, max(price) AS final FROM (
            SELECT a.date_time AS opened, a.id, a.category, b.value AS price $sold)
            GROUP BY window(opened, '5 seconds'), id, category""",
        "SELECT w, category, avg(final) AS mean FROM _groups GROUP BY w, category",
    ),
    "q5": Query(
        ("bid",),
        """SELECT w, auction, n FROM (SELECT w, auction, n, max(n) OVER (PARTITION BY w) AS most FROM (
           SELECT window_start AS w, auction, count(*) AS n FROM bid
           GROUP BY HOP(date_time, INTERVAL '2' SECOND, INTERVAL '6' SECOND), auction)) WHERE n = most""",
        """SELECT window.start AS w, auction, count(*) AS n FROM bid
           GROUP BY window(date_time, '6 seconds', '2 seconds'), auction""",
        "SELECT w, auction, n FROM (SELECT *, max(n) OVER (PARTITION BY w) AS most FROM _groups) WHERE n = most",
    ),
    "q7": Query(
        ("bid",),
        """SELECT w, auction, bidder, price, n FROM (SELECT *, max(price) OVER (PARTITION BY w) AS top FROM (
           SELECT window_end AS w, auction, bidder, value AS price, count(*) AS n FROM bid
           GROUP BY TUMBLE(date_time, INTERVAL '2' SECOND), auction, bidder, value)) WHERE price = top""",
        """SELECT window.end AS w, auction, bidder, value AS price, count(*) AS n FROM bid
           GROUP BY window(date_time, '2 seconds'), auction, bidder, value""",
        """SELECT w, auction, bidder, price, n FROM (SELECT *, max(price) OVER (PARTITION BY w) AS top FROM _groups)
            WHERE price = top""",
    ),
    "q8": Query(
        ("person", "auction"),
        """SELECT p.id, p.name, window_start FROM person p JOIN auction a ON p.id = a.seller
           AND TUMBLE(p.date_time, INTERVAL '5' SECOND) = TUMBLE(a.date_time, INTERVAL '5' SECOND)
           GROUP BY p.id, p.name, window_start""",
        """SELECT id, name, w.start FROM (
           SELECT p.id, p.name, p.w FROM (SELECT id, name, window(date_time, '5 seconds') AS w FROM person) p
           JOIN (SELECT seller, window(date_time, '5 seconds') AS w FROM auction) a ON p.id = a.seller AND p.w = a.w)
           GROUP BY id, name, w""",
    ),
    "q9": Query(
        ("bid", "auction"),
        """SELECT id, bidder, price, at FROM (
            SELECT *, row_number() OVER (PARTITION BY w, id ORDER BY price DESC, at, bidder) AS place FROM (
            SELECT window_start AS w, a.id, b.bidder, b.value AS price, b.date_time AS at $sold
            GROUP BY TUMBLE(a.date_time, INTERVAL '5' SECOND), a.id, b.bidder, b.value, b.date_time))
            WHERE place = 1""",
        """SELECT window.start AS w, id, bidder, price, at FROM (
            SELECT a.date_time AS opened, a.id, b.bidder, b.value AS price,
            timestamp_micros(unix_micros(b.date_time)) AS at $sold)
            GROUP BY window(opened, '5 seconds'), id, bidder, price, at""",
        """SELECT id, bidder, price, at FROM (
            SELECT *, row_number() OVER (PARTITION BY w, id ORDER BY price DESC, at, bidder) AS place FROM _groups)
            WHERE place = 1""",
    ),
}


def events(count: int, seconds: float, seed: int = 1) -> dict[str, pd.DataFrame]:
    """About `count` events of all streams within so many seconds, in order of time."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, round(seconds * 1000), count)) + START_MS
    kind = rng.choice(list(SHARES), count, p=list(SHARES.values()))
    time = pd.Series(pd.to_datetime(at, unit="ms", utc=True))
    rows: dict[str, Longs] = {name: np.flatnonzero(kind == name) for name in SHARES}
    persons, auctions = (np.arange(1000, 1000 + len(rows[name]), dtype=np.int64) for name in ("person", "auction"))

    def recent(ids: Longs, of: str, events_of: str) -> Longs:
        """For each event, the id of one that exists by then, rather a new one."""
        so_far = np.searchsorted(rows[of], rows[events_of])
        found: Longs = ids[np.maximum(so_far - 1 - rng.geometric(0.15, len(so_far)), 0)]
        return found

    def table(name: str, /, **columns: Any) -> pd.DataFrame:
        mine = rows[name]
        sites = [f"{name}-{k}" for k in rng.integers(0, SOURCES, len(mine))]
        return pd.DataFrame({"source_id": sites, "date_time": time.iloc[mine].to_numpy(), **columns})

    person, auction, bid = (len(rows[name]) for name in ("person", "auction", "bid"))
    return {
        "person": table(
            "person",
            value=rng.random(person),
            id=persons,
            name=rng.choice(["ann lee", "bob ray", "cleo fox"], person),
            city=rng.choice(["boise", "portland", "phoenix"], person),
            state=rng.choice(["OR", "ID", "CA", "AZ"], person),
        ),
        "auction": table(
            "auction",
            value=rng.integers(1, 100, auction),
            id=auctions,
            seller=recent(persons, "person", "auction"),
            category=rng.integers(10, 15, auction),
            expires=pd.to_datetime(at[rows["auction"]] + rng.integers(500, 6000, auction), unit="ms", utc=True),
        ),
        "bid": table(
            "bid",
            value=rng.integers(1, 1000, bid),
            auction=recent(auctions, "auction", "bid"),
            bidder=recent(persons, "person", "bid"),
            channel=np.array(["web", "app", None], dtype=object)[rng.integers(0, 3, bid)],
        ),
    }


def write_tables(folder: Path, tables: dict[str, pd.DataFrame], parts: int) -> None:
    """Each stream as so many files, all of the same stretches of time."""
    every = pd.concat([table["date_time"] for table in tables.values()])
    first, span = every.min(), every.max() - every.min()
    for name, table in tables.items():
        (folder / name).mkdir(parents=True)
        part = np.minimum(((table["date_time"] - first) / span * parts).astype(int), parts - 1)
        for number in range(parts):
            table[part == number].to_parquet(folder / name / f"{number:04d}.parquet", index=False)


def scenario(folder: Path, rates: dict[str, float], queries: dict[str, str]) -> Path:
    """A topology of 100 nodes, ten sources a stream spread over it, and queries to one sink. `rates`: tuples/s."""
    rng = np.random.default_rng(2)
    at: Floats = rng.uniform(0, 60, (NODES, 2)).round(3)
    homes = {name: rng.integers(1, NODES, SOURCES) for name in rates}
    capacity = 0.8 * sum(rates.values())
    document = {
        "nova": 1,
        "nodes": [{"id": f"n{k}", "capacity": capacity, "x": float(x), "y": float(y)} for k, (x, y) in enumerate(at)],
        "streams": {
            name: {
                "sources": [
                    {"id": f"{name}-{k}", "node": f"n{home}", "rate": rate / SOURCES}
                    for k, home in enumerate(homes[name])
                ],
                "input": {
                    "format": "parquet",
                    "path": name,
                    "options": {"maxFilesPerTrigger": 1},
                    "columns": {"time": "date_time"},
                },
            }
            for name, rate in rates.items()
        },
        "queries": [{"id": name, "sql": text, "sink": "n0"} for name, text in queries.items()],
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def planned_job(spark: SparkSession, path: Path, out: Path) -> Run:
    """The queries of a scenario, planned and run to the end of the files."""
    loaded = load(path)
    plan = optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(out, until_end=True, lateness_ms=LATENESS_MS))
    run.start()
    run.wait()
    return run


def plain_job(spark: SparkSession, query: Query, data: Path, out: Path) -> StreamingQuery:
    """The query as one writes it for Spark without Nova."""
    for name in query.reads:
        schema = spark.read.parquet(str(data / name)).schema
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(data / name))
        frame.withWatermark("date_time", f"{LATENESS_MS} milliseconds").createOrReplaceTempView(name)

    def write(rows: DataFrame, batch: int) -> None:
        if query.around:
            rows.createOrReplaceTempView(GROUPS)
            rows = rows.sparkSession.sql(query.around)
        rows.write.parquet(str(out / "results" / str(batch)))

    return (
        spark.sql(query.plain or query.sql)
        .writeStream.option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )


def differences(spark: SparkSession, query: Query, data: Path, results: Sequence[str]) -> int:
    """Rows that only one of Nova's results and of Spark SQL in batch has, each as often as it is missing."""
    for name in query.reads:
        spark.read.parquet(str(data / name)).createOrReplaceTempView(name)
    expected = spark.sql(query.spark_sql())
    if not results:
        return expected.count()
    found = spark.read.parquet(*results)
    return found.exceptAll(expected).count() + expected.exceptAll(found).count()


def bench(
    spark: SparkSession,
    names: Sequence[str],
    *,
    events_per_batch: int,
    batches: int,
    batch_s: float,
    scratch: Path,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Tuples/s of each query under its plan and as a plain Spark job, one after the other on the same files: tuples of
    a batch over the median time of one."""
    for key, value in CONFIG.items():
        spark.conf.set(key, value)
    parts = batches + WARM
    tables = events(events_per_batch * parts, batch_s * parts)
    write_tables(scratch, tables, parts)
    rates = {name: len(table) / (batch_s * parts) for name, table in tables.items()}
    told = []
    for name in names:
        query = QUERIES[name]
        tuples = sum(len(tables[stream]) for stream in query.reads) / parts
        out = scratch / "out"
        plain = float(np.median(batch_times(plain_job(spark, query, scratch, out / "plain"))))
        run = planned_job(spark, scenario(scratch, rates, {name: query.sql}), out / "nova")
        routed = float(np.median(batch_times(run.running[0].query)))
        results = [str(file) for file in sorted((out / "nova" / "results").glob("*.parquet"))]
        figures = {
            "query": name,
            "tuples_per_batch": tuples,
            "tuples_per_s": tuples / routed,
            "plain_tuples_per_s": tuples / plain,
            "ratio": plain / routed,
            "replicas": len(run.plan.replicas),
            "results": spark.read.parquet(*results).count() if results else 0,
            "rows_unlike_batch": differences(spark, query, scratch, results),
        }
        told.append(figures)
        tell(f"{name}: {figures['tuples_per_s']:,.0f} tuples/s, plain Spark {figures['plain_tuples_per_s']:,.0f}")
        shutil.rmtree(out)
    return {"nodes": NODES, "sources": SOURCES * len(SHARES), "queries": told}
