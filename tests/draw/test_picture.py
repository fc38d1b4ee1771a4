"""What a picture shows, before it is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import handmade
from nova.draw.picture import compose, thin, widen
from nova.model.problem import Latency
from nova.model.space import CostSpace


def test_roles_loads_and_flows_of_the_hand_made_plan() -> None:
    problem = handmade.problem()
    picture = compose(problem, handmade.plan(problem))
    assert picture.hosts.tolist() == [handmade.FIRST, handmade.SECOND]
    assert picture.sources.tolist() == [handmade.LEFT, handmade.RIGHT, handmade.OTHER]
    assert picture.sinks.tolist() == [handmade.SINK]
    assert picture.idle.tolist() == []
    assert picture.used[[3, 4]].tolist() == pytest.approx([0.3, 1.5])
    assert picture.overloaded.tolist() == [False, False, False, False, True, False]
    into = dict(
        zip(
            zip(picture.inward.source.tolist(), picture.inward.target.tolist(), strict=True),
            picture.inward.tuples.tolist(),
            strict=True,
        )
    )
    # x is sent to h2 for both sub-joins: 15 of it for a ⋈ x, 20 for b ⋈ x
    assert into == pytest.approx({(0, 3): 10, (1, 3): 20, (0, 4): 5, (1, 4): 35, (2, 4): 5})
    assert picture.few
    assert picture.virtual.shape == (2, 2)


def test_more_than_two_dimensions_are_projected_and_said_so() -> None:
    problem = handmade.problem()
    rng = np.random.default_rng(5)
    lift = np.linalg.qr(rng.normal(size=(4, 4)))[0][:, :2]
    plan = handmade.plan(problem)
    flat = compose(problem, plan)
    tilted = compose(problem, replace(plan, space=CostSpace(handmade.POINTS @ lift.T, np.zeros(6))))
    assert "PCA" in tilted.note
    assert "100%" in tilted.note
    assert "PCA" not in flat.note
    # a plane that was tilted into four dimensions comes back with its distances
    apart = np.linalg.norm(tilted.points[:, None] - tilted.points[None], axis=2)
    assert apart == pytest.approx(np.linalg.norm(handmade.POINTS[:, None] - handmade.POINTS[None], axis=2))
    # virtual positions are projected alike: still at the sink
    assert np.linalg.norm(tilted.virtual - tilted.points[handmade.SINK], axis=1) == pytest.approx(
        np.linalg.norm(flat.virtual - flat.points[handmade.SINK], axis=1)
    )


def test_one_dimension_becomes_a_line() -> None:
    problem = handmade.problem()
    plan = replace(handmade.plan(problem), space=CostSpace(handmade.POINTS[:, :1], np.zeros(6)))
    picture = compose(problem, plan)
    assert picture.points.shape == (6, 2)
    assert not picture.points[:, 1].any()


def test_many_flows_are_bundled_and_the_share_is_told() -> None:
    problem, plan = handmade.crowd(4000)
    picture = compose(problem, plan, most_arrows=200)
    assert len(picture.inward) <= 200
    assert (picture.inward.source == -1).all()
    assert "bundled" in picture.note
    assert not picture.few
    assert picture.inward.tuples.sum() <= picture.load.sum() * (1 + 1e-9)


def test_what_is_thinned_is_told() -> None:
    problem, plan = handmade.crowd(500)
    assert "drawn" not in compose(problem, plan).note
    assert "100 of 298 sources drawn" in compose(problem, plan, most_marks=100).note


def test_far_nodes_do_not_squeeze_the_picture() -> None:
    problem, plan = handmade.crowd(500)
    away = plan.space.coordinates.copy()
    away[np.setdiff1d(np.arange(500), np.concatenate([plan.joins.left_node, plan.joins.right_node]))[0]] = 1e5
    picture = compose(problem, replace(plan, space=CostSpace(away, plan.space.heights)))
    assert picture.frame[1] < 1000
    assert "outside the frame" in picture.note


def test_thin_keeps_the_heaviest_and_samples_the_rest() -> None:
    weight = np.arange(1000.0)
    rows = thin(np.arange(1000, dtype=np.int32), weight, 100)
    assert len(rows) == len(set(rows.tolist())) == 100
    assert set(range(950, 1000)) <= set(rows.tolist())
    assert rows[-1] == 999
    assert thin(np.arange(5, dtype=np.int32), weight, 100).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.0])
def test_widen_keeps_the_frame_in_view(aspect: float) -> None:
    x0, x1, y0, y1 = widen((0, 10, -5, 5), aspect)
    assert (x1 - x0) / (y1 - y0) == pytest.approx(aspect)
    assert x0 <= 0
    assert x1 >= 10
    assert y0 <= -5
    assert y1 >= 5


def test_baselines_have_no_virtual_positions() -> None:
    problem = handmade.problem()
    assert not len(compose(problem, replace(handmade.plan(problem), approach="sink")).virtual)


def test_measured_latencies_are_told_where_they_exist() -> None:
    problem = handmade.problem()
    plan = handmade.plan(problem)
    assert not any("measured" in name for name, *_ in compose(problem, plan).figures)
    known = replace(problem, latency=Latency(np.array([0], np.int32), np.array([3], np.int32), np.array([9.0])))
    assert any("measured" in name for name, *_ in compose(known, plan).figures)


@pytest.mark.parametrize(("capacity", "drowns"), [(1.0, True), (1e9, False)])
def test_a_sink_that_drowns_in_results_is_told(capacity: float, drowns: bool) -> None:
    problem = handmade.problem()
    plan = handmade.plan(problem)
    capacities = problem.nodes.capacity.copy()
    capacities[plan.joins.sink] = capacity
    told = compose(replace(problem, nodes=replace(problem.nodes, capacity=capacities)), plan).figures[-1]
    assert told == ("sinks that cannot take them", f"{drowns:d} of 1", drowns)
