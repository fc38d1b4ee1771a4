"""The statistics without Spark: any grouping, order and mixture of losses and duplicates equals pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova.spark.ingest.measurements.kernel import summarise
from pandas_reference import aggregates

rows = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.booleans(),
        st.integers(0, 4),
        st.integers(0, 1),
        st.one_of(st.just(float("nan")), st.sampled_from([1.0, 2.5, 7.0, 100.0])),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=25)
@given(rows)
def test_equals_pandas(drawn: list[tuple[int, bool, int, int, float]]) -> None:
    drawn = sorted(drawn, key=lambda row: row[0])
    group, back, time, sequence, rtt = (np.array(column) for column in zip(*drawn, strict=True))
    starts = np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(group)).astype(np.int64)
    counts, values = summarise(starts, back, np.zeros(len(back), bool), time, sequence, rtt)
    frame = pd.DataFrame(
        {
            "from": np.where(back, "y", "x"),
            "to": np.where(back, "x", "y"),
            "time": time,
            "sequence": sequence,
            "rtt": rtt,
            "g": group,
        }
    )
    for at, (_, mine) in enumerate(frame.groupby("g")):
        wanted = aggregates(mine.drop(columns="g"), None).iloc[0]
        for name, found in (counts | values).items():
            np.testing.assert_allclose(found[at], wanted[name], err_msg=name)


def test_marked_replies_count_as_duplicates_only() -> None:
    one = np.ones(2, np.int64)
    counts, values = summarise(
        np.array([0, 2]), np.array([False, False]), np.array([False, True]), one, np.arange(2), np.array([5.0, 9.0])
    )
    assert (counts["count"][0], counts["duplicates"][0], values["median_ms"][0]) == (1, 1, 5.0)


def test_groups_that_share_a_hash_are_told_apart() -> None:
    """Rows of two groups under one key, mixed: both come out whole."""
    pytest.importorskip("pyspark")
    from nova.spark.ingest.measurements.aggregate import summaries

    table = pa.table(
        {
            "key": pa.array([7, 7, 7, 7, 9], pa.int64()),
            "a": ["p", "q", "p", "q", "p"],
            "b": ["z"] * 5,
            "bucket": pa.array([None, None, None, None, 3], pa.int64()),
            "back": [False] * 5,
            "repeated": [False] * 5,
            "time": pa.array(range(5), pa.int64()),
            "sequence": pa.array([0] * 5, pa.int64()),
            "rtt": [1.0, 10.0, 3.0, None, 5.0],
        }
    )
    out = pa.Table.from_batches(summaries(table)).to_pylist()
    assert [(row["a"], row["bucket"], row["count"], row["lost"], row["median_ms"]) for row in out] == [
        ("p", None, 2, 0, 2.0),
        ("q", None, 2, 1, 10.0),
        ("p", 3, 1, 0, 5.0),
    ]
