"""`nova sensors` on real Spark: faults quarantined with their place, regions, measured rates, a scenario that plans."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from builders import invoke, invoke_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BME = "sensor_id;sensor_type;location;lat;lon;timestamp;pressure;altitude;pressure_sealevel;temperature;humidity"
DHT = "sensor_id;sensor_type;location;lat;lon;timestamp;temperature;humidity"
BAD_BME = {
    "1;BME280;7;57.12;-2.12;2019-01-01T10:00:00": "not_parsed",
    ";BME280;7;57.12;-2.12;2019-01-01T10:00:00;101000;;;1;2": "sensor_missing",
    "1;SDS011;7;57.12;-2.12;2019-01-01T10:00:00;101000;;;1;2": "type_unknown",
    "1;BME280;7;57.12;-2.12;noon;101000;;;1;2": "time_unreadable",
    "1;BME280;7;57.12;-2.12;1999-01-01T10:00:00;101000;;;1;2": "time_out_of_range",
    "1;BME280;7;;-2.12;2019-01-01T10:00:00;101000;;;1;2": "place_unreadable",
    "1;BME280;7;0;0;2019-01-01T10:00:00;101000;;;1;2": "place_unreadable",
    "1;BME280;7;57.12;-2.12;2019-01-01T10:00:00;;;;1;2": "value_missing",
    "1;BME280;7;57.12;-2.12;2019-01-01T10:00:00;high;;;1;2": "value_unreadable",
    "1;BME280;7;57.12;-2.12;2019-01-01T10:00:00;-142.36;;;1;2": "value_absurd",
    "1;BME280;7;57.12;-2.12;2019-01-01T10:00:00;NaN;;;1;2": "value_absurd",
}


def archive(folder: Path) -> dict[tuple[str, int], str]:
    """Two archives; returns where the bad lines stand."""
    folder.mkdir(parents=True)
    start = pd.Timestamp("2019-01-01")
    lines = [BME]
    places: dict[tuple[str, int], str] = {}
    for k, (line, reason) in enumerate(BAD_BME.items()):
        for step in range(20):
            moment = (start + pd.Timedelta(seconds=150 * (20 * k + step))).isoformat()
            lines.append(f"{1 + step % 2};BME280;7;{57.12 + 0.2 * (step % 2):.2f};-2.12;{moment};{101000 + step};;;1;2")
        lines.append(line)
        places[str(folder / "bme280.csv"), len(lines)] = reason
    lines += lines[1:6]  # sent twice
    (folder / "bme280.csv").write_text("\n".join(lines) + "\n")
    dht = [
        DHT,
        *(
            f"5;DHT22;8;57.11;-2.11;{(start + pd.Timedelta(seconds=60 * k)).isoformat()};3;{50 + k % 40}"
            for k in range(100)
        ),
    ]
    dht.append("5;DHT22;8;57.11;-2.11;2019-02-01T00:00:00;3;100.1")
    places[str(folder / "dht22.csv.gz"), len(dht)] = "value_absurd"
    (folder / "dht22.csv.gz").write_bytes(gzip.compress("\n".join(dht).encode()))
    return places


def test_faults_regions_and_rates(tmp_path: Path) -> None:
    places = archive(tmp_path / "raw")
    report = invoke_json("sensors", tmp_path / "raw", "-o", tmp_path / "out")
    found = pq.read_table(tmp_path / "out" / "quarantine").to_pylist()
    assert {(row["file"], row["line"]): row["reason"] for row in found} == places
    assert len(found) == len(places)
    rows = report["rows"]
    assert (rows["rows"], rows["good"], rows["duplicates"]) == (220 + 11 + 5 + 101, 220 + 100, 5)
    assert (rows["header_lines"], rows["blank_lines"]) == (2, 0)
    readings = pq.read_table(tmp_path / "out" / "readings").to_pandas()
    assert set(readings["region"]) == {"57.10_-2.20", "57.30_-2.20"}
    pressure = pacsv.read_csv(tmp_path / "out" / "pressure.csv").to_pandas().set_index("id")
    np.testing.assert_allclose(pressure["rate"], 1 / 300)
    assert pressure.loc[1, "region"] == "57.10_-2.20"
    humidity = pacsv.read_csv(tmp_path / "out" / "humidity.csv").to_pandas()
    np.testing.assert_allclose(humidity["rate"], 1 / 60, rtol=1e-6)
    assert report["sub_joins"] == 1
    summary = invoke_json("plan", tmp_path / "out" / "scenario.yaml", "-o", tmp_path / "plan")
    assert (summary["sub_joins"], summary["overloaded"]) == (1, 0)


@pytest.mark.slow
def test_the_plan_runs_over_the_readings(tmp_path: Path) -> None:
    """From archives to joined readings: every pair of one region and window comes out once."""
    archive(tmp_path / "raw")
    invoke_json("sensors", tmp_path / "raw", "-o", tmp_path / "out")
    report = invoke_json("run", tmp_path / "out" / "scenario.yaml", "-o", tmp_path / "run", "--until-end")
    readings = pq.read_table(tmp_path / "out" / "readings").to_pandas()
    readings["window"] = readings["event_time"].dt.floor("5min")
    left, right = (readings[readings["stream"] == name] for name in ("pressure", "humidity"))
    wanted = left.merge(right, on=["region", "window"])
    assert len(wanted) > 50
    found = pq.read_table(tmp_path / "run" / "results").to_pandas()
    assert len(found) == len(wanted) == report["results"]
    columns = ["left_time", "right_time", "left_value", "right_value"]
    assert set(found[columns].itertuples(index=False, name=None)) == set(
        wanted[["event_time_x", "event_time_y", "value_x", "value_y"]].itertuples(index=False, name=None)
    )


def test_polygons_turn_sensors_outside_away(tmp_path: Path) -> None:
    archive(tmp_path / "raw")
    north = {
        "type": "Feature",
        "properties": {"id": "north"},
        "geometry": {"type": "Polygon", "coordinates": [[[-3, 57.2], [-2, 57.2], [-2, 58], [-3, 58], [-3, 57.2]]]},
    }
    (tmp_path / "regions.json").write_text(json.dumps({"type": "FeatureCollection", "features": [north]}))
    report = invoke_json("sensors", tmp_path / "raw", "-o", tmp_path / "out", "--regions", tmp_path / "regions.json")
    assert report["rows"]["quarantined"]["outside_regions"] >= 110 + 100
    assert set(pq.read_table(tmp_path / "out" / "readings")["region"].to_pylist()) == {"north"}
    assert report["scenario"] is None
    assert list(report["streams"]) == ["pressure"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{folder}/plain.csv"], "no archive of Sensor.Community"),
        (["{folder}/plain.csv", "--cell", "0"], "degrees above 0"),
        (["{folder}/fine.csv", "--regions", "{folder}/none.json"], "no such file"),
        (["{folder}/fine.csv"], "no reading is good"),
    ],
)
def test_bad_input(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "plain.csv").write_text("29791,16693,1,13.75\n")
    (tmp_path / "fine.csv").write_text(BME + "\n")
    result = invoke("sensors", *(text.format(folder=tmp_path) for text in arguments), "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert told in result.stderr


@pytest.mark.shared
@pytest.mark.slow
def test_aberdeen_equals_pandas(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "sensors"
    report = invoke_json("sensors", str(folder / "aberdeen-*.csv.gz"), "-o", tmp_path / "out")
    rows = report["rows"]
    assert rows["rows"] == 490_021 + 1_363_910
    counts: dict[str, Any] = {}
    for stream, name, column, low, high in (
        ("pressure", "bme280", "pressure", 30_000, 110_000),
        ("humidity", "dht22", "humidity", 0, 100),
    ):
        raw = pd.read_csv(folder / f"aberdeen-{name}-2018-2019.csv.gz", sep=";")
        sound = raw[raw[column].between(low, high)].drop_duplicates(["sensor_id", "timestamp", column])
        counts[stream] = len(sound)
        gaps = sound.assign(t=pd.to_datetime(sound["timestamp"])).sort_values("t").groupby("sensor_id")["t"].diff()
        median = gaps.dt.total_seconds().groupby(sound["sensor_id"]).median()
        table = pacsv.read_csv(tmp_path / "out" / f"{stream}.csv").to_pandas().set_index("id")["rate"]
        np.testing.assert_allclose(1 / table.sort_index(), median.sort_index(), rtol=1e-6)
    assert {name: figures["readings"] for name, figures in report["streams"].items()} == counts
    assert rows["good"] == sum(counts.values())
