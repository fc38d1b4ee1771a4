"""docs/reference/events.md: its examples are right, and there is one for each kind."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from builders import invoke, invoke_json
from nova.controller.codec import change_from_json, change_to_json, parse_steps
from nova.controller.events import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"


def blocks() -> list[list[str]]:
    return [block.strip().splitlines() for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def test_every_event_has_an_example_that_runs_on_the_demo(tmp_path: Path) -> None:
    lines = blocks()[0]
    steps = list(parse_steps(lines, "docs/reference/events.md"))
    assert {event.kind for step in steps for event in step.events} == set(KINDS)
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join(lines))
    assert invoke("init", tmp_path / "demo").exit_code == 0
    scenario, plan = tmp_path / "demo" / "scenario.yaml", tmp_path / "plan"
    assert invoke("plan", scenario, "-o", plan).exit_code == 0
    told = invoke_json("reoptimize", scenario, plan, "--events", events, "-o", tmp_path / "plan2")
    assert len(told["steps"]) == len(lines)
    assert told["waiting"] == []
    assert invoke("evaluate", told["scenario"], tmp_path / "plan2").exit_code == 0


@pytest.mark.parametrize("line", blocks()[1])
def test_every_change_has_an_example_that_is_read_and_written_alike(line: str) -> None:
    document = json.loads(line)
    assert json.loads(json.dumps(change_to_json(change_from_json(document)))) == document


def test_there_is_an_example_for_each_kind_of_change() -> None:
    assert [json.loads(line)["change"] for line in blocks()[1]] == ["deploy", "undeploy", "move", "repartition"]
