"""What a run measures of its queries, by pandas on the same tuples; and what a plan makes of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import auctions
from builders import write_scenario
from nova import optimizer
from nova.controller import Controller
from nova.controller.codec import event_from_json
from nova.scenario import load
from nova.spark.job.run import Run, Settings
from nova.spark.job.selectivity import Selectivity

SECONDS = 12
SAME = "TUMBLE(b.at, INTERVAL '2' SECOND) = TUMBLE(a.at, INTERVAL '2' SECOND)"
QUERIES = {
    "rows": f"""SELECT b.value, a.category FROM bids b JOIN auctions a ON b.auction = a.id AND {SAME}
                AND b.value > a.value WHERE b.value > 40""",
    "groups": """SELECT window_start, bidder, count(*) AS n FROM bids WHERE value > 100
                 GROUP BY TUMBLE(at, INTERVAL '2' SECOND), bidder""",
}


def test_shares_are_those_of_the_tuples_and_come_back_as_events(spark: Any, tmp_path: Path) -> None:
    bids, opened = auctions.tables()
    loaded = load(auctions.scenario(tmp_path / "s", QUERIES, bids, opened, 2))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=2000))
    run.start()
    run.wait()
    told = {one["query"]: one["selectivity"] for one in run.report()["queries"]}
    passed = bids[bids["value"] > 40]
    pairs = passed.merge(opened, left_on="auction", right_on="id")
    same = pairs["at_x"].dt.floor("2s") == pairs["at_y"].dt.floor("2s")
    joined = int((same & (pairs["value_x"] > pairs["value_y"])).sum())
    assert told["rows"]["b"] == pytest.approx(len(passed) / len(bids))
    assert told["rows"]["join"] == pytest.approx(joined * SECONDS / (len(passed) * len(opened) * 2), rel=0.05)
    assert set(told["groups"]) == {"bids", "group"}
    assert told["groups"]["group"] == pytest.approx(3, rel=0.1)  # three bidders
    running = Controller.from_plan(loaded.problem, plan)
    for line in (tmp_path / "run" / "measured.jsonl").read_text().splitlines():
        running.handle(event_from_json(json.loads(line)))
    problem = running.problem()
    rate = problem.sources.rate[problem.sources_of(problem.queries[0].left)].sum()
    assert rate == pytest.approx(600 * len(passed) / len(bids))
    output = problem.queries[0].output
    assert output is not None
    assert output.share.origin == "measured"


def counts(seconds: float = 10.0, came: int = 10, joined: int = 2) -> Selectivity:
    """A join of windows of two seconds, filtered on the left, after one batch."""
    found = Selectivity({"left": "b"}, 2.0, 2.0)
    found.span(0, 0, round(seconds * 1e6))
    found.joined(0, joined)
    found.note(0, {"left": {"came": came, "passed": came * 2 // 5}, "right": {"came": came, "passed": came}})
    return found


def test_nothing_is_told_of_what_was_not_seen() -> None:
    assert Selectivity({"left": "b"}, 2.0).shares() == {}
    assert counts().shares() == {"b": 0.4, "join": 2 * 10 / (4 * 10 * 2.0)}


def test_shares_are_of_whole_batches() -> None:
    found = counts()
    before = found.shares()
    found.span(1, 0, 20_000_000)  # Spark's report of it is on its way
    found.joined(1, 4)
    assert found.shares() == before
    found.note(1, {"left": {"came": 10, "passed": 4}, "right": {"came": 10, "passed": 10}})
    assert found.shares() == {"b": 0.4, "join": 6 * 20 / (8 * 20 * 2.0)}


@pytest.mark.parametrize(
    ("seconds", "came", "planned", "told"),
    [
        (10.0, 1000, {"b": 0.6, "join": 0.0025}, {}),
        (10.0, 1000, {"b": 0.61, "join": 0.0025}, {"b": 0.4}),
        (10.0, 1000, {"b": 0.26, "join": 0.0025}, {"b": 0.4}),
        (9.0, 1000, {"b": 0.26, "join": 0.0025}, {}),  # not five windows
        (10.0, 990, {"b": 0.26, "join": 0.0025}, {}),
        (10.0, 1000, {"b": 0.4}, {}),  # nothing that the plan goes by
        (10.0, 1000, {"b": 0.4, "join": math.nan}, {"join": 0.0025}),
        (10.0, 1000, {"b": 0.4, "join": 0.001}, {"join": 0.0025}),
    ],
)
def test_a_plan_is_told_what_is_far_from_its_own(
    seconds: float, came: int, planned: dict[str, float], told: dict[str, float]
) -> None:
    assert counts(seconds, came, joined=200).far(planned) == pytest.approx(told)


def test_few_rows_may_be_chance_and_what_was_told_is_measured_afresh() -> None:
    assert counts(10.0, 1000, joined=40).far({"join": 0.0003}) == {}  # 40 where 24 were expected
    found = counts(10.0, 1000, joined=40)
    assert found.far({"join": 0.005}) == pytest.approx({"join": 0.0005})  # where 400 were
    found.tell()
    assert found.far({"join": 0.005}) == {}
    found.span(1, 10_000_000, 20_000_000)
    found.joined(1, 400)
    found.note(1, {side: {"came": 1000, "passed": 1000} for side in ("left", "right")})
    assert found.far({"join": 0.0005, "b": 0.4}) == pytest.approx({"join": 0.002, "b": 1.0})


def test_a_watched_run_tells_its_plan_and_goes_on_under_the_next(spark: Any, tmp_path: Path) -> None:
    """The filter is thought to pass a third and passes four fifths, which the host cannot take."""
    bids, opened = auctions.tables(6000)
    one = "TUMBLE({0}.at, INTERVAL '1' SECOND)"
    sql = f"""SELECT b.value, a.category FROM bids b JOIN auctions a ON b.auction = a.id
              AND {one.format("b")} = {one.format("a")} WHERE b.value > 40"""
    file = auctions.scenario(tmp_path / "s", sql, bids, opened, 10)
    document = yaml.safe_load(file.read_text())
    document["nodes"][2]["capacity"] = 700  # two sub-joins of 200 tuples/s each as the plan thinks, of 340 as it is
    loaded = load(write_scenario(tmp_path / "s", document))
    plan = optimizer.optimize(loaded.problem, loaded.options)
    events = tmp_path / "events.jsonl"
    run = Run(spark, loaded, plan, Settings(tmp_path / "run", until_end=True, lateness_ms=2000, watch=events))
    run.start()
    run.wait()
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [one["event"] for one in told] == ["selectivity_measured"]
    passed = bids[bids["value"] > 40]
    assert told[0]["selectivity"]["b"] == pytest.approx(len(passed) / len(bids), rel=0.1)
    assert run.report()["events"]["handled"] == 1
    assert [entry["plan"] for entry in run.report()["epochs"]["q"]] == ["00000", "00001"]
    pairs = passed.merge(opened, left_on="auction", right_on="id")
    pairs = pairs[pairs["at_x"].dt.floor("1s") == pairs["at_y"].dt.floor("1s")]
    found = pq.read_table(tmp_path / "run" / "results").to_pylist()
    assert auctions.rows(row.values() for row in found) == auctions.rows(
        pairs[["value_x", "category"]].itertuples(index=False)
    )
