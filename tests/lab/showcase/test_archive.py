from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders import invoke, invoke_json
from nova_lab.showcase.archive import placed, squeeze

DAY = datetime(2019, 5, 18, tzinfo=UTC)
PLACES = {"a": (57.0, -2.0), "b": (57.3, -2.4), "c": (57.6, -2.1)}


def write_archive(folder: Path) -> Path:
    """Three regions with one BME280 and two DHT22 each, a reading every 150 s for a day and a half; around noon the
    pressure of region b falls and its humidity rises."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    lines: dict[str, list[str]] = {"bme280": [], "dht22": []}
    for r, (name, (lat, lon)) in enumerate(PLACES.items()):
        for kind, count in (("bme280", 1), ("dht22", 2)):
            for i in range(count):
                for at in range(0, 36 * 3600, 150):
                    noon = name == "b" and 12 * 3600 <= at < 13 * 3600
                    time = (DAY + timedelta(seconds=at + 7 * i + 11 * r)).strftime("%Y-%m-%dT%H:%M:%S")
                    head = f"{100 * r + 10 * (kind == 'dht22') + i};{kind.upper()};{r};{lat + 0.01 * i};{lon};{time}"
                    if kind == "bme280":
                        pressure = 101_300 + 300 * np.sin(at / 20_000) - 900 * noon + rng.normal(0, 20)
                        lines[kind].append(f"{head};{pressure:.2f};;;11.0;50")
                    else:
                        humidity = 60 + 5 * np.cos(at / 20_000) + 20 * noon + rng.normal(0, 1)
                        lines[kind].append(f"{head};11.0;{humidity:.2f}")
    heads = {"bme280": "pressure;altitude;pressure_sealevel;temperature;humidity", "dht22": "temperature;humidity"}
    for kind, rows in lines.items():
        text = "\n".join([f"sensor_id;sensor_type;location;lat;lon;timestamp;{heads[kind]}", *rows])
        (folder / f"{kind}.csv").write_text(text + "\n")
    return folder


@pytest.mark.slow
def test_an_archive_is_played_and_its_anomaly_found_at_its_recorded_time(spark: Any, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "archive")
    told = invoke_json(
        "showcase", "-o", tmp_path / "show", "--archive", archive, "--days", 1, "--rate", 40, "--speed", 8
    )
    anomaly = told["anomalies"][0]
    assert anomaly["region"] == "57.30N-2.40E"
    assert "2019-05-18T11:5" <= anomaly["from"] <= "2019-05-18T12:06"
    assert anomaly["pressure"] == pytest.approx(-9, abs=1)  # hPa
    assert anomaly["humidity"] == pytest.approx(20, abs=2)
    assert told["run"]["tuples"] == 9 * 576
    rows = {row["approach"]: row for row in told["placements"]}
    assert rows["nova"]["overloaded"] == 0
    assert rows["sink"]["overloaded"] == 1
    missing = invoke("showcase", "-o", tmp_path / "half", "--archive", archive / "dht22.csv")
    assert missing.exit_code == 2
    assert "no readings of pressure" in missing.output


def test_sensors_stand_in_the_region_of_the_nearest_pressure_sensor() -> None:
    found = pa.table(
        {
            "stream": ["pressure", "pressure", "pressure", "humidity", "humidity"],
            "source": ["1", "2", "3", "4", "5"],
            "readings": [100, 100, 50, 100, 100],
            "lat": [57.0, 57.01, 58.0, 57.2, 57.4],
            "lon": [2.0, 2.0, 2.0, 2.1, 2.0],
        }
    )
    regions, kept = placed(found, 0.1)
    assert [region.name for region in regions] == ["57.00N+2.00E"]  # nobody measures humidity near 58 N
    assert {sensor.id: sensor.rate for sensor in kept} == {"p-1": 10, "p-2": 10, "h-4": 10, "h-5": 10}


def test_windows_keep_a_round_length() -> None:
    factor = squeeze(1 / 148, 20.0)
    assert factor == pytest.approx(300 / 0.1)
    assert squeeze(1 / 148, 1e9) == pytest.approx(300 / 0.01)
