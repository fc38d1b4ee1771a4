"""Filler values are told from small RTTs by what third nodes say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import latencies
from builders import SMALL, invoke, write_scenario
from nova.costspace import phantom
from nova.costspace.fillers import fillers
from nova.model.problem import Latency


def with_values(latency: Latency, rows: np.ndarray, value: float) -> Latency:
    rtt = latency.rtt_ms.copy()
    rtt[rows] = value
    return Latency(latency.first, latency.second, rtt)


def test_a_least_value_that_repeats_far_below_the_others_is_a_filler() -> None:
    latency = phantom.measured(phantom.scattered(40), noise=0.05)
    far = np.argsort(-latency.rtt_ms)[:30:4]
    filled = with_values(latency, far, 0.5)
    assert np.array_equal(np.flatnonzero(fillers(40, filled)), np.sort(far))
    assert not fillers(40, with_values(latency, far[:3], 0.5)).any()  # too few to be a habit
    assert not fillers(40, latency).any()


def test_machines_of_one_room_stay() -> None:
    at = np.repeat(np.random.default_rng(0).uniform(0, 100, size=(8, 2)), 3, axis=0)  # three machines in each room
    n = len(at)
    first, second = (end.astype(np.int32) for end in np.triu_indices(n, 1))
    rtt = np.maximum(1.0, np.round(np.linalg.norm(at[first] - at[second], axis=1)))
    assert np.count_nonzero(rtt == 1.0) >= 24
    assert not fillers(n, Latency(first, second, rtt)).any()


def test_a_scenario_says_what_was_left_out(tmp_path: Path) -> None:
    truth = phantom.scattered(14)
    latency = phantom.measured(truth)
    far = np.argsort(-latency.rtt_ms)[:6]
    filled = with_values(latency, far, 0.1)
    ids = ["edge1", "edge2", "fog", "cloud", "hq", *(f"n{k}" for k in range(9))]
    document = {**SMALL, "nodes": [{"id": name, "capacity": 1000} for name in ids], "latency": "rtt.csv"}
    pairs = [[ids[a], ids[b], rtt] for a, b, rtt in zip(filled.first, filled.second, filled.rtt_ms, strict=True)]
    file = write_scenario(tmp_path, document, rtt=[["from", "to", "rtt_ms"], *pairs])
    answer = invoke("embed", file)
    assert answer.exit_code == 0, answer.output
    assert "6 pairs have 0.1 ms, the least RTT there is" in answer.stderr
    assert "85" in answer.stdout  # of 91 pairs


@pytest.mark.shared
def test_ripe_atlas_has_some(shared: Path) -> None:
    n, latency = latencies.ripe_atlas(shared)
    found = fillers(n, latency)
    assert 50 <= np.count_nonzero(found) <= 100
    assert set(latency.rtt_ms[found]) == {1.0}
