"""nova init and nova schema: where a newcomer starts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from builders import SMALL, invoke, invoke_json, write_files
from nova.model.options import Options
from nova.scenario import load
from nova.scenario.document import read


def test_writes_a_scenario_that_is_in_order(tmp_path: Path) -> None:
    result = invoke("init", tmp_path / "demo")
    assert result.exit_code == 0
    scenario = load(tmp_path / "demo" / "scenario.yaml")
    assert scenario.warnings == ()
    assert len(scenario.problem.nodes) == 12
    assert scenario.problem.streams == ("pressure", "humidity")
    assert "nova plan" in result.stdout


def test_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "rtt.csv").write_text("mine")
    result = invoke("init", tmp_path)
    assert result.exit_code == 2
    assert "rtt.csv: is there already" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rtt.csv"]
    assert (tmp_path / "rtt.csv").read_text() == "mine"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    assert invoke("init", tmp_path / "demo").exit_code == 2


def test_json(tmp_path: Path) -> None:
    printed = invoke_json("init", tmp_path)
    assert printed["scenario"] == str(tmp_path / "scenario.yaml")
    assert len(printed["written"]) == 5


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    content = json.loads(invoke("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def test_the_schema_accepts_good_scenarios(tmp_path: Path, schema: jsonschema.Draft202012Validator) -> None:
    invoke("init", tmp_path)
    schema.validate(read(tmp_path / "scenario.yaml"))
    schema.validate(read(write_files(tmp_path / "files")))
    schema.validate(SMALL)
    options = Options().as_dict()
    schema.validate(SMALL | {"options": options})
    schema.validate(SMALL | {"options": {"c_min": "5 kHz"}})


@pytest.mark.parametrize(
    "change",
    [
        {"nova": 2},
        {"nodes": 3},
        {"nodse": "nodes.csv"},
        {"streams": {}},
        {"queries": []},
        {"queries": [{"id": "q", "left": "a", "right": "b"}]},
        {"queries": [{"id": "q", "left": "a", "right": "b", "sink": "c", "window": {"tumbling": 5}}]},
        {"options": {"sigma": 2}},
        {"options": {"partition": "grd"}},
        {"options": {"sede": 1}},
        {"streams": {"a": {"sources": "a.csv", "input": {"path": "x"}}}},
    ],
)
def test_the_schema_refuses_bad_scenarios(change: dict[str, object], schema: jsonschema.Draft202012Validator) -> None:
    assert not schema.is_valid(SMALL | change)


def test_every_option_is_described(schema: jsonschema.Draft202012Validator) -> None:
    described = schema.schema["$defs"]["Options"]["properties"]
    assert set(described) == set(Options().as_dict())
    assert all(option["description"] for option in described.values())
