"""A small market for tests of joins of several streams: four streams as files, a scenario around them, and oracles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from builders import write_scenario

START_MS = 1_700_000_000_000
SECONDS = 10
COLUMNS = {
    "bids": ["auction", "bidder"],
    "auctions": ["id", "seller", "category"],
    "people": ["id", "city"],
    "visits": ["visitor", "page"],
}
ROWS = {"bids": 240, "auctions": 90, "people": 60, "visits": 80}


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
