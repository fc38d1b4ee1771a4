"""`script/soak`, short: a few kills, and each fault once."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_lab.bench.endure import FAULTS, MODES, Endurance, Endured, compare, endure


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mode", MODES)
def test_killed_again_and_again(tmp_path: Path, mode: str) -> None:
    done = endure(mode, tmp_path, kills=2, switches=2, rate=50)
    assert done.kills == 2
    assert done.switches <= (0 if mode == "sites" else 2)  # a life that was killed while it started got no plan
    assert done.results == done.wanted > 0
    assert done.equal


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["realtime", "batch"])
def test_faults_are_told_and_nothing_is_lost(tmp_path: Path, mode: str) -> None:
    done = endure(mode, tmp_path, kills=1, faults=len(FAULTS), rate=50)
    assert done.equal
    for fault in done.faults:
        assert "skipped" in fault or fault["told"].startswith(("goes on", "nova:")), fault
        assert fault.get("code") in (None, 1, 2, 3)


@pytest.mark.slow
@pytest.mark.spark
def test_who_ends_it_early_gets_what_was_measured(tmp_path: Path) -> None:
    killed: list[str] = []
    done = endure("batch", tmp_path, kills=3, rate=50, tell=killed.append, enough=lambda: len(killed) == 1)
    assert (done.kills, done.broke, done.equal) == (1, "", True)
    assert done.results == done.wanted > 0


def test_a_run_that_ends_by_itself_is_told_with_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endurance, "commands", lambda _: {"run": [sys.executable, "-c", "print('no such plan')"]})
    done = endure("batch", tmp_path, kills=3, rate=1)
    assert (done.kills, done.equal) == (0, False)
    assert "run ended with 0" in done.broke
    assert "no such plan" in done.broke


def test_what_is_lost_doubled_or_strange_is_counted(tmp_path: Path) -> None:
    def rows(*times: int) -> pd.DataFrame:
        one = {"source": "p", "value": 1.0}
        return pd.DataFrame(
            [{f"{n}_{s}": v for s in ("left", "right") for n, v in {**one, "time": t}.items()} for t in times]
        )[[f"{name}_{side}" for side in ("left", "right") for name in ("source", "time", "value")]]

    found = rows(1, 2, 2, 5)
    columns = {f"{side}_{name}": found[f"{name}_{side}"] for side in ("left", "right") for name in ("source", "value")}
    times = {f"{side}_time": pa.array(found[f"time_{side}"], pa.timestamp("us", "UTC")) for side in ("left", "right")}
    (tmp_path / "results").mkdir()
    pq.write_table(pa.table({**columns, **times}), tmp_path / "results" / "a.parquet")
    told = Endured("batch")
    compare(tmp_path / "results", rows(1, 2, 3, 4), told)
    assert (told.doubled, told.lost, told.strange, told.equal) == (1, 2, 1, False)
