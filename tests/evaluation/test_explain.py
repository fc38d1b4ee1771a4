"""Reasons against plans whose reasons are known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import handmade
import skewed
from nova.evaluation.explain import Candidate, Explainer, JoinExplained
from nova.evaluation.metrics import evaluate
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Latency, Nodes, Problem
from nova.model.replicas import Replicas
from nova.optimizer import optimize


def explainer(
    problem: Problem | None = None, replicas: Replicas | None = None, options: Options | None = None
) -> Explainer:
    problem = problem or handmade.problem()
    plan = handmade.plan(problem, replicas)
    return Explainer(problem, replace(plan, options=options or Options(objective="paper")))


def whole(first: int, second: int) -> Replicas:
    return Replicas.whole(np.array([0, 1]), np.array([first, second]))


def by_node(join: JoinExplained) -> dict[str, Candidate]:
    return {candidate.node: candidate for candidate in join.candidates}


def test_a_join_tells_its_cost_and_its_ideal() -> None:
    (join,) = explainer().joins("a", "x")
    assert (join.left_node, join.right_node, join.sink) == ("s1", "s2", "sink")
    assert join.demand == 30
    # the triangle (0,0), (6,0), (3,8) has its Fermat point at (3, √3): 2·√12 + 8 − √3
    assert join.virtual_position == pytest.approx((3, np.sqrt(3)))
    assert join.ideal_cost_ms == pytest.approx(2 * np.sqrt(12) + 8 - np.sqrt(3))
    assert join.cost_ms == pytest.approx(14)
    assert join.traffic == pytest.approx(50)
    assert [(p.node, p.replicas, p.share) for p in join.parts] == [("h1", 3, 0.625), ("h2", 1, 0.375)]


def test_cuts_are_told_apart() -> None:
    grid = explainer()
    assert [j.cut for j in grid.joins("a", "x") + grid.joins("b", "x")] == ["grid", "whole"]
    zero, one = np.zeros(3), np.ones(3)
    at = np.array([3, 4, 3], np.int32)
    join = np.array([0, 0, 1], np.int32)
    half = np.array([0.0, 0.4, 0.0]), np.array([0.4, 1.0, 1.0])
    sliced = explainer(replicas=Replicas(join, at, zero, one, zero, one, *half))
    (cut,) = sliced.joins("a", "x")
    assert cut.cut == "window"
    assert "2 slices" in cut.why
    assert cut.traffic == pytest.approx(30)
    # three boxes that are no grid: left half, and the right half in two
    boxes = Replicas(
        np.array([0, 0, 0, 1], np.int32),
        np.array([3, 4, 3, 3], np.int32),
        np.array([0, 0.5, 0.5, 0]),
        np.array([0.5, 1, 1, 1]),
        np.array([0, 0, 0.5, 0]),
        np.array([1, 0.5, 1, 1]),
        np.zeros(4),
        np.ones(4),
    )
    assert explainer(replicas=boxes).joins("a", "x")[0].cut == "boxes"


def test_candidates_come_in_order_of_cost_with_the_ones_after() -> None:
    # b ⋈ x (s3, s2, sink) costs 3 + √73 at the sink and 10 + √73 − … elsewhere; it runs on h1
    (join,) = explainer(replicas=whole(handmade.FIRST, handmade.FIRST)).joins("b", "x")
    costs = [c.cost_ms for c in join.candidates]
    assert costs == sorted(costs)
    assert [c.rank for c in join.candidates] == sorted(c.rank for c in join.candidates)
    assert by_node(join)["h1"].verdict == "chosen"


def test_verdicts_and_reasons() -> None:
    nodes = handmade.problem(capacity=(10, 10, 40, 100, 60, 20))
    options = Options(objective="paper", c_min=15)
    # both on h1, though h2 costs the same and more nodes are near
    (join,) = explainer(nodes, whole(handmade.FIRST, handmade.FIRST), options).joins("b", "x")
    found = by_node(join)
    assert found["sink"].verdict == "no host"
    assert found["h2"].verdict == "passed over"  # 60 free, and nearer than h1
    assert "60 of 60 free" in found["h2"].reason
    assert found["s2"].verdict == "below C_min"
    assert found["h1"].free == pytest.approx(70)  # without b ⋈ x itself
    assert join.turned_down["no host"] == 1


def test_a_full_host_names_who_filled_it() -> None:
    problem = handmade.problem(capacity=(10, 10, 10, 100, 31, 20))
    options = Options(objective="paper", c_min=5)
    (join,) = explainer(problem, whole(handmade.SECOND, handmade.FIRST), options).joins("b", "x")
    full = by_node(join)["h2"]
    assert full.verdict == "full"
    assert "1 of 31 left" in full.reason
    assert "a ⋈ x (30)" in full.reason


def test_a_small_host_tells_what_was_needed() -> None:
    problem = handmade.problem(capacity=(10, 10, 10, 100, 20, 20))
    (join,) = explainer(problem, whole(handmade.FIRST, handmade.FIRST)).joins("b", "x")
    small = by_node(join)["h2"]
    assert small.verdict == "too small"
    assert "20 of 20 free, 25 needed" in small.reason


def test_why_a_join_was_cut() -> None:
    tight = explainer(handmade.problem(capacity=(10, 10, 10, 29, 29, 20)))
    (join,) = tight.joins("a", "x")
    assert "No host has room for all of its 30 tuples/s (the most is 29)" in join.why
    assert "2 × 2 parts" in join.why
    budget = explainer(options=Options(objective="paper", bandwidth_budget=20, sigma=0.5))
    (join,) = budget.joins("a", "x")
    assert "t_b = 20" in join.why
    assert "σ = 0.5" in join.why


def test_measurements_rank_candidates_and_gaps_are_told() -> None:
    problem = handmade.problem()
    pairs = [
        (handmade.LEFT, handmade.SECOND, 1.0),
        (handmade.RIGHT, handmade.SECOND, 1.0),
        (handmade.SECOND, handmade.SINK, 1.0),
    ]
    first, second, rtt = zip(*pairs, strict=True)
    measured = replace(problem, latency=Latency(np.array(first, np.int32), np.array(second, np.int32), np.array(rtt)))
    (join,) = explainer(measured).joins("a", "x")
    best = join.candidates[0]
    assert (best.node, best.cost_ms, best.measured) == ("h2", 3.0, True)
    assert best.estimated_ms == pytest.approx(14)
    assert not by_node(join)["h1"].measured


def test_a_node_tells_what_it_hosts_and_who_sends() -> None:
    node = explainer().node("h2")
    assert node.overloaded
    assert node.load == pytest.approx(45)
    assert "45 tuples/s reach it, it can take 30" in node.said
    assert [(h.left, h.right, h.left_rate, h.right_rate) for h in node.hosted] == [("b", "x", 5, 20), ("a", "x", 5, 15)]
    assert [h.sink_ms for h in node.hosted] == [4, 4]
    source = explainer().node("s2")
    assert [(s.source, s.to, s.tuples) for s in source.sources] == [("x", "h2", 35), ("x", "h1", 20)]
    assert explainer().node("sink").sink_of == ("q",)


@pytest.mark.parametrize(
    ("node", "capacity", "c_min", "said"),
    [
        ("sink", 20.0, 0.0, "No join may run here."),
        ("s1", 10.0, 15.0, "below C_min"),
        ("s1", 10.0, 0.0, "less than the smallest sub-join needs (25)"),
        ("s1", 90.0, 0.0, "found room on hosts where it costs less"),
        ("h1", 100.0, 0.0, "70 of 100 tuples/s are left."),
        ("h1", 100.0, 80.0, "below C_min = 80: closed"),
    ],
)
def test_one_sentence_per_node(node: str, capacity: float, c_min: float, said: str) -> None:
    capacities = dict(zip(handmade.IDS, (10, 10, 10, 100, 30, 20), strict=True)) | {node: capacity}
    problem = handmade.problem(capacity=tuple(capacities.values()))
    assert said in explainer(problem, options=Options(c_min=c_min)).node(node).said


def test_unknown_names_are_answered_with_close_ones() -> None:
    told = explainer()
    with pytest.raises(InvalidInput, match="did you mean 'sink'"):
        told.node("sinc")
    with pytest.raises(InvalidInput, match="no source 'y' on the left side"):
        told.joins("y", "x")
    with pytest.raises(InvalidInput, match="left side of no sub-join; there are a, b"):
        told.joins("x", "a")


def test_stages_add_up() -> None:
    stages = {stage.name.replace(":", ""): stage for stage in explainer().stages()}
    assert stages["Phase I cost space"].figures["dimensions"] == 2
    assert "coordinates" in stages["Phase I cost space"].said
    assert stages["Phase II sub-joins"].figures == {"sub_joins": {"q": 2}, "demand": 55.0}
    placed = stages["Phase II virtual positions"].figures
    assert placed["cost_ms"] == pytest.approx(28)
    assert placed["ideal_cost_ms"] <= placed["cost_ms"]
    parts = stages["Phase III parts and hosts"].figures
    assert parts["cuts"] == {"whole": 1, "window": 0, "key": 0, "grid": 1, "boxes": 0}
    assert (parts["hosts"], parts["replicas"], parts["overloaded"], parts["may_not_host"]) == (2, 5, 1, 1)
    assert parts["tuples_in"] == pytest.approx(75)
    felt = stages["What it feels like"]
    assert felt.figures["unsettled"] > 0  # one host is overloaded
    assert "never settle" in felt.said


def test_felt_latency_of_a_join_is_that_of_its_parts() -> None:
    for join in explainer().joins("a", "x"):
        shares = sum(part.share for part in join.parts)
        assert shares == pytest.approx(1.0)
        if math.isfinite(join.felt.mean_ms):
            waited = sum(part.share * part.waiting_ms for part in join.parts)
            assert join.felt.waiting_ms == pytest.approx(waited)
            served = sum(part.share * part.service_ms for part in join.parts)
            assert join.felt.service_ms == pytest.approx(served)


def test_embedding_accuracy_is_told_where_there_are_measurements() -> None:
    problem = handmade.problem()
    nodes = Nodes(**{**problem.nodes.__dict__, "coordinates": None})
    latency = Latency(np.array([0, 0], np.int32), np.array([3, 1], np.int32), np.array([3.0, 12.0]))
    embedded = replace(problem, nodes=nodes, latency=latency)
    stage = explainer(embedded).stages()[0]
    assert stage.figures["pairs"] == 2
    assert stage.figures["median_relative_error"] == pytest.approx(0.25)  # 0 and one half
    assert "by stress from 2 measured pairs" in stage.said


def test_a_heavy_key_with_hosts_of_its_own_is_told() -> None:
    problem = skewed.problem({"a": 0.6})
    plan = optimize(problem)
    (told,) = Explainer(problem, plan).joins("s0", "s1")
    heavy = int((plan.replicas.key_to <= 0.6).sum())
    assert told.cut == "boxes"
    assert f"{len(plan.replicas)} boxes (key 'a', 60% of its tuples, has {heavy})" in told.why
    assert sum(part.share for part in told.parts) == pytest.approx(1.0)
    assert told.cost_ms == pytest.approx(evaluate(problem, plan).cost_latency_ms)


def test_ranges_of_keys_are_told() -> None:
    problem = skewed.problem({}, capacity=90.0)
    (told,) = Explainer(problem, optimize(problem)).joins("s0", "s1")
    assert told.cut == "key"
    assert "its keys go to" in told.why
