from __future__ import annotations

from nova.cli.display import SHOWN, latencies
from nova.spark.job.meter import STAGES


def told(ms: float) -> dict[str, float]:
    return dict.fromkeys(("mean", *SHOWN), ms)


def test_latency_is_told_whole_and_by_stage_at_every_percentile() -> None:
    stages = {stage: told(number) for number, stage in enumerate(STAGES)}
    rows = latencies("climate", told(1234.5), stages)
    assert rows[0] == ("climate", "in all", *["1,234"] * len(SHOWN))
    assert [row[1] for row in rows[1:]] == ["source", "routing", "shuffle", "join", "sink"]
    assert rows[-1] == ("", "sink", *["4.0"] * len(SHOWN))
    assert {"p50", "p90", "p99", "p99.99"} <= set(SHOWN)


def test_nothing_is_told_before_the_first_result() -> None:
    assert latencies("climate", None, dict.fromkeys(STAGES)) == [
        ("climate", "in all", *["–"] * len(SHOWN)),
    ]
