"""Topologies and sensor archives by name: from a small folder of our own, and from the real one."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from nova.costspace.accuracy import tiv
from nova.datasets.catalog import DATASETS
from nova.datasets.folder import look_up
from nova.datasets.sensors import pings, readings
from nova.datasets.topologies import points, topology
from nova.model.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOVA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NOVA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def test_a_matrix_comes_with_its_node_table(folder: Path) -> None:
    write(folder / "latency/ripe-atlas-723.csv.gz", "node,1.1,2.2,3.3\n1.1,0,8,0\n2.2,8,5,0\n3.3,0,0,0\n")
    write(folder / "nodes/ripe-atlas-723.csv", "row,ip,city,row_in_419\n0,1.1,Bonn,1\n1,2.2,Köln,0\n2,3.3,Ulm,\n")
    loaded = topology("ripe-atlas-723")
    assert len(loaded) == 2
    assert loaded.nodes["id"].to_pylist() == ["1.1", "2.2"]
    assert loaded.nodes["city"].to_pylist() == ["Bonn", "Köln"]
    assert loaded.latency.rtt_ms.tolist() == [8.0]
    assert loaded.cleaning.dropped_nodes == ("3.3",)
    subset = topology("ripe-atlas-419")
    assert subset.nodes["city"].to_pylist() == ["Köln", "Bonn"]


def test_a_series_has_a_median_per_pair(folder: Path) -> None:
    stack = np.zeros((3, 2, 2), np.uint16)
    stack[:, 0, 1] = stack[:, 1, 0] = [20, 22, 30]
    (folder / "latency").mkdir(parents=True)
    np.savez(folder / "latency/ripe-atlas-631-hourly-00-11.npz", rtt_sum_ms=stack, labels=np.array(["a", "b"]))
    loaded = topology("ripe-atlas-631-hourly")
    assert [latency.rtt_ms.tolist() for latency in loaded.latencies] == [[10.0], [11.0], [15.0]]
    assert loaded.latency.rtt_ms.tolist() == [11.0]


def test_node_tables_of_several_sets_are_told_apart(folder: Path) -> None:
    write(folder / "latency/fit-a8-283.csv.gz", "node,p,q\np,0,2\nq,NA,0\n")
    write(folder / "nodes/fit.csv", "set,node,site,hardware\nfit-433,p,lille,m3\nfit-a8-283,p,paris,a8\n")
    loaded = topology("fit-a8-283")
    assert loaded.nodes["site"].to_pylist() == ["paris", None]
    assert loaded.latency.rtt_ms.tolist() == [2.0]


def test_points_and_their_ids(folder: Path) -> None:
    write(folder / "coordinates/king-1740.csv", "node,x,y\n0,20,-279\n1,26,-17\n2,1,2\n")
    loaded = points("king-1740")
    assert loaded.coordinates.tolist() == [[20.0, -279.0], [26.0, -17.0], [1.0, 2.0]]
    assert loaded.nodes["id"].to_pylist() == ["0", "1", "2"]


def test_sensor_faults_are_dropped_and_counted(folder: Path) -> None:
    write(folder / "sensors/nova-bmp280-29791.csv.gz", "29791,16693,1,13.75\n29791,16693,2,13.74\n")
    write(folder / "sensors/nova-bmp280-64394.csv.gz", "64394,50712,1,-142.36\n64394,50712,2,9\n")
    loaded = readings("nova-bmp280")
    assert loaded.dropped == 1
    assert loaded.table.to_pydict() == {
        "sensor": [29791, 29791, 64394],
        "location": [16693, 16693, 50712],
        "time": [1, 2, 2],
        "value": [13.75, 13.74, 9.0],
    }


def test_raw_archives_have_timestamps_and_lost_pings_go(folder: Path) -> None:
    write(
        folder / "sensors/aberdeen-dht22-2018-2019.csv.gz",
        "sensor_id;sensor_type;location;lat;lon;timestamp;temperature;humidity\n"
        "8555;DHT22;4315;57.1;-2.1;2018-07-01T00:00:17;17.3;\n",
    )
    row = readings("aberdeen-dht22").table.to_pylist()[0]
    assert row["time"].isoformat() == "2018-07-01T00:00:17"
    assert row["humidity"] is None
    write(folder / "latency/fit-rounds.csv.gz", "site,a,b,round,rtt_ms\nparis,m1,m2,0,NA\nparis,m1,m2,1,3.5\n")
    assert pings("fit-rounds")["rtt_ms"].to_pylist() == [3.5]


@pytest.mark.usefixtures("folder")
def test_what_is_absent_or_of_another_kind_is_said() -> None:
    with pytest.raises(InvalidInput, match="run `nova data fetch planetlab-490`"):
        topology("planetlab-490")
    with pytest.raises(InvalidInput, match="its parts lie at watty62"):
        readings("aberdeen-bme280")
    with pytest.raises(InvalidInput, match="no data set 'kings'"):
        topology("kings")
    for load, name in ((topology, "king-1740"), (points, "fit-rounds"), (readings, "king-1740"), (pings, "king-1740")):
        with pytest.raises(InvalidInput, match=f"data set {name} holds no"):
            load(name)


@pytest.mark.shared
@pytest.mark.parametrize("name", [d.name for d in DATASETS])
def test_the_real_files_are_what_the_catalogue_describes(
    shared: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    found = look_up(next(d for d in DATASETS if d.name == name))
    assert found is not None
    assert found.state == "verified"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "nodes", "kept", "median", "tiv_share"),
    [
        ("ripe-atlas-723", 721, 255_084, 110, 0.0724),
        ("ripe-atlas-419", 419, 87_570, 113, 0.0731),
        ("ripe-atlas-631-hourly", 631, 2_371_055, 105, 0.075),
        ("planetlab-490", 490, 2_155_400, 135, 0.0584),
        ("planetlab-169", 169, 14_196, 87.5, 0.0836),
        ("fit-433-measured", 433, 16_168, 9.5, 0.13),
        ("fit-433-filled", 433, 93_528, 17.5, 0.0396),
        ("fit-a8-283", 283, 36_063, 0.96, 0.0342),
        ("aws-regions-32", 32, 496, 156, 0.026),
        ("aws-regions-21", 21, 210, 155, 0.0226),
    ],
)
def test_the_real_topologies_have_the_known_figures(
    shared: Path, monkeypatch: pytest.MonkeyPatch, name: str, nodes: int, kept: int, median: float, tiv_share: float
) -> None:
    """Medians and TIV shares are those of data/README.md, told there of the uncleaned matrices."""
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    loaded = topology(name)
    assert (len(loaded), loaded.cleaning.kept) == (nodes, kept)
    one = loaded.latencies[0]
    assert float(np.median(one.rtt_ms)) == pytest.approx(median, rel=0.02)
    assert (one.first < one.second).all()
    assert (one.rtt_ms > 0).all()
    found = tiv(nodes, one.first, one.second, one.rtt_ms)
    assert found == pytest.approx(tiv_share, rel=0.15)


@pytest.mark.shared
def test_the_real_archives_have_the_known_rows(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_DATA", str(shared / "data"))
    bmp = readings("nova-bmp280")
    assert (bmp.table.num_rows + bmp.dropped, bmp.dropped) == (156_410, 15_807)
    assert readings("nova-dht22").table.num_rows == 234_614
    assert readings("aberdeen-bme280").table.num_rows == 490_021
    assert pings("ripe-atlas-country-2025").num_rows == 6_827
