"""Outer joins: rows equal Spark's and DuckDB's; a tuple without a partner comes once, however the join is divided."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import auctions
from nova import optimizer
from nova.model.errors import NovaError
from nova.model.operators import Pipeline
from nova.routing import compile_routes
from nova.routing.flow import Flow
from nova.routing.packets import Names, pack, results, route
from nova.routing.timeline import Epoch, Timeline
from nova.routing.xxh64 import hash_strings
from nova.scenario import load
from nova.spark.job.folder import RunFolder
from nova.spark.job.kept import Kept
from nova.spark.job.run import Run, Settings
from nova.spark.job.unmatched import Unmatched
from nova.spark.replan.handover import put
from tilings import random_replicas, sub_joins

SAME = "TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)"
CASES: dict[str, tuple[str, str]] = {
    "left, a residual and conditions on either side": (
        f"""SELECT b.auction, b.value, a.category, b.source AS site, window_start
            FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND {SAME} AND b.value > a.value AND b.bidder <> 'bob'
            AND a.category > 0 WHERE b.value > 20 AND coalesce(a.value, 0) < 90""",
        """SELECT b.auction, b.value, a.category, b.source_id, make(win2(b.at) * 2000000)
           FROM bids b LEFT JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at) AND b.value > a.value
           AND b.bidder <> 'bob' AND a.category > 0 WHERE b.value > 20 AND coalesce(a.value, 0) < 90""",
    ),
    "right, an interval whose copied side is kept": (
        """SELECT a.id, a.at AS opened, b.at, b.bidder FROM bids b RIGHT OUTER JOIN auctions a ON b.auction = a.id
           AND b.at BETWEEN a.at - INTERVAL '300' MILLISECOND AND a.at + INTERVAL '1' SECOND""",
        """SELECT a.id, a.at opened, b.at, b.bidder FROM bids b RIGHT JOIN auctions a ON b.auction = a.id
           AND b.at >= a.at - INTERVAL '300' MILLISECOND AND b.at <= a.at + INTERVAL '1' SECOND""",
    ),
    "full, an interval": (
        """SELECT b.value, b.at, a.value AS reserve, a.at AS opened FROM bids b FULL JOIN auctions a
           ON b.auction = a.id AND b.at >= a.at AND b.at <= a.at + INTERVAL '700' MILLISECOND""",
        """SELECT b.value, b.at, a.value reserve, a.at opened FROM bids b FULL JOIN auctions a
           ON b.auction = a.id AND b.at >= a.at AND b.at <= a.at + INTERVAL '700' MILLISECOND""",
    ),
    "full, aggregates by the join's window": (
        f"""SELECT window_start, count(*) AS n, count(a.id) AS opened, sum(b.value) AS total, max(a.category) AS top
            FROM bids b FULL JOIN auctions a ON b.auction = a.id AND {SAME} AND b.value > 150
            GROUP BY window_start HAVING n > 1""",
        """SELECT make(coalesce(win2(b.at), win2(a.at)) * 2000000), count(*), count(a.id), sum(b.value), max(a.category)
           FROM bids b FULL JOIN auctions a ON b.auction = a.id AND win2(b.at) = win2(a.at) AND b.value > 150
           GROUP BY coalesce(win2(b.at), win2(a.at)) HAVING count(*) > 1""",
    ),
    "left, sliding windows": (
        """SELECT window_start, b.at, b.auction, a.value FROM bids b LEFT JOIN auctions a
           ON HOP(b.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND) = HOP(a.at, INTERVAL '1' SECOND, INTERVAL '2' SECOND)
           AND b.auction = a.id AND a.category = 1""",
        """SELECT make(b.w), b.at, b.auction, a.value
           FROM (SELECT * FROM bids b JOIN (seconds) w ON micros(b.at) >= w.w AND micros(b.at) < w.w + 2000000) b
           LEFT JOIN
           (SELECT * FROM auctions a JOIN (seconds) w ON micros(a.at) >= w.w AND micros(a.at) < w.w + 2000000) a
           ON a.w = b.w AND b.auction = a.id AND a.category = 1""",
    ),
}


def _text(text: str, micros: str, make: str, halves: str, starts: str) -> str:
    for side in ("a", "b"):
        text = text.replace(f"win2({side}.at)", f"({micros}({side}.at) {halves} 2000000)")
        text = text.replace(f" micros({side}.at)", f" {micros}({side}.at)")
    return text.replace("make(", f"{make}(").replace("(seconds) w", starts)


def _run(spark: Any, path: Path, folder: Path, lateness_ms: int = 2000) -> None:
    loaded = load(path)
    plan = optimizer.optimize(loaded.problem, loaded.options)
    job = Run(spark, loaded, plan, Settings(folder, until_end=True, lateness_ms=lateness_ms))
    job.start()
    job.wait()


def _found(folder: Path, query: str) -> Counter[tuple[Any, ...]]:
    parts = [pd.read_parquet(file) for file in sorted((folder / "results").glob(f"{query}-*.parquet"))]
    return auctions.rows(record for part in parts for record in part.itertuples(index=False))


def _oracles(spark: Any, folder: Path, bids: pd.DataFrame, opened: pd.DataFrame, plain: str) -> list[Any]:
    import duckdb

    first = auctions.START_MS * 1000 - 1_000_000
    starts = ", ".join(f"({first + k * 1_000_000})" for k in range(20))
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        for name, table in (("bids", bids), ("auctions", opened)):
            table.to_parquet(folder / f"{name}.parquet", index=False)
            spark.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
            base.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / name}.parquet'")
        text = _text(plain, "unix_micros", "timestamp_micros", "div", f"(SELECT col1 AS w FROM VALUES {starts}) w")
        mine = auctions.rows(spark.sql(text).collect())
        text = _text(plain, "epoch_us", "make_timestamp", "//", f"(SELECT col0 AS w FROM (VALUES {starts})) w")
        told = base.sql(text).to_arrow_table()
        return [mine, auctions.rows(zip(*(column.to_pylist() for column in told.columns), strict=True))]


def test_rows_equal_spark_and_duckdb(spark: Any, tmp_path: Path) -> None:
    """All cases in one run, of streams that come in order and of one that does not."""
    bids, opened = auctions.tables()
    ids = {f"case{number}": texts for number, texts in enumerate(CASES.values())}
    queries = {name: query for name, (query, _) in ids.items()}
    path = auctions.scenario(tmp_path / "s", queries, bids, opened, 3, in_order=False)
    _run(spark, path, tmp_path / "run", lateness_ms=13_000)
    for (name, (_, plain)), case in zip(ids.items(), CASES, strict=True):
        for expected in _oracles(spark, tmp_path, bids, opened, plain):
            assert _found(tmp_path / "run", name) == expected, case
            assert expected, case


@pytest.mark.slow
def test_a_crash_and_a_new_plan_change_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third batch fails after its rows are out; the run goes on under another plan, with tuples still waiting."""
    query, plain = CASES["left, a residual and conditions on either side"]
    bids, opened = auctions.tables()
    path = auctions.scenario(tmp_path / "s", query, bids, opened, 6)
    save, written = Kept.save, Kept.last

    def fail(self: Kept, batch: int, state: Any, closed: int | None) -> None:
        if written(self) == 1:
            raise RuntimeError("power is gone")
        save(self, batch, state, closed)

    with monkeypatch.context() as patched:
        patched.setattr(Kept, "save", fail)
        with pytest.raises(NovaError, match="power is gone"):
            _run(spark, path, tmp_path / "run", lateness_ms=500)
    loaded = load(path)
    cut = replace(loaded.problem.nodes, capacity=np.array([4000.0, 150.0, 150.0, 10.0]))
    other = optimizer.optimize(replace(loaded.problem, nodes=cut), replace(loaded.options, partition="window"))
    put(replace(other, digest=loaded.digest), loaded.problem, RunFolder(tmp_path / "run"))
    _run(spark, path, tmp_path / "run", lateness_ms=500)
    batches = [file.name for file in (tmp_path / "run" / "results").glob("q-*.parquet")]
    assert len(batches) > 3, "rows come while the run goes on, not only at its end"
    assert _found(tmp_path / "run", "q") == _oracles(spark, tmp_path, bids, opened, plain)[0]


def test_a_crash_behind_the_last_rows_changes_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run dies when the groups of the last windows are out, before it notes that its lone tuples are, too."""
    query, plain = CASES["full, aggregates by the join's window"]
    bids, opened = auctions.tables()
    path = auctions.scenario(tmp_path / "s", query, bids, opened, 3)

    def fail(_: Unmatched) -> None:
        raise RuntimeError("power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Unmatched, "forget", fail)
        with pytest.raises(RuntimeError, match="power is gone"):
            _run(spark, path, tmp_path / "run")
    _run(spark, path, tmp_path / "run")
    assert _found(tmp_path / "run", "q") == _oracles(spark, tmp_path, bids, opened, plain)[0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["left", "right", "both"]), keyed=st.booleans())
def test_once_under_any_plan_and_in_any_order(seed: int, kind: str, keyed: bool) -> None:
    """Tuples in any order and in any batches, under a random tiling of every sub-join, some sources joining nothing."""
    rng = np.random.default_rng(seed)
    keeps = {"left": ("left",), "right": ("right",), "both": ("left", "right")}[kind]
    flow = Flow("q", 1_000_000, ("k",), *(pa.schema([("value", pa.int64()), ("k", pa.int64())]) for _ in range(2)))
    flow = flow.keeping(keeps)
    pairs = np.argwhere(rng.random((3, 3)) < 0.6)
    joins = sub_joins(pairs[:, 0], pairs[:, 1] + 3, 6)
    routes = compile_routes(joins, random_replicas(joins, 4, seed, keyed=keyed), 0, 6, 0)
    timeline = Timeline((Epoch(-(2**62), routes),))
    names = Names(pa.array([f"s{k}" for k in range(6)]), pa.array([f"n{k}" for k in range(4)]))
    hashes = hash_strings(names.sources.to_pylist())
    allowed = {(int(a), int(b) + 3) for a, b in pairs}
    tuples: dict[str, list[tuple[int, int, int, int | None]]] = {}
    for number, side in enumerate(("left", "right")):
        tuples[side] = [
            (
                int(rng.integers(3)) + 3 * number,
                int(rng.integers(4_000_000)),
                int(rng.integers(3)),
                None if rng.random() < 0.1 else int(rng.integers(3)),
            )
            for _ in range(int(rng.integers(12)))
        ]

    def joined(a: tuple[int, int, int, int | None], b: tuple[int, int, int, int | None]) -> bool:
        return (a[0], b[0]) in allowed and a[1] // 10**6 == b[1] // 10**6 and a[3] is not None and a[3] == b[3]

    expected: Counter[tuple[Any, ...]] = Counter()
    for number, side in enumerate(("left", "right")):
        others = tuples["right" if side == "left" else "left"]
        for one in tuples[side] if side in keeps else []:
            if not any(joined(one, other) if number == 0 else joined(other, one) for other in others):
                expected[(side, *one)] += 1
    with tempfile.TemporaryDirectory() as folder:
        unmatched = Unmatched(flow, Pipeline(keeps=keeps), Path(folder))
        packets: dict[str, list[tuple[int, int, bytes]]] = {"left": [], "right": []}
        for batch in range(2):
            rows = flow.result().empty_table()
            put_by = []
            for side in ("left", "right"):
                mine = tuples[side][batch::2]
                table = pa.RecordBatch.from_pydict(
                    {
                        "source": pa.array([f"s{one[0]}" for one in mine], pa.string()),
                        "time": pa.array([one[1] for one in mine], pa.timestamp("us", tz="UTC")),
                        "value": pa.array([one[2] for one in mine], pa.int64()),
                        "k": pa.array([one[3] for one in mine], pa.int64()),
                    }
                )
                lone = unmatched.lone(side)  # type: ignore[arg-type]
                if lone is not None:
                    table = lone.put_by(table)
                    put_by += lone.rows
                whole = table.filter(table.column("k").is_valid())
                source = np.array([one[0] for one in mine if one[3] is not None], np.int32)
                routed = route(timeline, flow, side, source, hashes, whole)  # type: ignore[arg-type]
                made = pack(routed, flow, side, source, whole, per_node=False)  # type: ignore[arg-type]
                fresh = list(zip(made.cell.tolist(), made.bucket.tolist(), made.body, strict=True))
                other = "right" if side == "left" else "left"
                met = [(a[2], b[2]) for a in fresh for b in packets[other] if a[:2] == b[:2]]
                packets[side] += fresh
                if met:
                    bodies = [pa.array(part, pa.binary()) for part in zip(*met, strict=True)]
                    ordered = bodies if side == "left" else bodies[::-1]
                    rows = pa.concat_tables([rows, *map(_table, results(flow, timeline, names, *ordered))])
            new = pa.Table.from_batches(put_by, flow.result())
            found_in = {side: rows[f"{side}__id"].combine_chunks() for side in keeps}
            assert not len(unmatched.decide(batch, new, found_in, None))  # type: ignore[arg-type]
        rest = unmatched.rest()
    assert rest is not None
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rest.to_pylist():
        side = "left" if row["left_source"] is not None else "right"
        moment = round(row[f"{side}_time"].timestamp() * 1e6)
        found[(side, int(row[f"{side}_source"][1:]), moment, row[f"{side}_value"], row[f"{side}_k"])] += 1
    assert found == expected


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
