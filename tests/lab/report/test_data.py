"""Topologies come from the data folder, and what is missing is named."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from nova_lab.report import data


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty NOVA_DATA, nothing remembered."""
    cached = (data.round_trips, data.space_from, data.hourly)
    for function in cached:
        function.cache_clear()
    monkeypatch.setenv("NOVA_DATA", str(tmp_path))
    monkeypatch.setenv("NOVA_CACHE", str(tmp_path / "cache"))
    yield tmp_path
    for function in cached:
        function.cache_clear()


def test_what_is_missing_is_named(fresh):
    assert "king-1740" in str(data.missing_data("king-1740"))
    (fresh / "coordinates").mkdir()
    (fresh / "coordinates" / "king-1740.csv").write_text("node,x,y\n0,1,2\n1,4,6\n")
    assert data.missing_data("king-1740") is None
    space = data.space_from("king-1740", 32)
    assert space.between(np.array([0]), np.array([1]))[0] == 5.0


def test_a_matrix_is_embedded(fresh):
    (fresh / "latency").mkdir()
    rng = np.random.default_rng(1)
    at = rng.uniform(0, 100, size=(30, 2))
    rtt = np.linalg.norm(at[:, None] - at[None], axis=2)
    lines = ["node," + ",".join(f"n{i}" for i in range(30))]
    lines += [f"n{i}," + ",".join(f"{v:.6f}" for v in row) for i, row in enumerate(rtt)]
    (fresh / "latency" / "fit-433-filled.csv.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    n, latency = data.round_trips("fit-433-filled")
    assert (n, len(latency)) == (30, 435)
    space = data.space_from("fit-433-filled", 29)
    assert np.median(np.abs(space.between(latency.first, latency.second) / latency.rtt_ms - 1)) < 0.05


def test_hours_count_what_changed(fresh):
    (fresh / "latency").mkdir()
    hours = np.full((3, 3, 3), 40, np.uint16)
    hours[1, 0, 1] = hours[1, 1, 0] = 70  # 20 → 35 ms
    labels = np.array(["a", "b", "c"])
    np.savez(fresh / "latency" / "ripe-atlas-631-hourly-00-11.npz", rtt_sum_ms=hours, labels=labels)
    series = data.hourly("ripe-atlas-631-hourly")
    assert [latency.matrix(3)[0, 1] for latency in series.at] == [20, 35, 20]
    assert series.changed == (0, 2, 2)


@pytest.mark.shared
def test_the_papers_subset_is_complete(shared, fresh, monkeypatch):
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    n, latency = data.round_trips("ripe-atlas-419")
    assert n == 419
    assert len(latency) >= 419 * 418 // 2 - 1  # one outlier of 4.4 s is dropped
    assert np.median(latency.rtt_ms) == pytest.approx(113, abs=1)
