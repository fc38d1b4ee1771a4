"""Figures of a run as Prometheus reads them."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from hostile_names import HOSTILE
from nova.model.errors import InvalidInput, NovaError
from nova.spark.job.exporter import exporter, exposition
from nova.spark.job.meter import Latencies, Meter
from nova.spark.job.tally import Tally
from nova.spark.sources.clock import Clock

LINE = re.compile(
    r'[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z]+="(?:[^"\\\n]|\\[\\"n])*")*\})? -?[0-9.]+(e[-+]?[0-9]+)?'
)


def metered(query: str = "climate") -> Meter:
    """A query that has seen five tuples, one of them dead, and two results after 10 and 30 ms."""
    meter = Meter(query, Clock())
    now = time.time()
    tally = Tally(Counter(left=3, right=2), Counter(bad_time=1), results=Counter({0: 2}), last_time=int(now * 1e6))
    meter.batch(0, tally, now + 1.5, {"total": Latencies(Counter({10.0: 1, 30.0: 1}))})
    return meter


def test_what_happened_is_told() -> None:
    text = exposition([metered()], 7.5, 2)
    for line in (
        'nova_tuples_total{query="climate",side="left"} 3',
        'nova_results_total{query="climate"} 2',
        'nova_dead_letters_total{query="climate",reason="bad_time"} 1',
        'nova_late_tuples_total{query="climate"} 0',
        'nova_latency_seconds{query="climate",quantile="0.99"} 0.03',
        'nova_latency_seconds_sum{query="climate"} 0.04',
        'nova_latency_seconds_count{query="climate"} 2',
        "nova_warnings 2",
        "nova_run_seconds 7.5",
    ):
        assert line in text.splitlines(), text
    lag = next(line for line in text.splitlines() if line.startswith("nova_lag_seconds{"))
    assert float(lag.split()[-1]) == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize("name", HOSTILE)
def test_every_line_is_one_whatever_the_ids(name: str) -> None:
    lines = exposition([metered(name)], 1, 0).splitlines()
    assert [line for line in lines if not line.startswith("# ") and not LINE.fullmatch(line)] == []
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_a_port_answers_on_this_machine_alone() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with exporter(address) as export:
        export(lambda: ([metered()], time.time(), 0), now=True)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert 'nova_results_total{query="climate"} 2' in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{address}/other", timeout=5)
        with pytest.raises(InvalidInput, match="--metrics"), exporter(address):
            pass
    with pytest.raises(InvalidInput, match="--metrics"), exporter("99999999"):
        pass


def test_a_file_is_whole_and_renewed_now_and_then(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    with exporter(str(file)) as export:
        assert file.exists()
        export(lambda: ([metered()], time.time(), 0))
        first = file.read_text()
        assert "nova_results_total" in first
        export(lambda: ([metered("other")], time.time(), 0))
        assert file.read_text() == first
        export(lambda: ([metered("other")], time.time(), 0), now=True)
    assert "other" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["run.prom"]
    with pytest.raises(NovaError, match="cannot write"), exporter(str(tmp_path / "no" / "run.prom")):
        pass
