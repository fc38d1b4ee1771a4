from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from nova.spark.job.health import warnings
from nova.spark.job.meter import Meter
from nova.spark.job.run import BatchRunning
from nova.spark.job.tally import Tally
from nova.spark.sources.clock import Clock

STREAMS = {"left": ("pressure", 50.0), "right": ("humidity", 50.0)}
NOW = 1_700_000_000.0


def meter(clock: Clock | None = None) -> Meter:
    return Meter("climate", clock, started_s=NOW)


def batch(of: Meter, done_s: float, first_s: float, last_s: float, left: int, right: int) -> None:
    tally = Tally(first_time=round(first_s * 1e6), last_time=round(last_s * 1e6))
    tally.tuples = Counter({"left": left, "right": right})
    of.batch(of.batches, tally, done_s)


def kinds(of: Meter, now_s: float) -> set[str]:
    return {name.removeprefix("climate: ") for name in warnings(of, STREAMS, now_s)}


def test_a_stream_that_brings_nothing_is_told() -> None:
    one = meter()
    assert kinds(one, NOW + 10) == set()
    assert kinds(one, NOW + 20) == {"silent left", "silent right"}
    batch(one, NOW + 21, NOW, NOW + 1, 50, 0)
    assert kinds(one, NOW + 22) == {"silent right"}
    assert kinds(one, NOW + 60) == {"silent left", "silent right"}
    assert "no tuple of stream pressure has come for 39 s" in warnings(one, STREAMS, NOW + 60)["climate: silent left"]
    one.dead["not_parsed"] = 1200
    assert "yet (1,200 that cannot be used have come" in warnings(one, STREAMS, NOW + 60)["climate: silent right"]
    one.ended = True
    assert kinds(one, NOW + 60) == set()


def test_a_long_first_batch_is_no_silence() -> None:
    job = SimpleNamespace(at_work_s=NOW + 1)
    running = BatchRunning(meter(), query=None, schedule=None, job=job)  # type: ignore[arg-type]
    assert warnings(running.meter, STREAMS, running.known_until_s()) == {}
    job.at_work_s = None  # it is done, and nothing has come: NOW lies years back
    assert set(warnings(running.meter, STREAMS, running.known_until_s())) == {
        "climate: silent left",
        "climate: silent right",
    }


def test_rates_far_from_the_plan_are_told_in_event_time() -> None:
    one = meter()
    batch(one, NOW + 1, NOW, NOW + 20, 1100, 5000)  # 55 and 250 tuples/s, played in a moment
    assert kinds(one, NOW + 2) == {"rate right"}
    assert (
        "brings 250.0 tuples/s where the plan was made for 50.0" in warnings(one, STREAMS, NOW)["climate: rate right"]
    )


def test_clocks_that_are_off_are_told_of_live_streams_only() -> None:
    for clock, off, wanted in ((Clock(), 3600, {"ahead"}), (Clock(), -3600, {"behind"}), (None, 3600, set())):
        one = meter(clock)
        batch(one, NOW + 1, NOW + off, NOW + off + 1, 50, 50)
        assert kinds(one, NOW + 2) == wanted


def test_falling_behind_is_told_and_catching_up_is_not() -> None:
    one = meter(Clock())
    for step in range(12):  # each second of the day brings half a second of events
        batch(one, NOW + 2 * step + 2, NOW + step, NOW + step + 1, 100, 100)
    assert "overload" in kinds(one, NOW + 26)
    assert "results are 12 s behind" in warnings(one, STREAMS, NOW + 26)["climate: overload"]
    for step in range(12, 24):  # and now three of them
        batch(one, NOW + 24 + (step - 11), NOW + 12 + 2 * (step - 12), NOW + 14 + 2 * (step - 12), 200, 200)
    assert "overload" not in kinds(one, NOW + 37)


def test_silence_is_no_overload() -> None:
    """In real time the run looks again and again, also when nothing has come."""
    one = meter(Clock())
    for second in range(30):
        batch(one, NOW + second, NOW, NOW + min(second, 5), 50 if second <= 5 else 0, 50 if second <= 5 else 0)
    assert kinds(one, NOW + 30) == {"silent left", "silent right"}
