"""Each cleaning rule on matrices small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from nova.datasets.catalog import Rules
from nova.datasets.clean import Cleaned, clean

NAMES = ("a", "b", "c", "d")


def touched(cleaned: Cleaned, word: str) -> int:
    return sum(step.pairs for step in cleaned.cleaning.steps if word in step.what)


def full(**entries: float) -> np.ndarray:
    """10 ms everywhere; `ab=5` sets both directions, `AB=5` one."""
    matrix = np.full((4, 4), 10.0)
    for pair, value in entries.items():
        i, j = (NAMES.index(c) for c in pair.lower())
        matrix[i, j] = value
        if pair.islower():
            matrix[j, i] = value
    return matrix


def test_zeros_negatives_and_gaps_are_missing_and_the_diagonal_is_ignored() -> None:
    matrix = full(ab=0, cd=np.nan, bc=-1)
    matrix[0, 0] = 216.0
    cleaned = clean(NAMES, matrix, Rules())
    assert touched(cleaned, "not measured") == 3
    pairs = set(zip(cleaned.latencies[0].first.tolist(), cleaned.latencies[0].second.tolist(), strict=True))
    assert pairs == {(0, 2), (0, 3), (1, 3)}
    assert (cleaned.cleaning.kept, cleaned.cleaning.pairs) == (3, 6)


def test_one_known_direction_is_enough_and_two_are_averaged() -> None:
    cleaned = clean(NAMES, full(AB=0, CD=14), Rules())
    rtt = dict(
        zip(
            zip(cleaned.latencies[0].first, cleaned.latencies[0].second, strict=True),
            cleaned.latencies[0].rtt_ms,
            strict=True,
        )
    )
    assert rtt[(0, 1)] == 10.0
    assert rtt[(2, 3)] == 12.0
    assert touched(cleaned, "apart") == 1


def test_dead_nodes_are_left_out_by_name() -> None:
    cleaned = clean(NAMES, full(ab=0, bc=0, bd=0), Rules())
    assert cleaned.cleaning.dropped_nodes == ("b",)
    assert cleaned.rows.tolist() == [0, 2, 3]
    assert cleaned.latencies[0].second.max() == 2  # rows are counted anew
    assert "never measured, left out: b" in str(cleaned.cleaning)
    assert "kept: 3 of 3 pairs (100.00%)" in str(cleaned.cleaning)


def test_an_outlier_of_a_single_matrix_is_dropped() -> None:
    n = 40
    matrix = np.full((n, n), 10.0)
    matrix[0, 1] = matrix[1, 0] = 4358.0
    cleaned = clean(tuple(map(str, range(n))), matrix, Rules())
    assert touched(cleaned, "outliers") == 1
    assert cleaned.latencies[0].rtt_ms.max() == 10.0


def test_sums_are_halved_fills_dropped_and_single_directions_noticed() -> None:
    hours = np.stack([full() * 2 for _ in range(5)])
    hours[1, 0, 1] = hours[1, 1, 0] = 1.0  # filled in
    hours[2, 0, 2] = hours[2, 2, 0] = 10.0  # one direction only
    hours[3, 2, 3] = hours[3, 3, 2] = 8521.0  # the spike of hour 7
    cleaned = clean(NAMES, hours, Rules(missing=(0.0, 1.0), halve=True))
    assert [len(latency) for latency in cleaned.latencies] == [6, 5, 5, 5, 6]
    assert all((latency.rtt_ms == 10.0).all() for latency in cleaned.latencies)
    assert touched(cleaned, "halved") == 29
    assert touched(cleaned, "one direction") == 1
    assert touched(cleaned, "spikes") == 1


def test_a_slow_pair_is_no_spike() -> None:
    slots = np.stack([full(ab=900.0) for _ in range(3)])
    cleaned = clean(NAMES, slots, Rules())
    assert cleaned.cleaning.kept == 18


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_nothing_measured_at_all(value: float) -> None:
    cleaned = clean(NAMES, np.full((4, 4), value), Rules())
    assert cleaned.cleaning.dropped_nodes == NAMES
    assert len(cleaned.latencies[0]) == 0
