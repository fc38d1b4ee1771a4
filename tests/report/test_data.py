"""Public topologies are cleaned of what their sources have wrong, and what is missing is named."""

from __future__ import annotations

import numpy as np
import pytest

from nova.report import data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A small NOVA_DATA: six nodes of RIPE Atlas, one of them dead, and three hours of another three."""
    for function in (data.round_trips, data.space_from, data.hourly):
        function.cache_clear()
    (tmp_path / "latency").mkdir()
    (tmp_path / "nodes").mkdir()
    matrix = np.array([[0 if i == j else 10 * (i + j) for j in range(6)] for i in range(6)])
    matrix[5, :] = matrix[:, 5] = 0  # dead
    matrix[0, 1] = 0  # one direction lost
    lines = ["node," + ",".join(f"n{i}" for i in range(6))]
    lines += [f"n{i}," + ",".join(map(str, row)) for i, row in enumerate(matrix)]
    (tmp_path / "latency" / "ripe-atlas-723.csv.gz").write_bytes(_gzip("\n".join(lines) + "\n"))
    (tmp_path / "nodes" / "ripe-atlas-723.csv").write_text("row,row_in_419\n0,\n1,2\n2,0\n3,1\n4,\n5,\n")
    hours = np.full((3, 3, 3), 40, np.uint16)
    hours[1, 0, 1] = hours[1, 1, 0] = 80  # 20 → 40 ms
    hours[2, 0, 2] = hours[2, 2, 0] = 1  # filled, not measured
    np.savez(tmp_path / "latency" / "ripe-atlas-631-hourly-00-11.npz", rtt_sum_ms=hours)
    monkeypatch.setenv("NOVA_DATA", str(tmp_path))
    yield tmp_path
    for function in (data.round_trips, data.space_from, data.hourly):
        function.cache_clear()


def _gzip(text: str) -> bytes:
    import gzip

    return gzip.compress(text.encode())


def test_dead_nodes_are_left_out_and_a_lost_direction_is_made_up_for(folder):
    n, latency = data.round_trips("ripe-atlas-723")
    full = latency.matrix(n)
    assert n == 5
    assert full[0, 1] == 10  # the other direction, not the mean with a zero
    assert full[3, 4] == 70


def test_the_papers_subset_keeps_its_own_order(folder):
    n, latency = data.round_trips("ripe-atlas-419")
    assert n == 3
    assert latency.matrix(n)[0, 1] == 10 * (2 + 3)
    assert latency.matrix(n)[1, 2] == 10 * (3 + 1)


def test_hours_are_halved_and_fillers_dropped(folder):
    series = data.hourly("ripe-atlas-631-hourly")
    assert [latency.matrix(3)[0, 1] for latency in series.at] == [20, 40, 20]
    assert np.isnan(series.at[2].matrix(3)[0, 2])
    assert series.changed == (0, 2, 2)


def test_what_is_missing_is_named(folder, monkeypatch):
    assert data.missing_data("ripe-atlas-419") is None
    assert "king-1740" in str(data.missing_data("king-1740"))
    monkeypatch.delenv("NOVA_DATA")
    assert "NOVA_DATA" in str(data.missing_data("ripe-atlas-419"))


@pytest.mark.shared
def test_the_real_subset_is_complete(shared, monkeypatch):
    for function in (data.round_trips, data.space_from, data.hourly):
        function.cache_clear()
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    n, latency = data.round_trips("ripe-atlas-419")
    assert n == 419
    assert len(latency) == 419 * 418 // 2
    assert np.median(latency.rtt_ms) == pytest.approx(113, abs=1)
