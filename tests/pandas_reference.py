"""The aggregates once more, in plain pandas: what Spark's result has to equal."""

from __future__ import annotations

import numpy as np
import pandas as pd


def aggregates(rows: pd.DataFrame, bucket_s: float | None) -> pd.DataFrame:
    """`rows`: from, to, time (epoch seconds, or absent), sequence (optional), rtt (ms, NaN for lost). One row per
    pair and bucket, indexed by (a, b, bucket); bucket is epoch seconds, or -1 without times."""
    rows = rows.copy()
    for name in ("time", "sequence"):
        if name not in rows:
            rows[name] = 0
    swap = rows["from"] > rows["to"]
    rows["a"], rows["b"] = rows["from"].where(~swap, rows["to"]), rows["to"].where(~swap, rows["from"])
    rows["back"] = swap
    rows["bucket"] = -1 if bucket_s is None else (rows["time"] // bucket_s * bucket_s).astype("int64")
    rows = rows.sort_values(["a", "b", "bucket", "back", "time", "sequence", "rtt"], kind="stable")
    alone = rows.drop_duplicates(["a", "b", "back", "time", "sequence", "rtt"])
    keys = ["a", "b", "bucket"]
    grouped = alone.groupby(keys)["rtt"]
    out = pd.DataFrame(
        {
            "count": grouped.size(),
            "lost": grouped.size() - grouped.count(),
            "min_ms": grouped.min(),
            "median_ms": grouped.median(),
            "p90_ms": grouped.quantile(0.9),
        }
    )
    out["loss"] = out["lost"] / out["count"]
    arrived = alone.dropna(subset=["rtt"])
    steps = arrived.groupby([*keys, "back"])["rtt"].diff().abs()
    out["jitter_ms"] = steps.groupby([arrived[key] for key in keys]).mean()
    for side, back in (("ab", False), ("ba", True)):
        mine = alone[alone["back"] == back].groupby(keys)["rtt"]
        out[f"count_{side}"] = mine.size()
        out[f"lost_{side}"] = mine.size() - mine.count()
        out[f"median_{side}_ms"] = mine.median()
    counts = [name for name in out if name.startswith(("count", "lost"))]
    out[counts] = out[counts].fillna(0).astype("int64")
    out["asymmetry_ms"] = out["median_ab_ms"] - out["median_ba_ms"]
    out["duplicates"] = rows.groupby(keys).size() - out["count"]
    return out.sort_index()


def assert_equal(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """`found` as Spark wrote it (bucket as a timestamp or missing)."""
    found = found.copy()
    buckets = pd.to_datetime(found["bucket"], utc=True)
    seconds = (buckets - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    found["bucket"] = seconds.fillna(-1).astype("int64")
    found = found.set_index(["a", "b", "bucket"]).sort_index()
    assert list(found.index) == list(wanted.index)
    for name in wanted:
        np.testing.assert_allclose(
            found[name].to_numpy(dtype=float), wanted[name].to_numpy(dtype=float), rtol=1e-9, atol=1e-9, err_msg=name
        )
