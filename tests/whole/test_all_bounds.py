"""Memory, replicas apart, and everything at once: held by plans, steps and the checker, near the integer optimum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp

from builders import SMALL, write_scenario
from controller.running import keeps_its_promises
from nova.controller import BudgetChanged, CapacityChanged, Controller, NodeAdded, NodeRemoved, RateChanged
from nova.evaluation.bounds import lower_bound
from nova.evaluation.explain import Explainer
from nova.evaluation.metrics import evaluate
from nova.model.distances import LegLengths
from nova.model.errors import BrokenPlan, Infeasible, InvalidInput
from nova.model.links import Link
from nova.model.load import memory_loads
from nova.model.metrics import Metric
from nova.model.options import Options
from nova.model.prices import Prices
from nova.model.problem import Problem
from nova.model.requires import parse
from nova.optimizer import optimize
from nova.placement.apart import not_apart
from nova.placement.check import check
from nova.placement.links import ends_of, made_by, sent_from
from nova.scenario import load
from nova.scenario.writer import write
from nova.synthetic import draw


def small(folder: Path, memory: dict[str, float], **query: Any) -> Problem:
    nodes = [{**node, "memory": memory.get(node["id"]), "rack": node["id"][:4]} for node in SMALL["nodes"]]
    return load(
        write_scenario(folder, {**SMALL, "nodes": nodes, "queries": [{**SMALL["queries"][0], **query}]})
    ).problem


def hosts(problem: Problem, plan: Any) -> set[str]:
    return {problem.nodes.ids[int(node)].as_py() for node in plan.replicas.node}


def test_windows_take_memory_on_their_host(tmp_path: Path) -> None:
    """A join of 50 tuples/s of 1 kB in windows of 1 s holds 50 kB: two do not fit into the fog node's 0.06 MB."""
    by_distance = Options(waiting=0)
    problem = small(tmp_path / "a", {"fog": 0.06}, tuple_bytes=1000)
    plan = optimize(problem, by_distance)
    held = memory_loads(problem, plan.joins, plan.replicas)
    assert (held <= problem.nodes.memory).all()
    assert held.sum() == pytest.approx(2 * 50e3)
    with pytest.raises(BrokenPlan, match=r"node fog holds 0.1 MB of open windows of at most 0.06 MB"):
        check(problem, optimize(small(tmp_path / "b", {"fog": 1}, tuple_bytes=1000), by_distance))
    file = write(tmp_path / "c", problem, by_distance)
    assert file is not None
    assert load(file).problem.digest == problem.digest
    with pytest.raises(Infeasible, match="takes 1000 bytes for each tuple"):
        optimize(small(tmp_path / "d", dict.fromkeys(("fog", "edge1", "edge2", "cloud"), 0.001), tuple_bytes=1000))
    with pytest.raises(InvalidInput, match="no column memory"):
        small(tmp_path / "e", {}, tuple_bytes=1000)


def test_windows_that_are_dealt_out_stay_whole(tmp_path: Path) -> None:
    """A part of the windows is not a part of the memory."""
    memory = dict.fromkeys(("fog", "edge1", "edge2", "cloud"), 0.04)
    with pytest.raises(Infeasible, match="the memory of hosts cannot take open windows"):
        optimize(small(tmp_path, memory, tuple_bytes=1000), Options(partition="window", waiting=0))


@settings(max_examples=10, derandomize=True, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["auto", "grid", "window"]))
def test_replicas_of_a_sub_join_stay_apart(seed: int, partition: Any) -> None:
    """Hosts so small that joins have to be divided, in four racks."""
    problem = draw(40, level=2, seed=seed, load=0.3)
    racks = pa.array([f"r{k}" for k in np.random.default_rng(seed).integers(0, 4, len(problem.nodes))])
    nodes = replace(problem.nodes, labels={"rack": racks}, capacity=np.minimum(problem.nodes.capacity, 30.0))
    asked = replace(problem, nodes=nodes, queries=tuple(replace(query, apart="rack") for query in problem.queries))
    try:
        plan = optimize(asked, Options(partition=partition, waiting=0))
    except Infeasible:
        return  # one host of each rack may be too little
    assert not len(not_apart(asked, plan.joins, plan.replicas))
    check(asked, plan)


EVERYTHING: dict[str, Any] = {
    "nova": 1,
    "nodes": [
        {"id": "paris", "capacity": 200, "x": 0, "y": 0, "region": "eu", "gpu": 0, "memory": 64, "joule": 2},
        {"id": "berlin", "capacity": 200, "x": 9, "y": 2, "region": "eu", "gpu": 2, "memory": 64, "joule": 6},
        {"id": "oslo", "capacity": 400, "x": 12, "y": 9, "region": "eu", "gpu": 1, "memory": 16, "joule": 1},
        {"id": "virginia", "capacity": 4000, "x": 60, "y": 0, "region": "us", "gpu": 8, "memory": 512, "joule": 4},
        {"id": "ohio", "capacity": 4000, "x": 70, "y": 4, "region": "us", "gpu": 0, "memory": 512, "joule": 3},
    ],
    "links": [{"label": "region", "from": "eu", "to": "us", "mbit_s": 10, "tuple_bytes": 10_000}],  # 125 tuples/s
    "metrics": {"energy": {"node": "joule", "weight": 0.05}},
    "streams": {
        "cameras": {"sources": [{"id": "c1", "node": "paris", "rate": 40}, {"id": "c2", "node": "berlin", "rate": 40}]},
        "alarms": {"sources": [{"id": "a1", "node": "oslo", "rate": 30}, {"id": "a2", "node": "virginia", "rate": 30}]},
        "orders": {"sources": [{"id": "o1", "node": "ohio", "rate": 50}]},
    },
    "queries": [
        {
            "id": "private",
            "left": "cameras",
            "right": "alarms",
            "requires": "region in [eu] and gpu >= 1",
            "tuple_bytes": 10_000,
            "key": {"column": "id", "cardinality": 1000},
            "apart": "id",
            "sink": "paris",
        },
        {
            "id": "shared",
            "left": "cameras",
            "right": "orders",
            "key": {"column": "id", "cardinality": 1000},
            "sink": "ohio",
        },
    ],
}
"""Data that stays in the EU, on hosts with a GPU; a link of 10 Mbit/s over the ocean; energy that has a price."""


def test_all_bounds_hold_at_once_through_events(tmp_path: Path) -> None:
    scenario = load(write_scenario(tmp_path, EVERYTHING))
    problem = scenario.problem
    plan = optimize(problem, scenario.options)
    check(problem, plan)
    private = plan.replicas.node[plan.joins.query[plan.replicas.join] == 0]
    assert {problem.nodes.ids[int(node)].as_py() for node in private} <= {"berlin", "oslo"}
    said = " ".join(stage.said for stage in Explainer(problem, plan).stages())
    for part in (
        "private requires region in [eu] and gpu >= 1: 2 hosts",
        "Link region eu → us carries",
        "energy",
        "MB",
    ):
        assert part in said
    running = Controller.from_plan(problem, plan)
    for event in (
        RateChanged(stream="cameras", source="c1", rate=55.0),
        CapacityChanged(node="oslo", capacity=100.0),
        NodeAdded(node="rome", capacity=300.0, coordinates=(5.0, 5.0), labels={"region": "eu", "gpu": "1"}),
        NodeRemoved(node="oslo"),
        BudgetChanged(label="region", from_node="eu", to_node="us", budget=20.0),
        RateChanged(stream="cameras", source="c2", rate=90.0),
        BudgetChanged(from_node="berlin", to_node="paris", budget=60.0),
    ):
        running.handle(event)
        keeps_its_promises(running)
        now = running.problem()
        mine = {query.id: number for number, query in enumerate(now.queries)}["private"]
        at = running.plan().replicas.node[running.plan().joins.query[running.plan().replicas.join] == mine]
        assert {now.nodes.ids[int(node)].as_py() for node in at} <= {"berlin", "oslo", "rome"}


@pytest.mark.parametrize("objective", ["latency", "paper", "network"])
def test_three_streams_under_all_bounds_at_once(tmp_path: Path, objective: str) -> None:
    """SQL of three streams on EU hosts with a GPU, the ocean's link and energy counted: at the bound, and told."""
    same = "TUMBLE({0}.time, INTERVAL '2' SECOND) = TUMBLE({1}.time, INTERVAL '2' SECOND)"
    sql = f"""SELECT window_start, o.city, count(*) AS n, avg(c.value) AS mean FROM cameras c
              JOIN alarms a ON c.car = a.car AND {same.format("c", "a")}
              JOIN orders o ON a.car = o.car AND {same.format("a", "o")}
              WHERE c.lane = 1 GROUP BY window_start, o.city"""
    columns = {"cameras": ("car", "lane"), "alarms": ("car",), "orders": ("car", "city")}
    streams = {
        name: {**stream, "columns": {column: {"distinct": 40} for column in columns[name]}}
        for name, stream in EVERYTHING["streams"].items()
    }
    query = {"id": "q", "sql": sql, "requires": "region in [eu] and gpu >= 1", "tuple_bytes": 1000, "sink": "paris"}
    document = {**EVERYTHING, "streams": streams, "queries": [query]}
    scenario = load(write_scenario(tmp_path, document), {"objective": objective})
    problem = scenario.problem
    plan = optimize(problem, scenario.options)
    check(problem, plan)
    assert hosts(problem, plan) <= {"berlin", "oslo"}
    figures = evaluate(problem, plan, bound=lower_bound)
    assert figures.gap is not None
    assert -1e-6 <= figures.gap < 0.1
    assert figures.metrics["energy"] > 0


@settings(max_examples=12, derandomize=True, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["latency", "network"]))
def test_whole_joins_are_near_the_integer_optimum_of_all_bounds(seed: int, objective: Any) -> None:
    """Requirements, a link, memory and a metric at once on twelve nodes, each join on one host: by HiGHS' optimum."""
    problem = draw(12, level=2, seed=seed, load=0.2)
    dice = np.random.default_rng(seed)
    n = len(problem.nodes)
    labels = {"zone": pa.array(dice.integers(0, 2, n)), "memory": pa.array(dice.uniform(0.05, 0.3, n))}
    query = replace(problem.queries[0], requires=parse("zone >= 0"), tuple_bytes=1000.0)
    asked = replace(
        problem,
        nodes=replace(problem.nodes, labels=labels),
        queries=(query,),
        metrics=(Metric("energy", 0.02, dice.uniform(0, 5, n)),),
        links=(Link("zone", "0", "1", float(problem.sources.rate.sum()) * dice.uniform(0.1, 0.5)),),
    )
    options = Options(objective=objective, waiting=0, max_replicas=1, partition="grid")
    try:
        plan = optimize(asked, options)
    except Infeasible:
        return  # whether anything fits is a matter of luck here; what is found must hold
    check(asked, plan)
    least = integer_optimum(asked, plan, options)
    assert evaluate(asked, plan).cost_ms <= 1.1 * least


def integer_optimum(problem: Problem, plan: Any, options: Options) -> float:
    joins, n = plan.joins, len(problem.nodes)
    rows, nodes = np.arange(len(joins)), np.arange(n, dtype=np.int32)
    prices = Prices.of(problem, joins, options)
    assert prices is not None
    cost = prices.cost(rows[:, None], nodes, LegLengths(plan.space).of(joins, rows, nodes))
    made, ends = made_by(problem, joins), ends_of(problem)
    take, hold = np.zeros((n, len(joins) * n)), np.zeros((n, len(joins) * n))
    cross, whole = np.zeros((len(problem.links), len(joins) * n)), np.zeros((len(joins), len(joins) * n))
    for j in rows.tolist():
        sent = sent_from(joins, j, ends, made)
        for h in range(n):
            x = j * n + h
            take[h, x], whole[j, x], cross[:, x] = joins.demand[j], 1.0, sent[:, h]
            hold[h, x] = joins.demand[j] * 1000.0 * problem.queries[0].window_ms / 1000.0
    found = milp(
        cost.ravel(),
        constraints=[
            LinearConstraint(whole, 1, 1),
            LinearConstraint(take, -np.inf, np.minimum(problem.nodes.room, 1e12)),
            LinearConstraint(hold, -np.inf, problem.nodes.memory),
            LinearConstraint(cross, -np.inf, np.array([link.budget for link in problem.links])),
        ],
        integrality=np.ones(len(joins) * n),
        bounds=(0, 1),
    )
    assert found.success
    return float(found.fun)
