"""Properties: however a scenario is written down, it is the same Problem."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.model.problem import Equal, Latency, Pairs, Problem
from nova.scenario import Scenario, load

names = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text and not text.startswith("\ufeff")
)
odd = st.sampled_from(
    ["no", "~", "null", "007", "1e3", "1.5e3", "1.5", "0x1f", "12", "NaN", "inf", "2024-01-01", "<<", "1:30"]
)
names = names | odd
rates = st.floats(0, 1e9, allow_nan=False)
Rows = list[dict[str, Any]]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with all tables inline, as lists of mappings; cells are text or finite numbers."""
    ids = draw(st.lists(names, min_size=3, max_size=8, unique=True))
    dimensions = draw(st.integers(1, 4))
    axes = draw(st.sampled_from([list("xyz")[:dimensions], [f"x{k}" for k in range(dimensions)]]))
    place = st.floats(-1e4, 1e4, allow_nan=False)
    nodes: Rows = [
        {"id": name, "capacity": draw(rates | st.just("inf")), "hosts": draw(st.booleans()), "bandwidth": draw(rates)}
        | {axis: draw(place) for axis in axes}
        for name in ids
    ]
    pairs = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    measured = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    latency: Rows = [{"from": a, "to": b, "rtt_ms": draw(st.floats(0.001, 60_000))} for a, b in measured]
    streams: dict[str, Rows] = {}
    for stream in draw(st.lists(names, min_size=2, max_size=3, unique=True)):
        sources = draw(st.lists(names, min_size=1, max_size=5, unique=True))
        streams[stream] = [
            {"id": name, "node": draw(st.sampled_from(ids)), "rate": draw(rates), "key": draw(st.sampled_from("ab"))}
            for name in sources
        ]
        streams[stream][0]["key"] = "a"  # so that at least one pair joins
    left, right = list(streams)[:2]
    cells = [(a["id"], b["id"]) for a in streams[left] for b in streams[right]]
    chosen = draw(st.lists(st.sampled_from(cells), min_size=1, unique=True))
    queries: list[dict[str, Any]] = [
        {"id": "equal", "left": left, "right": right, "on": "key", "sink": ids[0]},
        {"id": "dense", "left": right, "right": left, "sink": ids[1], "window": {"tumbling": "250ms"}},
        {
            "id": "pairs",
            "left": left,
            "right": right,
            "sink": ids[2],
            "pairs": [{"left": a, "right": b, "output_rate": draw(rates)} for a, b in chosen],
        },
    ]
    return {
        "nova": 1,
        "nodes": nodes,
        "latency": latency,
        "streams": {name: {"sources": rows} for name, rows in streams.items()},
        "queries": queries,
        "options": {"seed": draw(st.integers(0, 2**31))},
    }


def with_tables(document: dict[str, Any], save: Any) -> dict[str, Any]:
    """The document with every table replaced by what `save(name, rows)` gives for it."""
    return document | {
        "nodes": save("nodes", document["nodes"]),
        "latency": save("latency", document["latency"]),
        "streams": {
            name: {"sources": save(f"stream{k}", stream["sources"])}
            for k, (name, stream) in enumerate(document["streams"].items())
        },
        "queries": [
            query | ({"pairs": save(f"pairs{k}", query["pairs"])} if "pairs" in query else {})
            for k, query in enumerate(document["queries"])
        ],
    }


def as_csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_matrix(document: dict[str, Any]) -> list[list[Any]]:
    """The latency list as a square matrix with both directions and gaps."""
    ids = [node["id"] for node in document["nodes"]]
    cells: dict[tuple[str, str], float | None] = {}
    for row in document["latency"]:
        cells[row["from"], row["to"]] = cells[row["to"], row["from"]] = row["rtt_ms"]
    return [["id", *ids]] + [[a, *(0 if a == b else cells.get((a, b)) for b in ids)] for a in ids]


def saved(document: dict[str, Any], folder: Path, way: str) -> Scenario:
    """The document written in one of the ways, and loaded again."""

    def save(name: str, rows: Rows) -> Any:
        if way == "csv":
            (folder / f"{name}.csv").write_text(as_csv(rows), encoding="utf-8")
            return f"{name}.csv"
        if way == "gzip":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(as_csv(rows).encode()))
            return f"{name}.csv.gz"
        if way == "parquet":
            columns = {
                key: [math.inf if row[key] == "inf" else row[key] for row in rows]
                if key == "capacity"
                else [row[key] for row in rows]
                for key in rows[0]
            }
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
            return f"{name}.parquet"
        if way == "lists":
            return [list(rows[0]), *(list(row.values()) for row in rows)]
        return rows

    content = with_tables(document, save)
    if way == "matrix":
        content |= {"latency": as_matrix(document), "latency_unit": "ms"}  # a matrix below 1 must say so
    if way == "json":
        path = folder / "scenario.json"
        path.write_text(json.dumps(content))
    else:
        path = folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return load(path)


def same(a: Problem, b: Problem) -> None:
    """Fail unless two problems say the same, bit by bit."""
    assert a.nodes.ids.equals(b.nodes.ids)
    for name in ("capacity", "bandwidth", "hosts", "coordinates"):
        np.testing.assert_array_equal(getattr(a.nodes, name), getattr(b.nodes, name))
    assert isinstance(a.latency, Latency)
    assert isinstance(b.latency, Latency)
    for name in ("first", "second", "rtt_ms"):
        np.testing.assert_array_equal(getattr(a.latency, name), getattr(b.latency, name))
    assert a.streams == b.streams
    assert a.sources.ids.equals(b.sources.ids)
    for name in ("stream", "node", "rate"):
        np.testing.assert_array_equal(getattr(a.sources, name), getattr(b.sources, name))
    for p, q in zip(a.queries, b.queries, strict=True):
        assert (p.id, p.left, p.right, p.sink, p.window_ms) == (q.id, q.left, q.right, q.sink, q.window_ms)
        assert type(p.matrix) is type(q.matrix)
        for name in ("left", "right", "output_rate"):
            if isinstance(p.matrix, Equal | Pairs) and hasattr(p.matrix, name):
                np.testing.assert_array_equal(getattr(p.matrix, name), getattr(q.matrix, name))
    assert a.digest == b.digest


@settings(max_examples=25)
@given(documents())
def test_every_way_of_writing_is_the_same_problem(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        loaded = {}
        for way in ("yaml", "json", "lists", "csv", "gzip", "parquet", "matrix"):
            folder = Path(scratch) / way
            folder.mkdir()
            loaded[way] = saved(document, folder, way)
    first = loaded["yaml"]
    for other in loaded.values():
        same(first.problem, other.problem)
        assert first.options == other.options


@settings(max_examples=25)
@given(documents())
def test_the_problem_says_what_was_written(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        problem = saved(document, Path(scratch), "csv").problem
    ids = [node["id"] for node in document["nodes"]]
    assert problem.nodes.ids.to_pylist() == ids
    assert problem.nodes.capacity.tolist() == [float(node["capacity"]) for node in document["nodes"]]
    assert problem.nodes.hosts.tolist() == [node["hosts"] for node in document["nodes"]]
    written = [row for stream in document["streams"].values() for row in stream["sources"]]
    assert problem.sources.ids.to_pylist() == [row["id"] for row in written]
    assert [ids[node] for node in problem.sources.node] == [row["node"] for row in written]
    assert problem.sources.rate.tolist() == [row["rate"] for row in written]
    assert isinstance(problem.latency, Latency)
    measured = {
        (ids[a], ids[b]): rtt
        for a, b, rtt in zip(
            problem.latency.first, problem.latency.second, problem.latency.rtt_ms.tolist(), strict=True
        )
    }
    assert measured == {(row["from"], row["to"]): row["rtt_ms"] for row in document["latency"]}
    matrix = problem.queries[2].matrix
    assert isinstance(matrix, Pairs)
    sources = problem.sources.ids.to_pylist()
    found = {(sources[a], sources[b]): r for a, b, r in zip(matrix.left, matrix.right, matrix.output_rate, strict=True)}
    assert found == {(row["left"], row["right"]): row["output_rate"] for row in document["queries"][2]["pairs"]}
