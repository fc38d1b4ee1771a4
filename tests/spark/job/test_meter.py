from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from nova.spark.job.meter import Meter
from nova.spark.job.tally import Tally
from nova.spark.sources.clock import Clock

WALL_S = 2_000.0
EVENT_US = 1_700_000_000_000_000


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """Three times the recorded speed, since a known moment."""
    file = tmp_path / "clock.json"
    file.write_text(json.dumps([EVENT_US, WALL_S]))
    return Clock(3.0, str(file))


def tally(second: float, tuples: int, copies: dict[int, int], results: dict[float, int]) -> Tally:
    """A batch that reaches up to `second` of the stream; results by the second of their later tuple."""
    return Tally(
        tuples=Counter(left=tuples),
        copies=Counter(copies),
        results=Counter({0: sum(results.values())}),
        ages=Counter({EVENT_US // 1000 + round(at * 1000): n for at, n in results.items()}),
        first_time=EVENT_US,
        last_time=EVENT_US + round(second * 1e6),
    )


def test_latency_is_the_time_since_a_tuple_was_due_at_the_chosen_speed(clock: Clock) -> None:
    meter = Meter("q", clock, WALL_S)
    meter.batch(0, tally(6.0, 10, {}, {6.0: 90, 3.0: 10}), WALL_S + 2.5)  # due after 2 s and after 1 s
    told = meter.report(2.5)
    assert told["latency_ms"] == {
        "mean": 600.0,
        "p50": 500.0,
        "p90": 500.0,
        "p99": 1500.0,
        "p99.99": 1500.0,
        "max": 1500.0,
    }
    assert "3×" in told["latency_clock"]


def test_the_stages_of_a_batch_add_up_to_its_latency(clock: Clock) -> None:
    meter = Meter("q", clock, WALL_S)
    batch = tally(6.0, 10, {}, {6.0: 90, 3.0: 10})
    batch.began_s, batch.routed_s, batch.joining_s, batch.joined_s = (WALL_S + s for s in (2.1, 2.2, 2.25, 2.45))
    meter.batch(0, batch, WALL_S + 2.5)
    told = meter.report(2.5)
    stages = {stage: round(took["mean"]) for stage, took in told["stages_ms"].items() if took}
    assert stages == {"source": 200, "routing": 100, "shuffle": 50, "join": 200, "sink": 50}
    assert sum(stages.values()) == told["latency_ms"]["mean"]


def test_without_a_clock_there_is_no_latency() -> None:
    meter = Meter("q", None, WALL_S)
    meter.batch(0, tally(6.0, 10, {}, {6.0: 90}), WALL_S + 2.5)
    told = meter.report(2.5)
    assert told["latency_ms"] is None
    assert told["latency_clock"] is None


def test_lately_forgets_the_past(clock: Clock) -> None:
    meter = Meter("q", clock, WALL_S)
    meter.batch(0, tally(3.0, 300, {4: 3000}, {3.0: 5}), WALL_S + 1)
    alone = meter.lately(WALL_S + 1)
    assert (alone.tuples_per_s, alone.results_per_s) == (300, 5)
    assert alone.copies == {4: 1000.0}  # per second of event time: 3 s have passed there
    for second in range(2, 22):
        meter.batch(second, tally(3.0 * second, 30, {4: 60}, {3.0 * second: 2}), WALL_S + second + 0.1)
    now = meter.lately(WALL_S + 21.1)
    assert now.tuples_per_s == pytest.approx(30)
    assert now.results_per_s == pytest.approx(2)
    assert now.copies == {4: pytest.approx(20.0)}
    assert now.latency_ms is not None
    assert now.latency_ms["max"] == pytest.approx(100)
    assert meter.report(21.1)["tuples"] == {"left": 300 + 20 * 30}


def progress(number: int, watermark: str) -> dict[str, object]:
    return {
        "batchId": number,
        "eventTime": {"watermark": watermark},
        "numInputRows": 5,
        "stateOperators": [],
        "durationMs": {"triggerExecution": 40},
    }


def test_tuples_behind_the_watermark_of_their_batch_are_late() -> None:
    meter = Meter("q")
    ends = Counter({EVENT_US: 7, EVENT_US + 1_000_000: 5})
    meter.batch(0, Tally(buckets=ends), WALL_S)
    meter.progress(progress(0, "1970-01-01T00:00:00.000Z"))
    assert meter.watermark is None
    meter.batch(1, Tally(buckets=ends), WALL_S)
    meter.progress(progress(1, "2023-11-14T22:13:20.500Z"))
    assert meter.watermark == "2023-11-14T22:13:20.500Z"
    assert meter.late == 7
    meter.progress(progress(1, "2023-11-14T22:13:20.500Z"))  # told twice, counted once
    assert meter.late == 7


def test_a_batch_before_the_clock_starts_has_no_latency(tmp_path: Path) -> None:
    """After a crash, Spark repeats the unfinished batch before it asks any reader for new tuples."""
    clock = Clock(3.0, str(tmp_path / "clock.json"))
    meter = Meter("climate", clock, WALL_S)
    meter.batch(0, tally(1.0, 10, {0: 10}, {0.5: 3}), WALL_S + 5)
    assert meter.report(1.0)["latency_ms"] is None
    clock.start(EVENT_US)
    meter.batch(1, tally(2.0, 10, {0: 10}, {1.5: 3}), WALL_S + 6)
    assert meter.report(1.0)["latency_ms"] is not None
    assert meter.report(1.0)["results"] == 6
