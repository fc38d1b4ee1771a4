"""Queries in SQL in a scenario: what the problem holds, what is told when they are wrong, what events do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import auctions
from builders import SMALL, invoke_json, write_scenario
from nova.controller import Controller
from nova.controller.events import RateChanged, SelectivityMeasured, SourceAdded, SourceRemoved
from nova.controller.export import export
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Key
from nova.model.rates import result_rates
from nova.optimizer import optimize
from nova.scenario import load
from nova.scenario.writer import write

SAME = "TUMBLE(b.time, INTERVAL '2' SECOND) = TUMBLE(a.time, INTERVAL '2' SECOND)"
OTHER = SAME.replace("b.", "c.")
FILTERED = f"SELECT b.value FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME} WHERE b.value > 3"


def scenario(folder: Path, sql: str, **query: Any) -> Path:
    document = auctions.document(sql, **query)
    for name, columns in (("bids", ["auction", "bidder"]), ("auctions", ["id", "category"])):
        document["streams"][name] |= {"columns": dict.fromkeys(columns)}
    return write_scenario(folder, document)


def test_a_filter_lowers_the_rate_where_the_tuples_are_born(tmp_path: Path) -> None:
    problem = load(scenario(tmp_path, FILTERED, selectivity={"b": 0.25})).problem
    assert problem.streams == ("bids", "auctions", "q.b")
    joins = optimize(problem).joins
    np.testing.assert_allclose(joins.left_rate, 300 * 0.25)
    np.testing.assert_allclose(joins.right_rate, 100)
    assert problem.queries[0].pipeline.left.where == "(`value` > 3)"
    assert problem.queries[0].pipeline.left.columns == ()


def test_an_attribute_of_the_sources_makes_the_join_matrix(tmp_path: Path) -> None:
    sql = (
        "SELECT p.value, h.value AS humidity FROM pressure p JOIN humidity h ON p.region = h.region "
        "AND TUMBLE(p.time, INTERVAL '1' SECOND) = TUMBLE(h.time, INTERVAL '1' SECOND)"
    )
    short, long = (
        load(write_scenario(tmp_path / "a")),
        load(write_scenario(tmp_path / "b", {**SMALL, "queries": [{"id": "climate", "sql": sql, "sink": "hq"}]})),
    )
    assert optimize(short.problem).joins.left.tolist() == optimize(long.problem).joins.left.tolist()
    assert short.problem.queries[0].window_ms == long.problem.queries[0].window_ms
    assert [one.kind for one in short.graphs[0].operators] == [one.kind for one in long.graphs[0].operators]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            {"sql": "SELECT b.prize\nFROM bids b"},
            "line 1, column 8 at 'b': no such column; there are source, time, value",
        ),
        ({"sql": FILTERED, "left": "bids"}, "`sql` says it all: left cannot stand beside it"),
        ({"left": "bids"}, "right missing: give left and right, or `sql`"),
        (
            {"sql": FILTERED.replace("JOIN", "LEFT JOIN").replace(" WHERE", f" JOIN bids c ON {OTHER} WHERE")},
            "at 'LEFT': of several joins, the last one may be an outer join",
        ),
        ({"sql": FILTERED, "selectivity": {"c": 0.5}}, "no such part of the query"),
    ],
)
def test_what_is_wrong_with_a_query_is_told(tmp_path: Path, query: dict[str, Any], told: str) -> None:
    path = scenario(tmp_path, FILTERED)
    document = auctions.document(FILTERED)
    for name, columns in (("bids", ["auction", "bidder"]), ("auctions", ["id", "category"])):
        document["streams"][name] |= {"columns": dict.fromkeys(columns)}
    document["queries"] = [{"id": "q", "sink": "hq", **query}]
    path = write_scenario(tmp_path / "wrong", document)
    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert told in str(caught.value)


def test_columns_are_read_from_the_input(tmp_path: Path) -> None:
    path = auctions.scenario(tmp_path, FILTERED.replace("b.value", "b.vallue"), *auctions.tables(30))
    with pytest.raises(InvalidInput, match="there are source, time, value, auction, bidder"):
        load(path)


def test_explaining_a_query_needs_no_plan(tmp_path: Path) -> None:
    text = FILTERED.replace("JOIN", "FULL JOIN").replace(" WHERE", f" JOIN bids c ON {OTHER} WHERE")
    told = invoke_json("plan", scenario(tmp_path, text), "--explain-query")
    (query,) = told["queries"]
    assert not query["planned"]
    assert [one["kind"] for one in query["operators"]][-3:] == ["filter", "project", "sink"]
    assert query["ideal_cost"] > 0
    rates = {one["text"]: (one["tuples_per_s"], one["origin"]) for one in query["operators"]}
    assert rates["bids AS b"] == (600.0, "given")


def test_events_on_a_stream_reach_what_queries_make_of_it(tmp_path: Path) -> None:
    """A rate is that of the stream; the filtered stream gets its share. Written out and read again, it is the same."""
    problem = load(scenario(tmp_path / "s", FILTERED, selectivity={"b": 0.25})).problem
    running = Controller.from_plan(problem, optimize(problem))
    running.handle(RateChanged(stream="bids", source="b1", rate=400.0))
    running.handle(SourceAdded(stream="bids", source="b3", node="fog", rate=80.0))
    running.handle(SourceRemoved(stream="bids", source="b2"))
    written, plan, _ = export(
        running, tmp_path / "out", {"bids": {"format": "generator"}, "auctions": {"format": "generator"}}
    )
    assert sorted(set(zip(plan.joins.left_rate.tolist(), plan.joins.right_rate.tolist(), strict=True))) == [
        (20.0, 100.0),
        (100.0, 100.0),
    ]
    again = load(tmp_path / "out" / "scenario.yaml").problem
    assert again.digest == plan.digest
    assert again.queries[0].pipeline == written.queries[0].pipeline


def test_an_equality_of_tuples_is_a_key_that_the_join_divides_by(tmp_path: Path) -> None:
    """Its values tell how many pairs match: of a thousand, one in a thousand; a tenth where nobody knows."""
    document = auctions.document(FILTERED, selectivity={"b": 0.25})
    document["streams"]["bids"]["columns"] = {"auction": {"distinct": 1000}, "bidder": None}
    document["streams"]["auctions"]["columns"] = {"id": None, "category": None}
    problem = load(write_scenario(tmp_path / "a", document)).problem
    (query,) = problem.queries
    assert query.key == Key(("_key0",), 1000)
    assert query.output is not None
    assert (query.output.share.value, query.output.share.origin) == (0.001, "estimated")
    plan = optimize(problem, Options(partition="key"))
    np.testing.assert_allclose(result_rates(problem, plan.joins), 75 * 100 * 2 * 0.001)
    file = write(tmp_path / "b", problem, Options())
    assert file is not None
    assert load(file).problem.digest == problem.digest
    guessed = load(scenario(tmp_path / "c", FILTERED)).problem.queries[0]
    assert guessed.key == Key(("_key0",))
    assert guessed.output is not None
    assert guessed.output.share.value == 0.1
    said = load(scenario(tmp_path / "d", FILTERED, selectivity={"join": 0.02})).problem.queries[0]
    assert said.output is not None
    assert (said.output.share.value, said.output.share.origin) == (0.02, "stated")


def test_an_interval_counts_the_pairs_within_it_and_groups_no_more_than_there_are(tmp_path: Path) -> None:
    """Bids up to 5 s after their auction: in windows of 5 s, auctions are copied into two, and half of the pairs that
    meet lie within the interval."""
    sql = (
        "SELECT b.value FROM bids b JOIN auctions a ON b.auction = a.id "
        "AND b.time BETWEEN a.time AND a.time + INTERVAL '5' SECOND"
    )
    query = load(scenario(tmp_path / "a", sql, selectivity={"join": 0.02})).problem.queries[0]
    assert query.output is not None
    assert query.output.share.value == pytest.approx(0.01)
    grouped = (
        f"SELECT window_start, a.category, count(*) AS n FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME} "
    )
    grouped += "GROUP BY window_start, a.category"
    query = load(scenario(tmp_path / "b", grouped, selectivity={"group": 10})).problem.queries[0]
    assert query.output is not None
    assert query.output.most == pytest.approx(5.0)  # ten groups in two seconds


def test_what_a_run_measured_changes_rates_and_is_called_measured(tmp_path: Path) -> None:
    """Fed back as an event: the filtered stream's rate follows, results too; and the written scenario says it."""
    problem = load(scenario(tmp_path / "s", FILTERED)).problem
    estimated = problem.queries[0].output
    assert estimated is not None
    running = Controller.from_plan(problem, optimize(problem))
    running.handle(SelectivityMeasured(query="q", selectivity={"b": 0.5, "join": estimated.share.value / 4}))
    running.handle(RateChanged(stream="bids", source="b1", rate=400.0))
    inputs = {"bids": {"format": "generator"}, "auctions": {"format": "generator"}}
    written, plan, _ = export(running, tmp_path / "out", inputs)
    assert sorted(set(plan.joins.left_rate.tolist())) == [150.0, 200.0]
    output = written.queries[0].output
    assert output is not None
    assert output.share.value == pytest.approx(estimated.share.value / 4)
    assert output.share.origin == "measured"
    again = load(tmp_path / "out" / "scenario.yaml").problem
    assert again.queries[0].pipeline == written.queries[0].pipeline
    told = invoke_json("plan", tmp_path / "out" / "scenario.yaml", "--explain-query")
    origins = {one["kind"]: one["origin"] for one in told["queries"][0]["operators"]}
    assert origins["filter"] == origins["join"] == "measured"


def test_measurements_that_a_plan_does_not_go_by_are_refused(tmp_path: Path) -> None:
    problem = load(scenario(tmp_path, FILTERED)).problem
    running = Controller.from_plan(problem, optimize(problem))
    with pytest.raises(InvalidInput, match=r"selectivity\.x: nothing that the plan of this query goes by; there are b"):
        running.handle(SelectivityMeasured(query="q", selectivity={"x": 0.5}))
    with pytest.raises(InvalidInput, match=r"selectivity\.b: a share in 0…1 expected"):
        running.handle(SelectivityMeasured(query="q", selectivity={"b": 1.5}))
