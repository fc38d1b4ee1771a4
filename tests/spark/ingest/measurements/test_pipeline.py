"""`nova measurements` on real Spark: every kind of bad row, every format, and figures equal to pandas."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import invoke, invoke_json
from pandas_reference import aggregates, assert_equal

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BAD_LINES = {
    "a,b,1700000000": "not_parsed",
    "a,b,1700000000,5,extra": "not_parsed",
    ",b,1700000000,5": "node_missing",
    "a,  ,1700000000,5": "node_missing",
    "a,stranger,1700000000,5": "node_unknown",
    "b,b,1700000000,5": "self_pair",
    "a,b,,5": "time_missing",
    "a,b,yesterday,5": "time_unreadable",
    "a,b,nan,5": "time_unreadable",
    "a,b,17,5": "time_out_of_range",
    "a,b,9999999999,5": "time_out_of_range",
    "a,b,1700000000,fast": "rtt_unreadable",
    "a,b,1700000000,NaN": "rtt_not_finite",
    "a,b,1700000000,-inf": "rtt_not_finite",
    "a,b,1700000000,-1": "rtt_negative",
    "a,b,1700000000,0": "rtt_zero",
    "a,b,1700000000,0.000": "rtt_zero",
    "a,b,1700000000,60001": "rtt_absurd",
}


def read(folder: Path, table: str) -> pd.DataFrame:
    return pq.read_table(folder / table).to_pandas()


def test_every_bad_row_is_quarantined_with_its_place(spark: Any, tmp_path: Path) -> None:
    """Bad lines are spread over several blocks of a plain file, and stand in a compressed one."""
    rng = np.random.default_rng(1)
    raw = tmp_path / "raw"
    raw.mkdir()
    expected: set[tuple[str, str, int]] = set()
    for name in ("plain.csv", "packed.csv.gz"):
        lines = ["from,to,time,rtt_ms"]
        for number, (line, reason) in enumerate(BAD_LINES.items()):
            for k in range(int(rng.integers(20, 60))):
                lines.append(f"a,b,{1_700_000_000 + 1000 * number + k},{rng.uniform(1, 90):.3f}")
            # the same lost ping again and again: one, and its duplicates
            lines.append("" if number % 5 == 0 else "b,a,2023-11-14T22:13:20Z,timeout")
            lines.append(line)
            expected.add((reason, str(raw / name), len(lines)))
        text = "\n".join(lines) + "\n"
        (raw / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    (tmp_path / "nodes.csv").write_text("id\na\nb\n")
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    try:
        report = invoke_json("measurements", raw, "-o", tmp_path / "out", "--nodes", tmp_path / "nodes.csv")
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    found = read(tmp_path / "out", "quarantine")
    assert set(zip(found["reason"], found["file"], found["line"], strict=True)) == expected
    assert len(found) == len(expected)
    for name in ("plain.csv", "packed.csv.gz"):
        assert set(found.loc[found["file"] == str(raw / name), "record"]) == set(BAD_LINES)
    rows = report["rows"]
    wanted = pd.Series(list(BAD_LINES.values())).value_counts().mul(2).to_dict()
    assert rows["quarantined"] == wanted
    assert (rows["header_lines"], rows["blank_lines"]) == (2, 8)
    assert rows["rows"] == rows["good"] + rows["duplicates"] + sum(wanted.values())
    assert rows["duplicates"] > 0
    pairs = read(tmp_path / "out", "pairs")
    assert pairs["count"].sum() == rows["good"]
    assert pairs["lost"].sum() == 1


def pings(n: int = 400, seed: int = 0) -> pd.DataFrame:
    """Random pings of a few nodes over some hours, with losses, ties and duplicates."""
    rng = np.random.default_rng(seed)
    ends = np.array([rng.choice(5, 2, replace=False) for _ in range(n)])
    frame = pd.DataFrame(
        {
            "from": [f"n{i}" for i in ends[:, 0]],
            "to": [f"n{i}" for i in ends[:, 1]],
            "time": 1_700_000_000 + rng.integers(0, 4 * 3600, n),
            "rtt": np.where(rng.random(n) < 0.15, np.nan, rng.uniform(1, 200, n).round(3)),
        }
    )
    return pd.concat([frame, frame.iloc[: n // 10]], ignore_index=True)


def test_every_format_gives_the_same_figures(tmp_path: Path) -> None:
    """A quarter of the pings each as CSV, JSON lines, a JSON array and Parquet, under different column names."""
    frame = pings()
    parts = [frame.iloc[k::4] for k in range(4)]
    parts[0].rename(columns={"rtt": "rtt_ms"}).to_csv(tmp_path / "one.csv", index=False, na_rep="NA", sep=";")
    records = [
        {
            "src": row["from"],
            "dst": row["to"],
            "timestamp": int(row["time"]) * 1000,
            "rtt": None if np.isnan(row["rtt"]) else row["rtt"],
        }
        for _, row in parts[1].iterrows()
    ]
    (tmp_path / "two.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    third = [
        {
            "from": row["from"],
            "to": row["to"],
            "time": pd.Timestamp(row["time"], unit="s").isoformat(),
            "rtt_ms": "*" if np.isnan(row["rtt"]) else row["rtt"],
        }
        for _, row in parts[2].iterrows()
    ]
    (tmp_path / "three.json").write_text(json.dumps(third, indent=1))
    stamped = parts[3].assign(time=pd.to_datetime(parts[3]["time"], unit="s", utc=True))
    rtt = pa.array(stamped["rtt"], pa.float64(), from_pandas=True)
    names = {"source": pa.array(list(stamped["from"])), "to": pa.array(list(stamped["to"]))}
    pq.write_table(pa.table(names | {"time": pa.array(stamped["time"]), "rtt": rtt}), tmp_path / "four.parquet")
    report = invoke_json(
        "measurements",
        tmp_path / "one.csv",
        str(tmp_path / "t*"),
        tmp_path / "four.parquet",
        "-o",
        tmp_path / "out",
        "--bucket",
        "30min",
    )
    wanted = aggregates(frame, 1800)
    assert report["rows"]["rows"] == len(frame)
    assert report["rows"]["quarantined_total"] == 0
    assert_equal(read(tmp_path / "out", "pairs"), wanted)
    assert (tmp_path / "out" / "report.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "out" / "report.json").read_text())["coverage"]["pairs"] == 10
    medians = wanted.dropna(subset=["median_ms"]).groupby(["a", "b"])["median_ms"].median()
    latency = read(tmp_path / "out", "latency.parquet").set_index(["from", "to"])["rtt_ms"].sort_index()
    np.testing.assert_allclose(latency.to_numpy(), medians.to_numpy())
    assert list(latency.index) == list(medians.index)


def test_atlas_results(tmp_path: Path) -> None:
    """Packets of a record become pings; timeouts are losses, marked duplicates go, errors are quarantined."""

    def result(source: str, target: str, packets: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "fw": 5080,
            "msm_id": 1,
            "prb_id": 6,
            "from": source,
            "src_addr": "192.168.0.2",
            "dst_addr": target,
            "timestamp": 1_700_000_000,
            "type": "ping",
            "min": -1,
            "result": packets,
            **more,
        }

    records = [
        result("10.0.0.1", "10.0.0.2", [{"rtt": 10.0}, {"rtt": 14.0}, {"x": "*"}]),
        result("10.0.0.2", "10.0.0.1", [{"rtt": 12.0}, {"rtt": 12.0}, {"rtt": 12.0, "dup": 1}]),
        result("10.0.0.2", "10.0.0.3", [{"error": "connect failed: Network is unreachable"}]),
        result("10.0.0.2", "10.0.0.3", []),
        result("10.0.0.2", "10.0.0.3", [{"rtt": -3.0}, {"rtt": 9.5}]),
        result("10.0.0.1", "10.0.0.2", [{"rtt": 10.0}, {"rtt": 14.0}, {"x": "*"}]),
    ]
    lines = [*map(json.dumps, records), '{"fw": 5080, "msm_id": 1, "prb_id"']
    (tmp_path / "atlas.json").write_text("\n".join(lines) + "\n")
    report = invoke_json("measurements", tmp_path / "atlas.json", "-o", tmp_path / "out")
    assert report["rows"]["rows"] == 3 + 3 + 1 + 1 + 2 + 3 + 1
    assert report["rows"]["duplicates"] == 3 + 1
    assert report["rows"]["quarantined"] == {"not_parsed": 2, "probe_error": 1, "rtt_negative": 1}
    places = read(tmp_path / "out", "quarantine").set_index("line")["reason"].to_dict()
    assert places == {3: "probe_error", 4: "not_parsed", 5: "rtt_negative", 7: "not_parsed"}
    pair = read(tmp_path / "out", "pairs").set_index(["a", "b"]).loc[("10.0.0.1", "10.0.0.2")]
    assert (pair["count"], pair["lost"], pair["median_ms"], pair["asymmetry_ms"]) == (5, 1, 12.0, 0.0)
    assert (pair["count_ab"], pair["lost_ab"], pair["jitter_ms"]) == (3, 1, 2.0)


def test_floored_zeros_are_kept_and_counted(tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("from,to,rtt\na,b,0\na,b,0\na,b,4\n")
    report = invoke_json(
        "measurements", tmp_path / "z.csv", "-o", tmp_path / "out", "--zeros", "floored", "--floor", "250us"
    )
    assert (report["rows"]["good"], report["rows"]["floored"], report["rows"]["duplicates"]) == (3, 2, 0)
    row = read(tmp_path / "out", "pairs").iloc[0]
    assert (row["min_ms"], row["median_ms"]) == (0.25, 0.25)


def test_rtts_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text("from,to,time,rtt\na,b,1700000000,0.012\na,b,1700000001,0.014\n")
    told = invoke_json("measurements", tmp_path / "raw.csv", "-o", tmp_path / "out", "--unit", "s")
    assert told["output"]
    assert read(tmp_path / "out", "latency.parquet")["rtt_ms"].tolist() == pytest.approx([13.0], abs=1.01)
    assert invoke("measurements", tmp_path / "raw.csv", "-o", tmp_path / "o", "--unit", "h").exit_code == 2


def test_one_ping_per_pair_and_bucket_is_drawn_too(tmp_path: Path) -> None:
    """Matrices hour by hour have no jitter at all; the picture must not need any."""
    (tmp_path / "m.csv").write_text("from,to,time,rtt\na,b,1700000000,4\nb,a,1700000000,5\na,b,1700010000,6\n")
    report = invoke_json("measurements", tmp_path / "m.csv", "-o", tmp_path / "out")
    assert report["rows"]["good"] == 3
    assert read(tmp_path / "out", "pairs")["jitter_ms"].isna().all()
    assert (tmp_path / "out" / "report.png").stat().st_size > 10_000


def test_files_without_a_good_row_are_accounted_for(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("from,to,rtt\na,b,-1\n")
    report = invoke_json("measurements", tmp_path / "bad.csv", "-o", tmp_path / "out")
    assert (report["rows"]["rows"], report["rows"]["quarantined"]) == (1, {"rtt_negative": 1})
    assert report["coverage"]["pairs"] == 0
    assert len(read(tmp_path / "out", "latency.parquet")) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing.csv"], "no such file, folder or glob"),
        (["{folder}/notes.pdf"], "unknown ending"),
        (["{folder}/odd.csv"], "no column for 'rtt'"),
        (["{folder}/odd.csv", "--columns", "rtt=delay"], "no column 'delay'"),
        (["{folder}/odd.csv", "--columns", "colour=red"], "expected PART=COLUMN"),
        (["{folder}/odd.csv", "--nodes", "{folder}/odd.csv"], "no column of ids"),
        (["{folder}/odd.csv", "--bucket", "5"], "give a unit"),
        (["{folder}/odd.csv", "--zeros", "gone"], "missing or floored expected"),
        (["{folder}/odd.csv", "--since", "soon"], "a time such as"),
    ],
)
def test_bad_input_names_what_is_wrong(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "notes.pdf").write_text("x")
    (tmp_path / "odd.csv").write_text("from,to,weight\na,b,1\n")
    result = invoke("measurements", *(text.format(folder=tmp_path) for text in arguments), "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.shared
def test_fit_rounds_equal_pandas(shared: Path, tmp_path: Path) -> None:
    file = shared / "data" / "latency" / "fit-rounds.csv.gz"
    report = invoke_json("measurements", file, "-o", tmp_path / "out")
    raw = pd.read_csv(file)
    rows = pd.DataFrame(
        {
            "from": raw["site"] + "_" + raw["a"],
            "to": raw["site"] + "_" + raw["b"],
            "sequence": raw["round"],
            "rtt": raw["rtt_ms"],
        }
    )
    assert report["rows"]["good"] == len(raw) == 250_541
    assert report["loss"]["lost"] == raw["rtt_ms"].isna().sum()
    assert_equal(read(tmp_path / "out", "pairs"), aggregates(rows, None))


@pytest.mark.shared
@pytest.mark.slow
def test_hourly_atlas_matrices_equal_pandas(shared: Path, tmp_path: Path) -> None:
    """Twelve hourly matrices as raw rows; 0 and 1 (filled) are told as zeros, that is missing."""
    stored = np.load(shared / "data" / "latency" / "ripe-atlas-631-hourly-00-11.npz")
    sums, labels = stored["rtt_sum_ms"], stored["labels"]
    n = len(labels)
    frames = []
    for hour in range(len(sums)):
        i, j = np.nonzero(~np.eye(n, dtype=bool))
        rtt = sums[hour][i, j].astype(float)
        frames.append(
            pd.DataFrame(
                {
                    "from": labels[i],
                    "to": labels[j],
                    "time": 1_688_256_000 + 3600 * hour,
                    "rtt": np.where(rtt <= 1, 0.0, rtt / 2),
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True)
    compare_matrices(frame, tmp_path)


@pytest.mark.shared
@pytest.mark.slow
def test_planetlab_slots_equal_pandas(shared: Path, tmp_path: Path) -> None:
    stored = np.load(shared / "data" / "latency" / "planetlab-490-18slots.npz")
    slots, labels = stored["rtt_ms"], stored["labels"].astype(str)
    i, j = np.nonzero(~np.eye(len(labels), dtype=bool))
    frame = pd.concat(
        [
            pd.DataFrame(
                {
                    "from": labels[i],
                    "to": labels[j],
                    "time": 1_400_000_000 + 900 * slot,
                    "rtt": slots[slot][i, j].astype(float),
                }
            )
            for slot in range(len(slots))
        ],
        ignore_index=True,
    )
    compare_matrices(frame, tmp_path)


def compare_matrices(frame: pd.DataFrame, folder: Path) -> None:
    """Rows of matrices through the command as Parquet; zeros are quarantined, the rest equals pandas."""
    table = pa.table(
        {
            "from": pa.array(list(frame["from"])),
            "to": pa.array(list(frame["to"])),
            "time": frame["time"].to_numpy(),
            "rtt": frame["rtt"].to_numpy(),
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    report = invoke_json("measurements", folder / "rows.parquet", "-o", folder / "out")
    zero = frame["rtt"] == 0
    assert report["rows"]["rows"] == len(frame)
    assert report["rows"]["quarantined"].get("rtt_zero", 0) == zero.sum()
    wanted = aggregates(frame[~zero], 3600)
    assert_equal(read(folder / "out", "pairs"), wanted)
