"""The paper's running example (Sections 3.1–3.4): its figures hold, and it plans as described."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow.csv as csv
import pytest

from nova.evaluation.metrics import Measured, evaluate, flows, node_load, source_latency
from nova.model.plan import Plan
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.optimizer import optimize
from nova.placement.median import virtual_positions
from nova.placement.resolve import resolve
from nova.scenario import Scenario, load

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "running-example"
REGION_1, REGION_2 = ("t1", "t2", "w1"), ("t3", "t4", "w2")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load(FOLDER / "scenario.yaml")


@pytest.fixture(scope="module")
def problem(scenario: Scenario) -> Problem:
    return scenario.problem


@pytest.fixture(scope="module")
def plan(scenario: Scenario) -> Plan:
    return optimize(scenario.problem, replace(scenario.options, waiting=0.0))  # by distance, as the paper does


@pytest.fixture(scope="module")
def links() -> nx.Graph:
    graph = nx.Graph()
    for link in csv.read_csv(FOLDER / "links.csv").to_pylist():
        graph.add_edge(link["from"], link["to"], weight=link["ms"])
    return graph


def row(problem: Problem, node: str) -> int:
    return problem.nodes.ids.to_pylist().index(node)


def ms(problem: Problem, a: str, b: str) -> float:
    """Entry of the paper's matrix A."""
    assert problem.latency is not None
    return float(problem.latency.matrix(len(problem.nodes))[row(problem, a), row(problem, b)])


def hosts(problem: Problem, plan: Plan) -> dict[str, list[str]]:
    """Which nodes each sub-join runs on, by the paper's names j1 … j4."""
    ids = problem.sources.ids.to_pylist()
    found: dict[str, list[str]] = {}
    for join, node in zip(plan.replicas.join, plan.replicas.node, strict=True):
        name = {"t1": "j1", "t2": "j2", "t3": "j3", "t4": "j4"}[ids[plan.joins.left[join]]]
        found.setdefault(name, []).append(problem.nodes.ids[int(node)].as_py())
    return {name: sorted(set(nodes)) for name, nodes in sorted(found.items())}


def slowest(problem: Problem, plan: Plan, sources: tuple[str, ...]) -> float:
    """The largest measured end-to-end latency of a region's sources."""
    assert problem.latency is not None
    latency = source_latency(problem, plan, Measured(problem.latency, len(problem.nodes), plan.space))
    ids = problem.sources.ids.to_pylist()
    return float(max(latency.slowest[ids.index(source)] for source in sources))


def test_latencies_are_the_shortest_paths_over_the_links(problem: Problem, links: nx.Graph) -> None:
    paths = dict(nx.all_pairs_dijkstra_path_length(links))
    ids = problem.nodes.ids.to_pylist()
    expected = np.array([[paths[a][b] for b in ids] for a in ids])
    assert problem.latency is not None
    assert problem.latency.matrix(len(ids)) == pytest.approx(expected)


def test_capacities_and_rates_are_the_papers(problem: Problem) -> None:
    capacity = dict(zip(problem.nodes.ids.to_pylist(), problem.nodes.capacity.tolist(), strict=True))
    assert {n: capacity[n] for n in ("A", "B", "C", "F", "G", "sink")} == {
        "A": 55,
        "B": 40,
        "C": 40,
        "F": 20,
        "G": 200,
        "sink": 20,
    }
    assert {capacity[s] for s in REGION_1 + REGION_2} == {10}
    assert capacity["E"] > 1000
    assert problem.sources.rate.tolist() == [25.0] * 6


def test_the_figures_of_the_text(problem: Problem, links: nx.Graph) -> None:
    assert links["t1"]["base-1"]["weight"] == 10
    assert links["base-1"]["C"]["weight"] == 50
    assert ms(problem, "t1", "C") == 60
    assert ms(problem, "t1", "sink") == 110
    assert np.mean([ms(problem, s, "E") for s in REGION_1]) == pytest.approx(130)
    assert np.mean([ms(problem, s, "E") for s in REGION_2]) == pytest.approx(155)
    assert ms(problem, "E", "sink") == 100
    for source in REGION_1:
        assert nx.dijkstra_path(links, source, "E")[-3:] == ["C", "D", "E"]
    for source in REGION_2:
        assert nx.dijkstra_path(links, source, "E")[-3:] == ["F", "D", "E"]


def everything_on(problem: Problem, plan: Plan, node: str) -> Plan:
    joins = plan.joins
    return Plan(joins, Replicas.whole(np.arange(len(joins)), np.full(len(joins), row(problem, node))), plan.space)


def test_the_cloud_takes_275_ms(problem: Problem, plan: Plan) -> None:
    cloud = everything_on(problem, plan, "E")
    assert slowest(problem, cloud, REGION_1) == pytest.approx(230)
    assert slowest(problem, cloud, REGION_2) == pytest.approx(275)
    assert evaluate(problem, cloud).overloaded == 0


def test_sink_and_sources_would_be_overloaded(problem: Problem, plan: Plan) -> None:
    assert evaluate(problem, everything_on(problem, plan, "sink")).overloaded_percent == 100
    at_sources = Plan(plan.joins, Replicas.whole(np.arange(4), plan.joins.left_node), plan.space)
    assert evaluate(problem, at_sources).overloaded_percent == 100


def test_the_join_decomposes_into_four_pairs(problem: Problem) -> None:
    joins = resolve(problem)
    ids = problem.sources.ids.to_pylist()
    assert [(ids[a], ids[b]) for a, b in zip(joins.left, joins.right, strict=True)] == [
        ("t1", "w1"),
        ("t2", "w1"),
        ("t3", "w2"),
        ("t4", "w2"),
    ]


def test_the_nearest_nodes_with_room_are_the_papers(problem: Problem, plan: Plan) -> None:
    """V_knn with k = 2 and C_min = 15, on the capacities that are left when each is searched."""
    positions = virtual_positions(plan.joins, plan.space, "paper")
    names = problem.nodes.ids.to_pylist()
    capacity = dict(zip(names, problem.nodes.capacity.tolist(), strict=True))

    def nearest(join: int, left: dict[str, float]) -> list[str]:
        away = np.linalg.norm(plan.space.coordinates - positions[join], axis=1)
        return [names[i] for i in np.argsort(away) if {**capacity, **left}[names[i]] >= 15][:2]

    assert nearest(0, {}) == ["A", "B"]
    assert nearest(1, {"A": 5}) == ["B", "C"]
    assert nearest(2, {}) == ["G", "F"]
    assert nearest(3, {"G": 150}) == ["G", "F"]


def test_the_plan_is_the_papers(problem: Problem, plan: Plan) -> None:
    assert hosts(problem, plan) == {"j1": ["A"], "j2": ["B", "C"], "j3": ["G"], "j4": ["G"]}
    load = node_load(flows(problem, plan), len(problem.nodes))
    by_name = dict(zip(problem.nodes.ids.to_pylist(), load.tolist(), strict=True))
    assert by_name["A"] == pytest.approx(50)
    assert by_name["G"] == pytest.approx(100)
    # w1 is broadcast to both, t2 divided: 25 + 25 of w1 and 25 of t2 in all, within 40 each
    assert by_name["B"] + by_name["C"] == pytest.approx(75)
    assert max(by_name["B"], by_name["C"]) <= 40
    j2 = plan.replicas.take(plan.replicas.join == 1)
    assert (j2.right_from == 0).all()
    assert (j2.right_to == 1).all()
    # parts of p_max = 1 tuple/s: every cut of t2 lies on a multiple of 1/25
    cuts = np.concatenate([j2.left_from, j2.left_to]) * 25
    assert cuts == pytest.approx(np.round(cuts), abs=1e-9)


def test_end_to_end_latencies_of_the_plan(problem: Problem, plan: Plan) -> None:
    assert slowest(problem, plan, REGION_1) == pytest.approx(150)
    assert slowest(problem, plan, REGION_2) == pytest.approx(175)
    metrics = evaluate(problem, plan)
    assert metrics.overloaded == 0


@pytest.mark.parametrize(
    "embedding",
    [
        {"embedding": "stress", "dimensions": 3, "heights": True},
        {"embedding": "vivaldi", "dimensions": 2, "heights": False},
    ],
)
def test_other_embeddings_give_the_same_plan(embedding: dict[str, object]) -> None:
    other = load(FOLDER / "scenario.yaml", {**embedding, "waiting": 0.0})
    found = optimize(other.problem, other.options)
    assert hosts(other.problem, found) == {"j1": ["A"], "j2": ["B", "C"], "j3": ["G"], "j4": ["G"]}
