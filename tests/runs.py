"""Small runs for tests: a scenario with inputs, its tuples, and the plain join of them by pandas."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import streams
from builders import SMALL, write_scenario
from nova import optimizer
from nova.model.plan import Plan
from nova.scenario import Scenario, load

START_MS = 1_700_000_000_000


def scenario(folder: Path, inputs: dict[str, Any], window: str = "1s", on: Any = "region") -> tuple[Scenario, Plan]:
    """`SMALL` with inputs, and its plan."""
    document = {
        **SMALL,
        "streams": {name: {**stream, "input": inputs[name]} for name, stream in SMALL["streams"].items()},
    }
    document["queries"] = [{**SMALL["queries"][0], "window": {"tumbling": window}, "on": on}]
    loaded = load(write_scenario(folder, document))
    return loaded, optimizer.optimize(loaded.problem, loaded.options)


def tables(n: int = 60, milliseconds: int = 3000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Random tuples of both streams, in no order."""
    rng = np.random.default_rng(5)
    made = []
    for prefix in "ph":
        at = pd.to_datetime(START_MS + rng.integers(0, milliseconds, n), unit="ms", utc=True)
        made.append(
            pd.DataFrame(
                {
                    "source_id": [f"{prefix}{i}" for i in rng.integers(1, 3, n)],
                    "event_time": at,
                    "value": rng.normal(size=n),
                    "unit": prefix,
                }
            )
        )
    return made[0], made[1]


def file_inputs(folder: Path, left: pd.DataFrame, right: pd.DataFrame, parts: int) -> dict[str, Any]:
    """Write tuples as `parts` files a side, read one a batch, below the scenario's folder."""
    for name, table in (("p", left), ("h", right)):
        (folder / name).mkdir(parents=True)
        for i, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
            file = folder / name / f"{i:04d}.parquet"
            table.iloc[rows].to_parquet(file, index=False)
            os.utime(file, (1e9 + i, 1e9 + i))
    options = {"maxFilesPerTrigger": 1}
    return {
        "pressure": {"format": "parquet", "path": "p", "options": options},
        "humidity": {"format": "parquet", "path": "h", "options": options},
    }


REGIONS = frozenset({("p1", "h1"), ("p2", "h2")})
"""The pairs that SMALL joins."""


def plain(
    left: pd.DataFrame, right: pd.DataFrame, pairs: Collection[tuple[str, str]] = REGIONS, window_us: int = 1_000_000
) -> Counter[Any]:
    """The join of some pairs of sources by pandas: (window, sources, times) of all pairs of tuples."""
    sides = [side.assign(us=side["event_time"].astype("datetime64[us, UTC]").astype("int64")) for side in (left, right)]
    for side in sides:
        side["w"] = side["us"] // window_us
    joined = sides[0].merge(sides[1], on="w")
    rows = zip(joined["w"], joined["source_id_x"], joined["source_id_y"], joined["us_x"], joined["us_y"], strict=True)
    return Counter(row for row in rows if row[1:3] in pairs)


def found(folder: Path, window_us: int = 1_000_000) -> Counter[Any]:
    """The results of a run in the shape of `plain`."""
    table = streams.read_results(folder)
    if not len(table):
        return Counter()

    def us(name: str) -> np.ndarray:
        return table[name].cast(pa.int64()).to_numpy()

    return Counter(
        zip(
            us("window_start") // window_us,
            table["left_source"].to_pylist(),
            table["right_source"].to_pylist(),
            us("left_time"),
            us("right_time"),
            strict=True,
        )
    )
