from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import write_scenario
from nova import optimizer
from nova.controller import CapacityChanged, Controller, Event, NodeAdded, NodeMoved, NodeRemoved, RateChanged
from nova.controller.changes import Part
from nova.controller.codec import change_to_json
from nova.model.errors import InvalidInput
from nova.placement.check import broken_joins
from nova.scenario import Scenario, load
from nova.spark.replan import changes


def rows(plan: object, scenario: Scenario) -> list[tuple[object, ...]]:
    table = plan.table(scenario.problem).drop_columns(["left_rate", "right_rate"])  # type: ignore[attr-defined]
    return sorted(tuple(row.values()) for row in table.to_pylist())


EVENTS: list[Event] = [
    NodeRemoved(node="fog"),
    CapacityChanged(node="edge1", capacity=20),
    CapacityChanged(node="edge2", capacity=10),
    RateChanged(stream="pressure", source="p1", rate=40.0),
    NodeMoved(node="cloud", coordinates=(9.0, 9.0)),
    CapacityChanged(node="fog", capacity=45),
    CapacityChanged(node="fog", hosts=False),
]


@given(picked=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=4, unique=True))
@settings(max_examples=25)
def test_what_re_optimization_prints_leads_to_its_plan(
    tmp_path_factory: pytest.TempPathFactory, picked: list[Event]
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    scenario = load(write_scenario(folder))
    plan = optimizer.optimize(scenario.problem, scenario.options)
    controller = Controller.from_plan(scenario.problem, plan)
    lines = []
    for event in picked:
        try:
            lines += [json.dumps(change_to_json(change)) for change in controller.handle(event)]
        except InvalidInput:
            continue  # such as a node that is gone already
    (folder / "changes.jsonl").write_text("\n".join(lines))
    for group in changes.read(folder / "changes.jsonl"):
        plan = changes.apply(scenario.problem, plan, group, "changes.jsonl")
    wanted = controller.plan()
    table = wanted.table(controller.problem()).drop_columns(["left_rate", "right_rate"])
    assert rows(plan, scenario) == sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return load(write_scenario(tmp_path / "s"))


def change(kind: str, **fields: object) -> dict[str, object]:
    return {
        "change": kind,
        "query": "climate",
        "left": "p1",
        "right": "h1",
        "from_window": None,
        "from_ms": None,
        "reason": "test",
        **fields,
    }


WHOLE = [0.0, 1.0] * 4


def test_all_forms_that_are_printed_are_read(tmp_path: Path) -> None:
    one, two = change("deploy", node="fog", shares=WHOLE), change("undeploy", node="fog", shares=WHOLE, from_ms=5.0)
    for text in (
        json.dumps([one, two]),
        f"{json.dumps(one)}\n\n{json.dumps(two)}\n",
        json.dumps({"plan": "x", "steps": [{"line": 1, "changes": [one]}, {"line": 2, "changes": [two]}]}),
        f"{json.dumps({'line': 1, 'changes': [one]})}\n{json.dumps({'line': 2, 'changes': [two]})}\n"
        + json.dumps({"steps": 2, "sequence": 2}),
    ):
        (tmp_path / "c.jsonl").write_text(text)
        first, second = changes.read(tmp_path / "c.jsonl")
        whole = Part("fog", tuple(WHOLE))
        assert [one.starts for _, one in first] == [(whole,)]
        assert [(one.stops, one.from_ms) for _, one in second] == [((whole,), 5.0)]


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, scenario: Scenario) -> None:
    file = tmp_path / "c.jsonl"
    for text, message in (
        ("{", "not JSON"),
        ('"x"', "a change is a JSON object"),
        (json.dumps(change("grow")), r"row 2, field change: no such change.*found 'grow'"),
        (
            json.dumps(change("deploy", node="fog", shares=[0, 1])),
            r"row 2, field shares: 8 numbers expected.*found \[0, 1\]",
        ),
        (json.dumps(change("deploy", shares=WHOLE)), "row 2, field node: missing"),
    ):
        file.write_text("\n" + text)
        with pytest.raises(InvalidInput, match=message):
            changes.read(file)
    plan = optimizer.optimize(scenario.problem, scenario.options)
    half = [0.0, 1.0, 0.0, 1.0, 0.0, 0.5]
    for wrong, message in (
        (change("deploy", node="fog", shares=WHOLE, right="h2"), "no such sub-join"),
        (change("move", node="mars", from_node="fog", shares=WHOLE), "no such node"),
        (change("undeploy", node="fog", shares=half), "no such replica runs on fog"),
        (change("deploy", node="cloud", shares=half), "have a hole or overlap"),
        (
            change("repartition", before=[{"node": "fog", "shares": WHOLE}], after=[{"node": "cloud", "shares": half}]),
            "row 2.*have a hole or overlap",
        ),
    ):
        file.write_text("\n" + json.dumps(wrong))
        (group,) = changes.read(file)
        with pytest.raises(InvalidInput, match=message):
            changes.apply(scenario.problem, plan, group, str(file))
    file.write_text(json.dumps(change("move", node="cloud", from_node="fog", shares=WHOLE)))
    moved = changes.apply(scenario.problem, plan, changes.read(file)[0], str(file))
    assert not len(broken_joins(moved.replicas, len(moved.joins)))
    assert np.count_nonzero(moved.replicas.node != plan.replicas.node) == 1


def test_a_newcomer_is_told_as_unknown(tmp_path: Path, scenario: Scenario) -> None:
    """Changes name nodes by their ids; a run knows those of its scenario."""
    plan = optimizer.optimize(scenario.problem, scenario.options)
    controller = Controller.from_plan(scenario.problem, plan)
    controller.handle(NodeAdded(node="fog2", capacity=500, coordinates=(8.0, 8.1)))
    made = controller.handle(NodeRemoved(node="fog"))
    (tmp_path / "c.jsonl").write_text("\n".join(json.dumps(change_to_json(one)) for one in made))
    (group,) = changes.read(tmp_path / "c.jsonl")
    with pytest.raises(InvalidInput, match=r"no such node in the scenario \(found 'fog2'\)"):
        changes.apply(scenario.problem, plan, group, "c.jsonl")
