"""One plan through several views of the network."""

from __future__ import annotations

import math

import numpy as np
import pytest

from handmade import FIRST, LEFT, POINTS, RIGHT, SECOND, SINK, plan, problem
from nova.baselines import place
from nova.evaluation.measured import measured_share, readings
from nova.evaluation.metrics import Measured
from nova.model.problem import Latency
from nova.model.space import CostSpace
from nova.placement.resolve import resolve


def doubled(pairs: list[tuple[int, int]]) -> Latency:
    """Measurements of the given pairs: twice their distance."""
    first, second = (np.array(side, np.int32) for side in zip(*pairs, strict=True))
    return Latency(first, second, 2 * np.linalg.norm(POINTS[first] - POINTS[second], axis=1))


EVERY = [(i, j) for i in range(6) for j in range(i + 1, 6)]


def test_views_stand_side_by_side() -> None:
    drawn = problem()
    found = readings(drawn, plan(drawn), {"noon": doubled(EVERY), "night": doubled([(LEFT, FIRST)])})
    assert [reading.name for reading in found] == ["estimated", "noon", "night"]
    estimated, noon, night = (reading.metrics.latency_mean_ms for reading in found)
    assert noon == pytest.approx(2 * estimated)
    assert estimated < night < noon  # one link measured, the rest falls back to the cost space
    assert found[1].links_measured == 1.0
    assert 0 < found[2].links_measured < 1
    assert found[1].tiv_share == 0.0
    assert math.isnan(found[0].tiv_share)
    assert found[1].as_dict()["view"] == "noon"


def test_a_series_is_numbered() -> None:
    drawn = problem()
    found = readings(drawn, plan(drawn), [doubled(EVERY), doubled(EVERY)])
    assert [reading.name for reading in found] == ["estimated", "0", "1"]


def test_links_are_counted_by_replica() -> None:
    drawn = problem()
    made = plan(drawn)
    hops = Measured(doubled([(RIGHT, FIRST), (RIGHT, SECOND)]), 6, made.space)
    assert measured_share(made, hops) == pytest.approx(1 / 3)  # right → host known, left and sink not


def test_routed_approaches_are_read_along_their_routes() -> None:
    drawn = problem()
    joins = resolve(drawn)
    for name in ("tree", "cl-sf", "source"):
        placement = place(name, drawn, joins, CostSpace(POINTS, np.zeros(6)))
        found = readings(drawn, placement.plan, {"all": doubled(EVERY)}, placement.over)
        assert found[1].metrics.latency_mean_ms == pytest.approx(2 * found[0].metrics.latency_mean_ms)
    assert placement.over(placement.plan.space) is placement.plan.space


def test_a_relay_that_beats_the_direct_way_is_a_violation() -> None:
    latency = Latency(np.array([0, 0, 1], np.int32), np.array([1, 2, 2], np.int32), np.array([1.0, 9.0, 1.0]))
    drawn = problem()
    assert readings(drawn, plan(drawn), [latency])[1].tiv_share == pytest.approx(1 / 3)
    assert SINK == 5
