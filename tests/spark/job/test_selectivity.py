"""What a run measures of its queries, by pandas on the same tuples; and what a plan makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import auctions
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


def test_nothing_is_told_of_what_was_not_seen() -> None:
    counts = Selectivity({"left": "b"}, 2.0)
    assert counts.shares(0.0) == {}
    counts.note({"left": {"came": 10, "passed": 4}, "right": {"came": 5, "passed": 5}})
    counts.joined = 2
    assert counts.shares(10.0) == {"b": 0.4, "join": 2 * 10 / (4 * 5 * 2.0)}
    counts.joined = None
    assert counts.shares(10.0) == {"b": 0.4}
