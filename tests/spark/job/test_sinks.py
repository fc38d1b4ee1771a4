from __future__ import annotations

import datetime as dt
import json
import re
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

import auctions
import market
from builders import write_scenario
from nova import optimizer
from nova.scenario import load
from nova.spark.job.run import Run, Settings
from nova.spark.job.sinks import identified, json_lines

SAME = "TUMBLE({0}.at, INTERVAL '4' SECOND) = TUMBLE({1}.at, INTERVAL '4' SECOND)"


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.text()),
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.booleans()),
            st.one_of(st.none(), st.datetimes(timezones=st.just(dt.UTC))),
        )
    )
)
def test_rows_as_json_say_what_the_columns_say(rows: list[tuple[object, ...]]) -> None:
    kinds = [pa.string(), pa.float64(), pa.int64(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    names = ['50 % "x"', "real", "whole", "flag", "time"]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    found = [json.loads(line) for line in json_lines(pa.record_batch(columns, names=names))]
    assert [tuple(row)[:4] for row in (list(one.values()) for one in found)] == [row[:4] for row in rows]
    assert all(list(one) == names for one in found)
    for one, row in zip(found, rows, strict=True):
        assert (None if one["time"] is None else dt.datetime.fromisoformat(one["time"])) == row[4]


def test_what_json_cannot_say_is_null_or_text() -> None:
    columns = [pa.array([float("nan"), float("inf")]), pa.array([dt.date(2026, 1, 2), None]), pa.array([[1], None])]
    lines = json_lines(pa.record_batch(columns, names=["real", "day", "many"]))
    assert lines == ['{"real":null,"day":"2026-01-02","many":[1]}', '{"real":null,"day":null,"many":null}']
    assert json_lines(pa.record_batch([pa.array([], pa.int64())], names=["n"])) == []


def test_results_tell_their_id_beside_an_id_that_the_query_selects() -> None:
    """Equal results of a batch have ids of their own, the same in every repetition."""
    plain, own = pa.record_batch({"n": [1, 1]}), pa.record_batch({"id": [7]})
    (lines,) = identified([plain], "q")
    assert [json.loads(line) for _, line in lines] == [{"id": name, "n": 1} for name, _ in lines]
    assert len({name for name, _ in lines}) == 2
    assert list(identified([plain], "q")) == [lines]
    (((name, line),),) = identified([own], "q")
    assert json.loads(line) == {"result_id": name, "id": 7}


def test_behind_a_quiet_join_groups_are_written_in_time(spark: Any, tmp_path: Path) -> None:
    """After some time no bid finds its auction: the groups of before come out while the run goes on, and at the
    end each is there once."""
    tables = market.tables()
    for table in tables.values():
        table["at"] = table["at"].min() + (table["at"] - table["at"].min()) * 12  # two minutes
        for key in {"auction", "id", "seller"} & set(table.columns):
            table[key] %= 2
    late = tables["bids"]["at"] > tables["bids"]["at"].min() + pd.Timedelta("20s")
    tables["bids"].loc[late, "auction"] = 99
    sql = f"""SELECT window_start, p.city, count(*) AS n FROM bids b
        JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
        JOIN people p ON a.seller = p.id AND {SAME.format("a", "p")} GROUP BY window_start, p.city"""
    document = market.document({"q": sql}, order=[["b", "a"], "p"])
    market.scenario(tmp_path / "s", tables, {"q": sql}, 6)
    loaded = load(write_scenario(tmp_path / "s", document))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    results = tmp_path / "run" / "results"
    end = time.monotonic() + 400

    def seen(run: Run) -> None:
        if list(results.glob("*.parquet")) or time.monotonic() > end:
            run.stop()

    run = Run(spark, loaded, plan, Settings(tmp_path / "run", lateness_ms=0))
    run.start()
    run.wait(seen)
    assert pq.read_table(results).num_rows
    last = Run(spark, loaded, plan, Settings(tmp_path / "run", lateness_ms=0, until_end=True))
    last.start()
    last.wait()
    assert last.report()["unknown_tuples"] == 0
    for name, table in tables.items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    batch = re.sub(r"TUMBLE\((\w)\.at, [^)]*\)", r"(unix_micros(\1.at) div 4000000)", sql)
    batch = batch.replace("BY window_start", "BY unix_micros(b.at) div 4000000")
    batch = batch.replace("SELECT window_start", "SELECT timestamp_micros(unix_micros(b.at) div 4000000 * 4000000)")
    found = pq.read_table(results).to_pylist()
    assert auctions.rows(row.values() for row in found) == auctions.rows(spark.sql(batch).collect())
