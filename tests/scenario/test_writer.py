"""Writer: what a problem says is what the written scenario says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders import SMALL, write_scenario
from nova.model.options import Options
from nova.model.problem import Dense, Equal, Pairs, Problem, Query
from nova.placement.resolve import resolve
from nova.scenario import load
from nova.scenario.writer import write
from nova.synthetic import draw


def said(problem: Problem) -> dict[str, Any]:
    """All that a problem says, by ids, whatever rows they have."""
    nodes, sources, joins = problem.nodes, problem.sources, resolve(problem)
    names = nodes.ids.to_pylist()
    of = [problem.streams[stream] for stream in sources.stream]
    ids = sources.ids.to_pylist()
    columns = [nodes.capacity, nodes.bandwidth, nodes.hosts]
    columns += [] if nodes.coordinates is None else [*nodes.coordinates.T]
    latency = problem.latency
    return {
        "nodes": {name: [column[i].item() for column in columns] for i, name in enumerate(names)},
        "latency": None
        if latency is None
        else {
            frozenset((names[a], names[b])): rtt
            for a, b, rtt in zip(latency.first, latency.second, latency.rtt_ms, strict=True)
        },
        "sources": {(of[i], ids[i]): (names[sources.node[i]], sources.rate[i].item()) for i in range(len(sources))},
        "queries": {
            query.id: (problem.streams[query.left], problem.streams[query.right], names[query.sink], query.window_ms)
            for query in problem.queries
        },
        "joins": {
            (problem.queries[q].id, ids[a], ids[b]): str(out)
            for q, a, b, out in zip(joins.query, joins.left, joins.right, joins.output_rate, strict=True)
        },
    }


def with_rules() -> Problem:
    """A drawn problem with a dense query, and two on attributes of which some sources have none."""
    problem = draw(30, level=2, seed=1)
    first = problem.queries[0]
    n = len(problem.sources) // 2
    codes = (np.arange(n) % 4 - 1).astype(np.int32)
    values = pa.array(["north", "south", "10"])
    sites = pa.array(["a", "a", "b"])
    return replace(
        problem,
        queries=(
            first,
            Query("region", 0, 1, first.sink, Equal("region", codes, codes[::-1].copy(), (values,))),
            Query("both", 0, 1, first.sink, Equal("region, site", codes, codes[::-1].copy(), (values, sites)), 250.5),
            Query("all", 1, 0, int(problem.sources.node[0]), Dense(), 5000.0),
            Query("other", 0, 1, first.sink, Equal("region", codes[::-1].copy(), codes, (values,))),
            Query("unknown", 0, 1, first.sink, Equal("shelf", codes, codes)),
        ),
    )


def test_a_written_problem_loads_as_it_was(tmp_path: Path) -> None:
    problem = with_rules()
    options = Options(seed=5, partition="grid", c_min=2.5)
    file = write(tmp_path, problem, options)
    assert file is not None
    loaded = load(file)
    assert said(loaded.problem) == said(problem)
    assert loaded.options == options
    kinds = {query.id: type(query.matrix) for query in loaded.problem.queries}
    # the values that `other` tells contradict those of `region`, and of `shelf` nobody knows them
    assert kinds == {"join": Pairs, "region": Equal, "both": Equal, "all": Dense, "other": Pairs, "unknown": Pairs}


def test_a_scenario_from_files_comes_back_with_its_rules(tmp_path: Path) -> None:
    ids = [node["id"] for node in SMALL["nodes"]]
    latency = [{"from": a, "to": b, "rtt_ms": 7.25} for i, a in enumerate(ids) for b in ids[:i]]
    streams = {
        name: stream | {"input": {"format": "csv", "path": "/data/x.csv"}} for name, stream in SMALL["streams"].items()
    }
    loaded = load(write_scenario(tmp_path / "a", SMALL | {"latency": latency, "streams": streams}))
    inputs = {name: stream.input.model_dump() for name, stream in loaded.streams.items() if stream.input is not None}
    file = write(tmp_path / "b", loaded.problem, loaded.options, inputs)
    assert file is not None
    again = load(file)
    assert again.digest == loaded.digest
    assert again.problem.queries[0].matrix.values == loaded.problem.queries[0].matrix.values  # type: ignore[union-attr]
    assert again.streams["pressure"].input == loaded.streams["pressure"].input


def test_queries_of_which_nothing_is_left_are_left_out(tmp_path: Path) -> None:
    problem = draw(20, level=2, seed=1)
    none = Pairs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
    first = problem.queries[0]
    some = replace(problem, queries=(replace(first, id="empty", matrix=none), first))
    file = write(tmp_path / "some", some, Options())
    assert file is not None
    assert [query.id for query in load(file).problem.queries] == ["join"]
    assert write(tmp_path / "none", replace(problem, queries=(replace(first, matrix=none),)), Options()) is None


@pytest.mark.parametrize("attribute", ["id", "node", "rate"])
def test_an_attribute_cannot_be_called_as_a_column_that_means_something(tmp_path: Path, attribute: str) -> None:
    problem = draw(20, level=2, seed=1)
    codes = np.zeros(len(problem.sources) // 2, np.int32)
    query = Query("q", 0, 1, 0, Equal(attribute, codes, codes, (pa.array(["v"]),)))
    file = write(tmp_path, replace(problem, queries=(query,)), Options())
    assert file is not None
    assert said(load(file).problem) == said(replace(problem, queries=(query,)))
