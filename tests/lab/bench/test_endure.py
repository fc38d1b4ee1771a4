"""`script/soak`, short: a few kills, and each fault once."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_lab.bench.endure import FAULTS, MODES, Endured, compare, endure


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
