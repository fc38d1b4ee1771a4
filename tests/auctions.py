"""A small auction for tests of queries: bids and auctions as files, a scenario around them, and oracles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from builders import write_scenario

START_MS = 1_700_000_000_000
NODES = [
    {"id": "edge1", "capacity": 4000, "x": 0, "y": 10, "region": "eu", "gpu": 0},
    {"id": "edge2", "capacity": 4000, "x": 10, "y": 0, "region": "us", "gpu": 1},
    {"id": "fog", "capacity": 4000, "x": 8, "y": 8, "region": "eu", "gpu": 2},
    {"id": "hq", "capacity": 10, "x": 12, "y": 12, "hosts": False, "region": "eu", "gpu": 0},
]


def tables(n: int = 300, seconds: int = 12, seed: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Bids and auctions in no particular order, with missing values."""
    rng = np.random.default_rng(seed)

    def moments(count: int) -> pd.Series:
        return pd.to_datetime(START_MS + rng.integers(0, seconds * 1000, count), unit="ms", utc=True)

    bids = pd.DataFrame(
        {
            "source_id": [f"b{i}" for i in rng.integers(1, 3, n)],
            "at": moments(n),
            "value": rng.integers(1, 200, n),
            "auction": pd.array([None if rng.random() < 0.05 else int(rng.integers(0, 12)) for _ in range(n)], "Int64"),
            "bidder": rng.choice(["ann", "bob", "cleo"], n),
        }
    )
    m = n // 3
    auctions = pd.DataFrame(
        {
            "source_id": [f"a{i}" for i in rng.integers(1, 3, m)],
            "at": moments(m),
            "value": rng.integers(1, 100, m),
            "id": rng.integers(0, 12, m),
            "category": pd.array([None if rng.random() < 0.1 else int(rng.integers(0, 4)) for _ in range(m)], "Int64"),
        }
    )
    return bids, auctions


def scenario(
    folder: Path,
    sql: str | dict[str, str],
    bids: pd.DataFrame,
    auctions: pd.DataFrame,
    parts: int = 2,
    *,
    in_order: bool = True,
    **query: Any,
) -> Path:
    """A scenario file that joins these tuples, a few files a stream, read one a batch."""
    for name, table in (("bids", bids), ("auctions", auctions)):
        (folder / name).mkdir(parents=True)
        ordered = table.sort_values("at", kind="stable") if in_order else table
        for i, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
            ordered.iloc[rows].to_parquet(folder / name / f"{i:04d}.parquet", index=False)
    return write_scenario(folder, document(sql, **query))


def document(sql: str | dict[str, str], **query: Any) -> dict[str, Any]:
    """The scenario of one query, called `q`, or of several by their ids."""
    queries = {"q": sql} if isinstance(sql, str) else sql

    def stream(name: str, prefix: str, rate: float) -> dict[str, Any]:
        return {
            "sources": [
                {"id": f"{prefix}1", "node": "edge1", "rate": rate},
                {"id": f"{prefix}2", "node": "edge2", "rate": rate},
            ],
            "input": {
                "format": "parquet",
                "path": name,
                "options": {"maxFilesPerTrigger": 1},
                "columns": {"time": "at"},
            },
        }

    return {
        "nova": 1,
        "nodes": NODES,
        "streams": {"bids": stream("bids", "b", 300), "auctions": stream("auctions", "a", 100)},
        "queries": [{"id": name, "sql": text, "sink": "hq", **query} for name, text in queries.items()],
        "options": {"partition": "grid"},
    }


def rows(records: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset; times as µs, numbers rounded to nine digits."""
    return Counter(tuple(_plain(value) for value in record) for record in records)


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, pd.Timestamp) or hasattr(value, "timestamp"):
        return (
            round(pd.Timestamp(value).tz_localize(None).value / 1000)
            if pd.Timestamp(value).tz is None
            else round(pd.Timestamp(value).tz_convert("UTC").value / 1000)
        )
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.9g}")
    return value.item() if isinstance(value, np.generic) else value
