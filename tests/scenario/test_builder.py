"""Model: a scenario in Python says what a file says."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import nova
from builders import SMALL
from nova.scenario import load


def model(**query: Any) -> nova.Model:
    made = nova.Model()
    for node in SMALL["nodes"]:
        made.add_node(**node)
    for name, stream in SMALL["streams"].items():
        made.add_stream(name, stream["sources"])
    return made.add_query("climate", sink="hq", **query) if query else made


def test_a_query_in_short_and_in_sql() -> None:
    short = model(left="pressure", right="humidity", on=("region",), window=2000).scenario()
    assert short.problem.queries[0].window_ms == 2000.0
    assert short.digest == model(left="pressure", right="humidity", on="region", window="2s").scenario().digest
    text = (
        "SELECT pressure.value FROM pressure JOIN humidity ON pressure.region = humidity.region"
        " AND TUMBLE(pressure.time, INTERVAL '2' SECOND) = TUMBLE(humidity.time, INTERVAL '2' SECOND)"
    )
    assert model(sql=text).scenario().problem.queries[0].window_ms == 2000.0
    with pytest.raises(nova.InvalidInput):  # the two forms exclude each other
        model(sql=text, left="pressure").scenario()


def test_other_fields_of_a_query_are_handed_on() -> None:
    made = model(left="pressure", right="humidity", requires="kind = fog")
    assert made.to_dict()["queries"][0]["requires"] == "kind = fog"


def test_rows_and_tables_make_one_table_with_all_columns() -> None:
    made = nova.Model().add_node("a", capacity="60/s").add_node("b", 60)
    made.add_nodes(pd.DataFrame({"id": ["c"], "capacity": [5.5], "rack": ["r1"]}))
    nodes = made.to_dict()["nodes"]
    assert isinstance(nodes, pa.Table)
    assert nodes.to_pydict() == {"id": ["a", "b", "c"], "capacity": ["60/s", "60", "5.5"], "rack": [None, None, "r1"]}


def test_nothing_is_checked_before_it_is_used_and_then_everything_is() -> None:
    made = nova.Model().add_node("a", capacity=-1).add_stream("s", [{"id": "x", "node": "nowhere", "rate": 1}])
    made.add_query("q", left="s", right="t", sink="z")
    with pytest.raises(nova.InvalidInput) as error:
        nova.optimize(made)
    fields = {fault.field for fault in error.value.faults}
    assert {"capacity", "node", "queries.0.right", "queries.0.sink"} <= fields


def test_a_model_can_be_used_twice_and_grow_in_between() -> None:
    made = model(left="pressure", right="humidity", on="region")
    before = made.scenario().digest
    assert made.scenario().digest == before == load(dict(SMALL)).digest
    made.add_node("more", capacity=10, x=1, y=1)
    assert len(made.scenario().problem.nodes) == 6
