"""Neighbour selection on Spark: at most m, some of them the nearest, the same for the same seed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from nova.costspace import phantom

M = 8


@pytest.fixture(scope="module")
def pairs(spark: Any) -> Any:
    latency = phantom.measured(phantom.scattered(40, seed=3), seed=3)
    rows = [
        (f"n{a}", f"n{b}", float(rtt)) for a, b, rtt in zip(latency.first, latency.second, latency.rtt_ms, strict=True)
    ]
    return spark.createDataFrame(rows, "`from` string, `to` string, rtt_ms double").repartition(5)


def test_near_and_far(pairs: Any) -> None:
    from nova.spark.ingest.embed.neighbours import choose

    chosen = choose(pairs, M, seed=1, near=0.25).collect()
    mine: dict[str, list[Any]] = defaultdict(list)
    for row in chosen:
        mine[row["node"]].append(row)
    measured: dict[str, list[float]] = defaultdict(list)
    for row in pairs.collect():
        measured[row["from"]].append(row["rtt_ms"])
        measured[row["to"]].append(row["rtt_ms"])
    assert len(mine) == 40
    for node, rows in mine.items():
        assert len(rows) == M
        assert len({row["neighbour"] for row in rows}) == M
        assert node not in {row["neighbour"] for row in rows}
        near = sorted(row["rtt_ms"] for row in rows if row["near"])
        np.testing.assert_allclose(near, sorted(measured[node])[:2])


def test_same_seed_same_choice(pairs: Any) -> None:
    from nova.spark.ingest.embed.neighbours import choose

    def picks(seed: int, partitions: int) -> set[tuple[str, str]]:
        return {(row["node"], row["neighbour"]) for row in choose(pairs.repartition(partitions), M, seed).collect()}

    assert picks(1, 3) == picks(1, 7)
    assert picks(1, 3) != picks(2, 3)


def test_a_pair_is_used_where_one_end_picked_it(pairs: Any) -> None:
    from nova.spark.ingest.embed.neighbours import choose, picked_pairs

    told = {frozenset((row["from"], row["to"])): row["used"] for row in picked_pairs(pairs, M, seed=1).collect()}
    picks = {frozenset((row["node"], row["neighbour"])) for row in choose(pairs, M, seed=1).collect()}
    assert len(told) == 40 * 39 // 2
    assert {pair for pair, used in told.items() if used} == picks
