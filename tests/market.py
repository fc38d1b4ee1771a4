"""A small market for tests of joins of several streams: four streams as files, a scenario around them, and oracles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from builders import write_scenario
from nova import optimizer
from nova.model.merges import NO_MERGES
from nova.model.plan import Plan
from nova.model.replicas import Replicas
from nova.scenario import Scenario

START_MS = 1_700_000_000_000
SECONDS = 10
COLUMNS = {
    "bids": ["auction", "bidder"],
    "auctions": ["id", "seller", "category"],
    "people": ["id", "city"],
    "visits": ["visitor", "page"],
}
ROWS = {"bids": 240, "auctions": 90, "people": 60, "visits": 80}

SAME = "TUMBLE({}.at, INTERVAL '2' SECOND) = TUMBLE({}.at, INTERVAL '2' SECOND)"
CHAINS = {
    "groups": (
        f"""SELECT window_start, p.city, count(*) AS n, sum(b.value) AS total FROM bids b JOIN auctions a
            ON b.auction = a.id AND {SAME.format("b", "a")} AND b.value > a.value JOIN people p ON a.seller = p.id
            AND {SAME.format("a", "p")} GROUP BY TUMBLE(b.at, INTERVAL '2' SECOND), p.city""",
        """SELECT timestamp_micros(win(b.at) * 2000000), p.city, count(*), sum(b.value) FROM bids b JOIN auctions a
           ON b.auction = a.id AND win(b.at) = win(a.at) AND b.value > a.value JOIN people p ON a.seller = p.id
           AND win(a.at) = win(p.at) GROUP BY win(b.at), p.city""",
    ),
    "kept": (
        f"""SELECT b.value, a.value AS av, v.page FROM bids b JOIN auctions a ON b.auction = a.id
            AND {SAME.format("b", "a")} LEFT JOIN visits v ON v.visitor = a.seller AND {SAME.format("v", "a")}
            AND v.value > b.value WHERE b.value > 100""",
        """SELECT b.value, a.value, v.page FROM bids b JOIN auctions a ON b.auction = a.id AND win(b.at) = win(a.at)
           LEFT JOIN visits v ON v.visitor = a.seller AND win(v.at) = win(a.at) AND v.value > b.value
           WHERE b.value > 100""",
    ),
}
"""Joins of three streams, and the same in Spark's SQL for batches; `win(t)` is the number of the window."""


def tables(seed: int = 5) -> dict[str, pd.DataFrame]:
    """The tuples of each stream in no particular order, with missing keys."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, columns in COLUMNS.items():
        n = ROWS[name]
        made: dict[str, Any] = {
            "source_id": [f"{name[0]}{k}" for k in rng.integers(1, 3, n)],
            "at": pd.to_datetime(START_MS + rng.integers(0, SECONDS * 1000, n), unit="ms", utc=True),
            "value": rng.integers(1, 200, n),
        }
        for column in columns:
            if column == "city":
                made[column] = rng.choice(["oslo", "rome", "bonn"], n)
            else:
                made[column] = pd.array(
                    [None if rng.random() < 0.05 else int(rng.integers(0, 8)) for _ in range(n)], "Int64"
                )
        found[name] = pd.DataFrame(made)
    return found


def document(queries: dict[str, str], **more: Any) -> dict[str, Any]:
    """The scenario: two sources a stream, hosts between them and the sink."""
    homes = {name: (f"edge{1 + k % 3}", f"edge{1 + (k + 1) % 3}") for k, name in enumerate(COLUMNS)}
    streams = {
        name: {
            "sources": [
                {"id": f"{name[0]}{k}", "node": home, "rate": ROWS[name] / SECONDS / 2, "zone": f"z{k}"}
                for k, home in enumerate(homes[name], 1)
            ],
            "columns": {column: {"distinct": 8} for column in COLUMNS[name]},
            "input": {
                "format": "parquet",
                "path": name,
                "options": {"maxFilesPerTrigger": 1},
                "columns": {"time": "at"},
            },
        }
        for name in COLUMNS
    }
    return {
        "nova": 1,
        "nodes": [
            {"id": "edge1", "capacity": 400, "x": 0, "y": 10},
            {"id": "edge2", "capacity": 400, "x": 10, "y": 0},
            {"id": "edge3", "capacity": 400, "x": 4, "y": 4},
            {"id": "fog", "capacity": 2000, "x": 8, "y": 8},
            {"id": "hq", "capacity": 10, "x": 12, "y": 12, "hosts": False},
        ],
        "streams": streams,
        "queries": [{"id": name, "sql": text, "sink": "hq", **more} for name, text in queries.items()],
    }


def scenario(
    folder: Path, data: dict[str, pd.DataFrame], queries: dict[str, str], parts: int = 3, *, in_order: bool = True
) -> Path:
    """A scenario file that joins these tuples, a few files a stream, read one a batch."""
    for name, table in data.items():
        (folder / name).mkdir(parents=True)
        ordered = table.sort_values("at", kind="stable") if in_order else table
        for i, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
            ordered.iloc[rows].to_parquet(folder / name / f"{i:04d}.parquet", index=False)
    return write_scenario(folder, document(queries))


def on_two_and_one(loaded: Scenario) -> Plan:
    """A plan whose first joins run on edge2 and fog in turn, and those that read them on edge3."""
    problem = loaded.problem
    plan = optimizer.optimize(problem, loaded.options)
    first = np.array([query.makes is not None for query in problem.queries])[plan.joins.query]
    nodes = np.where(first, np.array([1, 3])[np.arange(len(first)) % 2], 2).astype(np.int32)
    return replace(plan, replicas=Replicas.whole(np.arange(len(first)), nodes), merges=NO_MERGES)
