"""A query that groups what it joins at many sites, for tests of merges on the way to the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import write_scenario
from nova import optimizer
from nova.model.plan import Plan
from nova.scenario import Scenario, load

FIVE = [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)]
"""Places on a line to the sink, in ms."""
SQL = """SELECT window_start, l.k, count(*) AS n, avg(r.value) AS mean FROM l JOIN r ON l.site = r.site
         AND TUMBLE(l.time, INTERVAL '1' SECOND) = TUMBLE(r.time, INTERVAL '1' SECOND) GROUP BY window_start, l.k"""


def sites(
    places: list[tuple[float, float]], capacity: float = 200.0, sink: float = 30.0, groups: int = 20, **more: Any
) -> dict[str, Any]:
    """Two streams of 50 tuples/s at each place, joined there, and a sink 100 ms away. A host sends a partial for each
    of the groups of a second."""
    nodes = [{"id": f"e{i}", "capacity": capacity, "x": x, "y": y} for i, (x, y) in enumerate(places)]
    columns = {"k": {"type": "bigint", "distinct": groups}}

    def stream(name: str) -> dict[str, Any]:
        born = [{"id": f"{name}{i}", "node": f"e{i}", "rate": 50, "site": f"s{i}"} for i in range(len(places))]
        return {"sources": born, "columns": columns}

    return {
        "nova": 1,
        "nodes": [*nodes, {"id": "hq", "capacity": sink, "x": 100, "y": 0, "hosts": False}],
        "streams": {"l": stream("l"), "r": stream("r")},
        "queries": [{"id": "q", "sink": "hq", "selectivity": {"join": 0.5}, "sql": SQL}],
        **more,
    }


def planned(folder: Path, document: dict[str, Any]) -> tuple[Scenario, Plan]:
    loaded = load(write_scenario(folder, document))
    return loaded, optimizer.optimize(loaded.problem, loaded.options)
