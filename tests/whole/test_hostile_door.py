"""What no id may have is refused where it comes in, with file, row, field and value."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from builders import SMALL, invoke, write_events, write_scenario
from hostile_names import REFUSED
from nova.model.errors import InvalidInput
from nova.model.ids import has_control, printable
from nova.scenario import load


@pytest.mark.parametrize("name", REFUSED)
def test_node_and_source_ids(name: str, tmp_path: Path) -> None:
    document = copy.deepcopy(SMALL)
    document["nodes"][0]["id"] = name
    document["streams"]["humidity"]["sources"][1]["id"] = name
    with pytest.raises(InvalidInput) as refused:
        load(write_scenario(tmp_path, document))
    found = {(fault.row, fault.field, fault.value) for fault in refused.value.faults if "control" in fault.message}
    assert found == {(1, "id", name), (2, "id", name)}
    assert "\n" not in str(refused.value).replace("\n" + str(tmp_path), "")
    assert not has_control(str(refused.value).replace("\n", ""))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_query_and_stream_names(name: str, ending: str, tmp_path: Path) -> None:
    document = copy.deepcopy(SMALL)
    document["queries"][0]["id"] = name
    document["streams"][name] = document["streams"]["humidity"]
    path = write_scenario(tmp_path, document)
    if ending == "json":
        path = tmp_path / "scenario.json"
        path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput) as refused:
        load(path)
    assert {fault.field for fault in refused.value.faults} >= {"queries.0.id"}
    assert len(refused.value.faults) == 2


@pytest.mark.parametrize("name", REFUSED)
def test_csv_ids(name: str, tmp_path: Path) -> None:
    if "\x00" in name:
        return  # not text for a CSV reader either
    nodes = [["id", "capacity", "x"], ["a", 1, 0], [name, 1, 1]]
    with pytest.raises(InvalidInput, match=r"nodes\.csv, row 3, field id: an id has no line breaks"):
        load(write_scenario(tmp_path, {**SMALL, "nodes": "nodes.csv"}, nodes=nodes))


@pytest.mark.parametrize("name", REFUSED)
def test_ids_that_events_bring(name: str, tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path / "s")
    assert invoke("plan", scenario, "-o", tmp_path / "plan").exit_code == 0
    for event, field in (
        ({"event": "node_added", "node": name, "capacity": 1, "coordinates": [0, 0]}, "node"),
        ({"event": "source_added", "stream": "humidity", "source": name, "node": "fog", "rate": 1}, "source"),
        ({"event": "query_added", "query": name, "left": "pressure", "right": "humidity", "sink": "hq"}, "query"),
    ):
        told = invoke(
            "reoptimize", scenario, tmp_path / "plan", "-e", write_events(tmp_path, event), "-o", tmp_path / "p2"
        )
        assert told.exit_code == 2, told.output
        assert f"row 1, field {field}: an id has no line breaks" in told.stderr


def test_messages_hold_no_control_characters() -> None:
    assert printable("a\x1b[31m\u202e") == "a\\x1b[31m\\u202e"
    assert printable("naïve 数据") == "naïve 数据"
