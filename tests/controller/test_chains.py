"""Joins of several streams under events: the joins of a query follow each other, within all bounds, and only what an
event affects moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import market
from builders import write_scenario
from nova import optimizer
from nova.controller import Controller, events
from nova.controller.events import Event
from nova.controller.events.queries import planned_shares
from nova.controller.export import export, inputs_of
from nova.journal.snapshot import freeze, read
from nova.model.errors import InvalidInput
from nova.model.plan import read as read_plan
from nova.model.problem import Problem
from nova.placement.check import check
from nova.placement.resolve import resolve
from nova.scenario import Scenario, load

SAME = "TUMBLE({0}.at, INTERVAL '2' SECOND) = TUMBLE({1}.at, INTERVAL '2' SECOND)"
FOUR = f"""SELECT window_start, p.city, count(*) AS n
    FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME.format("b", "a")}
    JOIN people p ON a.seller = p.id AND {SAME.format("p", "b")}
    JOIN visits v ON v.visitor = p.id AND {SAME.format("v", "p")}
    WHERE b.value > 3 GROUP BY window_start, p.city"""
THREE = """SELECT b.bidder, a.category, p.city FROM bids b
    JOIN auctions a ON b.auction = a.id AND b.at BETWEEN a.at - INTERVAL '1' SECOND AND a.at + INTERVAL '2' SECOND
    JOIN people p ON b.bidder = p.id AND p.at >= b.at AND p.at <= b.at + INTERVAL '1500' MILLISECOND"""


def scenario(folder: Path, queries: dict[str, str], links: list[dict[str, Any]] | None = None, **more: Any) -> Scenario:
    document = market.document(queries, **more)
    for node in document["nodes"]:
        node["zone"] = "out" if node["id"] == "edge2" else "in"
    return load(write_scenario(folder, document | ({"links": links} if links else {})))


def running(folder: Path, queries: dict[str, str], **more: Any) -> tuple[Scenario, Controller]:
    loaded = scenario(folder, queries, **more)
    return loaded, Controller.from_plan(loaded.problem, optimizer.optimize(loaded.problem, loaded.options))


def holds(controller: Controller) -> None:
    """The plan is whole and within bounds, what joins make has the rate that comes of what they read, and nothing runs
    that reads what is not made."""
    problem, plan = controller.problem(), controller.plan()
    check(problem, plan)
    joins, rate = plan.joins, problem.sources.rate
    names, state = controller.state.names, controller.state
    for number, query in enumerate(problem.queries):
        if query.makes is not None:
            mine = joins.query == number
            yields = names.rule(names.query_rows[query.id]).yields
            made = rate[joins.makes[mine]]
            assert np.allclose(made, yields * joins.left_rate[mine] * joins.right_rate[mine], rtol=1e-9)
            assert len(made) == len(problem.sources_of(query.makes))
    assert len(joins) == len(np.unique(plan.replicas.join))
    alive = np.flatnonzero(state.replicas["next"] != -2)  # GONE
    used = np.zeros(state.nodes.end)
    np.add.at(used, state.replicas["node"][alive], state.replicas["charge"][alive])
    assert np.allclose(used, state.nodes["used"][: state.nodes.end], atol=1e-6)


def draw(rng: np.random.Generator, controller: Controller, number: int) -> Event:
    """Some event that is possible now."""
    names = controller.state.names
    hosts = [name for name in names.node_rows if name not in ("hq", "edge1", "edge3")]
    streams = [row for row in range(4) if names.source_rows[row]]
    stream = int(rng.choice(streams))
    source = str(rng.choice(list(names.source_rows[stream])))
    at = (float(rng.uniform(0, 12)), float(rng.uniform(0, 12)))
    match int(rng.integers(8)):
        case 0 if len(hosts) > 1:
            return events.NodeRemoved(node=str(rng.choice(hosts)))
        case 1:
            return events.RateChanged(
                stream=names.streams[stream], source=source, rate=float(rng.choice([0, 2, 9, 40]))
            )
        case 2:
            return events.CapacityChanged(
                node=str(rng.choice(list(names.node_rows))), capacity=float(rng.uniform(5, 900))
            )
        case 3:
            node = str(rng.choice(list(names.node_rows)))
            return events.SourceAdded(stream=names.streams[stream], source=f"n{number}", node=node, rate=4.0)
        case 4 if len(names.source_rows[stream]) > 1:
            return events.SourceRemoved(stream=names.streams[stream], source=source)
        case 5:
            return events.NodeMoved(node=str(rng.choice(list(names.node_rows))), coordinates=at)
        case 6:
            return events.SinkMoved(
                query=str(rng.choice(["four", "three"])), sink="edge1" if rng.random() < 0.5 else "hq"
            )
        case _:
            return events.NodeAdded(node=f"new{number}", capacity=300.0, coordinates=at, labels={"zone": "in"})


@pytest.mark.parametrize("seed", [1, 2])
def test_any_events_keep_plans_whole_and_within_bounds(tmp_path: Path, seed: int) -> None:
    links = [{"label": "zone", "from": "out", "to": "in", "budget": 150}]
    more = {"requires": "zone = in"} if seed == 2 else {}
    _, controller = running(tmp_path, {"four": FOUR, "three": THREE}, links=links if seed == 2 else None, **more)
    rng = np.random.default_rng(seed)
    for number in range(30):
        controller.handle(draw(rng, controller, number))
        holds(controller)
    content = b"".join(bytes(part) for part in freeze(3, b"x" * 16, {"controller": controller}))
    file = tmp_path / "snapshot-00000000000000000003.nova"
    file.write_bytes(content)
    thawed = read(file, b"x" * 16)["controller"]
    for number in range(30, 34):
        event = draw(rng, controller, number)
        assert controller.handle(event) == thawed.handle(event)


def test_only_the_affected_tree_moves(tmp_path: Path) -> None:
    """A lost host moves what ran there, and nothing of the query whose joins run elsewhere."""
    document = market.document({"four": FOUR, "three": THREE})
    for node in document["nodes"]:
        node["zone"] = "one" if node["id"] in ("fog", "edge1") else "other"
    document["queries"][0]["requires"], document["queries"][1]["requires"] = "zone = one", "zone = other"
    loaded = load(write_scenario(tmp_path, document))
    controller = Controller.from_plan(loaded.problem, optimizer.optimize(loaded.problem, loaded.options))
    changes = controller.handle(events.CapacityChanged(node="fog", hosts=False))
    assert {change.query.split(".")[0] for change in changes} == {"four"}
    holds(controller)
    assert controller.waiting_list() == []


def test_what_reads_from_what_waits_waits_too(tmp_path: Path) -> None:
    _, controller = running(tmp_path, {"three": THREE})
    shrunk = [events.CapacityChanged(node=f"edge{k}", capacity=0.0) for k in (1, 2, 3)]
    changes = controller.handle([*shrunk, events.CapacityChanged(node="fog", capacity=5.0)])
    assert changes
    assert len(controller.waiting_list()) == controller.state.joins.end
    controller.handle(events.CapacityChanged(node="fog", capacity=2000.0))
    assert controller.waiting_list() == []
    holds(controller)


def test_a_written_scenario_joins_in_the_same_order(tmp_path: Path) -> None:
    """Rates after which another order would be chosen: the plan is still for the written scenario."""
    loaded, controller = running(tmp_path, {"three": THREE})
    for source in ("b1", "b2"):
        controller.handle(events.RateChanged(stream="bids", source=source, rate=0.1))
    for source in ("p1", "p2"):
        controller.handle(events.RateChanged(stream="people", source=source, rate=90.0))
    problem, plan, file = export(controller, tmp_path / "out", inputs_of(loaded))
    assert file is not None
    back = load(file)
    plan.write(tmp_path / "plan", problem)
    again = read_plan(tmp_path / "plan", back.problem, resolve(back.problem))
    check(back.problem, again)
    assert again.digest == back.digest
    assert np.allclose(sorted(back.problem.sources.rate), sorted(problem.sources.rate))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (events.RateChanged(stream="three.1", source="a1 ⋈ b1", rate=1.0), "this is what three.1 makes"),
        (events.SourceRemoved(stream="three.1", source="a1 ⋈ b1"), "this is what three.1 makes"),
        (events.SinkMoved(query="three.1", sink="edge1"), "one of the joins of query 'three'"),
        (events.QueryRemoved(query="three.1"), "one of the joins of query 'three'"),
        (events.PairWithdrawn(query="three", left="a1 ⋈ b1", right="p1"), "more than two streams"),
        (events.QueryAdded(query="x", left="three.1", right="people", sink="hq"), "what one join makes for another"),
        (
            events.SourceAdded(stream="bids", source="b9", node="edge1", rate=1.0, partners={"three.1": ("a1",)}),
            "partners cannot be listed",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, event: Event, told: str) -> None:
    _, controller = running(tmp_path, {"three": THREE})
    with pytest.raises(InvalidInput, match=told):
        controller.handle(event)
    assert controller.handle(events.RateChanged(stream="bids", source="b1", rate=3.0)) is not None


def test_a_query_goes_with_all_its_joins(tmp_path: Path) -> None:
    _, controller = running(tmp_path, {"three": THREE, "four": FOUR})
    gone = controller.handle(events.QueryRemoved(query="four"))
    assert {change.query for change in gone} == {"four", "four.1", "four.2"}
    assert [query.id for query in controller.problem().queries] == ["three.1", "three"]
    holds(controller)


def test_each_join_goes_by_what_a_run_has_measured_of_it(tmp_path: Path) -> None:
    loaded, controller = running(tmp_path / "s", {"q": FOUR})

    def made(problem: Problem) -> dict[str, float]:
        rate = problem.sources.rate
        return {one.id: float(rate[problem.sources_of(one.makes)].sum()) for one in problem.queries if one.makes}

    before, planned = made(loaded.problem), planned_shares(controller.state.names, "q")
    measured = {"join.1": planned["join.1"] / 2, "join.3": planned["join.3"] / 4}
    controller.handle(events.SelectivityMeasured(query="q", selectivity=measured))
    holds(controller)
    after = made(controller.problem())
    assert after["q.1"] == pytest.approx(before["q.1"] / 2)
    outputs = [one.queries[-1].output for one in (loaded.problem, controller.problem())]
    assert outputs[1].share.value == pytest.approx(outputs[0].share.value / 4)
    written, _, file = export(controller, tmp_path / "out", inputs_of(loaded))
    assert file is not None
    again = load(file).problem
    assert made(again) == pytest.approx(after)
    assert again.queries[-1].pipeline == written.queries[-1].pipeline
    with pytest.raises(InvalidInput, match=r"selectivity\.join: nothing that the plan .* there are .*join\.1, join\.2"):
        controller.handle(events.SelectivityMeasured(query="q", selectivity={"join": 0.5}))


def test_joins_have_numbers_in_an_order_that_is_stated(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="state the `order` as well"):
        scenario(tmp_path / "a", {"q": THREE}, selectivity={"join.1": 0.5})
    with pytest.raises(InvalidInput, match="no such part of the query"):
        scenario(tmp_path / "b", {"q": THREE}, selectivity={"join.3": 0.5}, order=[["b", "a"], "p"])
    loaded = scenario(tmp_path / "c", {"q": THREE}, selectivity={"join.1": 0.5}, order=[["b", "a"], "p"])
    joins = [one for one in loaded.graphs[0].operators if one.kind == "join"]
    assert [one.rate.origin for one in joins] == ["stated", "estimated"]
    made = loaded.problem.sources_of(loaded.problem.queries[0].makes or -1)
    assert joins[0].rate.value == pytest.approx(loaded.problem.sources.rate[made].sum())
