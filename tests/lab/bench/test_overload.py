"""`script/soak --overload`, short: nothing is lost, whichever way tuples come."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_broker import require
from nova_lab.bench.overload import Flood, overload


def test_results_are_counted_as_the_plain_join_has_them(tmp_path: Path) -> None:
    for rate in (30.0, 1300.0):  # the latter with several tuples a millisecond
        flood = Flood(tmp_path, rate, 3.0)
        assert flood.count() == len(flood.wanted())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "way"),
    [("realtime", "generator"), ("batch", "files"), ("realtime", "kafka"), ("batch", "kafka"), ("realtime", "mqtt")],
)
def test_nothing_is_lost(tmp_path: Path, mode: str, way: str) -> None:
    if way == "kafka":
        require()
    done = overload(mode, tmp_path, minutes=0.2, rate=50, way=way)
    assert done["equal"]
    assert done["results"] > 0
