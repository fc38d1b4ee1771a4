from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nova_lab.showcase.anomalies import Climate, climate, deviations, find

SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def weather(windows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Four regions with weather in common, a level of their own, and noise."""
    rng = np.random.default_rng(seed)
    common = np.sin(np.arange(windows) / 5)
    own = np.array([0.0, 5.0, -3.0, 1.0])[:, None]
    return tuple(
        mean + scale * common + own + rng.normal(0, 0.1, (4, windows))  # type: ignore[return-value]
        for mean, scale in ((1013.0, 3.0), (60.0, -8.0))
    )


def of(pressure: np.ndarray, humidity: np.ndarray) -> Climate:
    at = START + np.arange(pressure.shape[1]) * SECOND
    return Climate(["a", "b", "c", "d"], at, pressure, humidity, at)


def test_what_all_regions_see_is_no_anomaly() -> None:
    pressure, humidity = weather(100)
    pressure[:, 40:50] -= 20
    humidity[:, 40:50] += 30
    assert find(of(pressure, humidity), SECOND) == []


def test_one_region_apart_in_both_is_found_with_its_time_and_size() -> None:
    pressure, humidity = weather(100)
    pressure[2, 40:45] -= 4
    humidity[2, 40:45] += 7
    pressure[1, 70:80] -= 4  # pressure alone
    (anomaly,) = find(of(pressure, humidity), SECOND)
    assert (anomaly.region, anomaly.windows) == ("c", 5)
    assert (anomaly.from_us, anomaly.until_us) == (START + 40 * SECOND, START + 44 * SECOND)
    assert anomaly.pressure == pytest.approx(-4, abs=0.4)
    assert anomaly.humidity == pytest.approx(7, abs=0.4)
    assert anomaly.told()["from"] == "2023-11-14T22:14:00Z"


def test_two_spells_are_two_anomalies_the_stranger_first() -> None:
    pressure, humidity = weather(100)
    for begin, size in ((10, 4.0), (60, 8.0)):
        pressure[0, begin : begin + 3] -= size
        humidity[0, begin : begin + 3] += size
    first, second = find(of(pressure, humidity), SECOND)
    assert first.from_us == START + 60 * SECOND
    assert second.from_us == START + 10 * SECOND
    assert first.score > second.score


def test_missing_windows_and_two_regions_alone() -> None:
    pressure, humidity = weather(60)
    pressure, humidity = pressure[:2], humidity[:2]
    pressure[1, 5] = humidity[1, 5] = np.nan
    off, z = deviations(pressure)
    assert off.shape == z.shape == (2, 60)
    assert np.isnan(z[1, 5])
    two = Climate(["a", "b"], of(pressure, humidity).window_us, pressure, humidity, of(pressure, humidity).window_us)
    find(two, SECOND)


def test_means_by_region_and_window_from_results(tmp_path: Path) -> None:
    moment = pa.timestamp("us", tz="UTC")
    rows = pa.table(
        {
            "left_source": ["p1", "p1", "p2", "p3"],
            "window_start": pa.array([START, START, START, START + SECOND], moment),
            "left_value": [1.0, 3.0, 5.0, 7.0],
            "right_value": [10.0, 30.0, 20.0, 40.0],
            "left_recorded_at": pa.array([START - 9, START - 8, START - 7, START - 6], moment),
        }
    )
    pq.write_table(rows.slice(0, 2), tmp_path / "climate-00000000-000.parquet")
    pq.write_table(rows.slice(2), tmp_path / "climate-00000001-000.parquet")
    seen = climate(tmp_path, {"p1": "north", "p2": "north", "p3": "south", "p4": "never"})
    assert seen.regions == ["north", "south"]
    assert seen.window_us.tolist() == [START, START + SECOND]
    assert seen.pressure[0, 0] == 3.0
    assert np.isnan(seen.pressure[0, 1])
    assert seen.humidity.tolist()[1][1] == 40.0
    assert seen.recorded_us.tolist() == [START - 9, START - 6]
