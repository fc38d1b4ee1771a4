"""A join of two streams whose tuples mostly have one key, on many small hosts: no host takes that key alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from builders import write_scenario
from nova.model.operators import Pipeline
from nova.model.plan import Plan
from nova.model.problem import Dense, Key, Nodes, Problem, Query, Sources, numbered_ids
from nova.optimizer import optimize
from nova.scenario import Scenario, load
from runs import START_MS, file_inputs

HOSTS = 30


def problem(heavy: dict[str, float], hosts: int = HOSTS, capacity: float = 60.0, keys: float = 1e4) -> Problem:
    """Two sources of 100 tuples/s, and hosts of `capacity` each, anywhere on a square of 20 ms; `heavy` are the shares
    of keys."""
    n = hosts + 3
    at = np.random.default_rng(0).random((n, 2)) * 20
    born = np.arange(n) < 3
    nodes = Nodes(numbered_ids(n, "n"), np.where(born, 1e6, capacity), np.full(n, np.inf), ~born, at, np.zeros(n))
    sides = np.arange(2, dtype=np.int32)
    sources = Sources(numbered_ids(2, "s"), sides, sides, np.array([100.0, 100.0]))
    key = Key(("k",), keys, tuple(heavy.values()), tuple(heavy))
    return Problem(nodes, ("l", "r"), sources, (Query("q", 0, 1, 2, Dense(), key=key, pipeline=Pipeline(on=("k",))),))


def recorded(folder: Path, numbers: bool) -> tuple[Scenario, Plan, Counter[Any]]:
    """The same as a scenario with recorded tuples, of which most have one key, a text or a number; its plan, and the
    plain join by pandas: (sources, times, key) of all pairs of tuples."""
    rng = np.random.default_rng(3)
    sides = []
    for stream in "lr":
        key = np.where(rng.random(240) < 0.6, 7, rng.integers(100, 200, 240))
        at = pd.to_datetime(START_MS + rng.permutation(4000)[:240], unit="ms", utc=True)
        sides.append(
            pd.DataFrame(
                {
                    "source_id": f"{stream}1",
                    "event_time": at,
                    "value": rng.normal(size=240),
                    "k": key if numbers else [f"s{one}" for one in key],
                }
            )
        )
    inputs = file_inputs(folder, *sides, 2)
    given = dict(zip("lr", inputs.values(), strict=True))
    places = np.round(rng.random((43, 2)) * 20, 3).tolist()
    nodes = [{"id": f"n{i}", "x": x, "y": y, "capacity": 24, "hosts": i > 2} for i, (x, y) in enumerate(places)]
    query = {"id": "q", "left": "l", "right": "r", "sink": "n2", "window": "1s"}
    heavy = {"7" if numbers else "s7": 0.6}
    document = {
        "nova": 1,
        "nodes": nodes,
        "streams": {
            stream: {"sources": [{"id": f"{stream}1", "node": f"n{i}", "rate": 60}], "input": given[stream]}
            for i, stream in enumerate("lr")
        },
        "queries": [{**query, "key": {"column": "k", "cardinality": 1000, "heavy": heavy}}],
    }
    loaded = load(write_scenario(folder, document))
    joined = (side.assign(w=side["event_time"].dt.floor("1s")) for side in sides)
    pairs = pd.merge(*joined, on=["w", "k"])
    wanted = Counter(zip(pairs["event_time_x"], pairs["event_time_y"], pairs["k"], strict=True))
    return loaded, optimize(loaded.problem, loaded.options), wanted


def is_right(results: pa.Table, loaded: Scenario, plan: Plan, wanted: Counter[Any], heavy: Any) -> None:
    """A run has the results of the plain join, those of the heavy key from the hosts of its grid alone."""
    table = results.to_pandas()
    assert Counter(zip(table["left_time"], table["right_time"], table["left_k"], strict=True)) == wanted
    r, ids = plan.replicas, loaded.problem.nodes.ids
    grid = (r.key_to <= 0.6) & (r.left_to - r.left_from < 1)
    assert grid.sum() > 4
    assert len(np.unique(r.key_from[~grid])) > 1
    for mine, hosts in ((table["left_k"] == heavy, grid), (table["left_k"] != heavy, ~grid)):
        assert set(table["node"][mine]) <= {ids[int(node)].as_py() for node in r.node[hosts]}
