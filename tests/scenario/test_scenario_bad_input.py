"""Everything that can be wrong with a scenario is named: file, row, field and value, all at once."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import FILES, invoke, write_files
from nova.model.errors import SHOWN, Fault, InvalidInput
from nova.scenario import load

SCENARIO = FILES["scenario.yaml"]
NO_XY = "id,capacity,hosts\nedge1,60,\nedge2,60,\nfog,120,true\nhq,20,false\n"


def faults_of(path: Path) -> tuple[Fault, ...]:
    with pytest.raises(InvalidInput) as caught:
        load(path)
    return caught.value.faults


def test_the_unchanged_files_are_in_order(tmp_path: Path) -> None:
    assert load(write_files(tmp_path)).warnings == ()


CASES: dict[str, tuple[dict[str, str | bytes | None], str, int | None, str | None, object, str]] = {
    # what is wrong: (changed files, then the fault: file, row, field, value, words of the message)
    "unknown node of a source": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,25,north\np2,egde2,25,south\n"},
        "pressure.csv",
        3,
        "node",
        "egde2",
        "no such node; did you mean 'edge2'",
    ),
    "unknown node in the latency list": (
        {"rtt.csv": "from,to,rtt_ms\nedge1,edge2,14\nedge1,foggy,8\n"},
        "rtt.csv",
        3,
        "to",
        "foggy",
        "did you mean 'fog'",
    ),
    "duplicate node": (
        {"nodes.csv": FILES["nodes.csv"] + "fog,1,1,1,\n"},
        "nodes.csv",
        6,
        "id",
        "fog",
        "duplicate: row 4",
    ),
    "duplicate source": (
        {"humidity.csv": FILES["humidity.csv"] + "h1,edge1,5,south\n"},
        "humidity.csv",
        4,
        "id",
        "h1",
        "duplicate: row 2",
    ),
    "missing id": (
        {"humidity.csv": FILES["humidity.csv"] + ",edge1,5,north\n"},
        "humidity.csv",
        4,
        "id",
        None,
        "missing",
    ),
    "missing node of a source": (
        {"humidity.csv": FILES["humidity.csv"] + "h3,,5,north\n"},
        "humidity.csv",
        4,
        "node",
        None,
        "missing",
    ),
    "rate missing": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,,north\n"},
        "pressure.csv",
        2,
        "rate",
        None,
        "missing",
    ),
    "rate NaN": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,NaN,north\n"},
        "pressure.csv",
        2,
        "rate",
        "NaN",
        "NaN",
    ),
    "rate infinite": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,inf,north\n"},
        "pressure.csv",
        2,
        "rate",
        "inf",
        "infinite",
    ),
    "rate negative": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,-3,north\n"},
        "pressure.csv",
        2,
        "rate",
        "-3",
        "negative",
    ),
    "rate minus infinite": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,-inf,north\n"},
        "pressure.csv",
        2,
        "rate",
        "-inf",
        "negative",
    ),
    "rate with a unit that does not parse": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,25 furlongs,north\n"},
        "pressure.csv",
        2,
        "rate",
        "25 furlongs",
        "unknown unit 'furlongs'",
    ),
    "capacity NaN": (
        {"nodes.csv": FILES["nodes.csv"].replace("fog,120", "fog,nan")},
        "nodes.csv",
        4,
        "capacity",
        "nan",
        "NaN",
    ),
    "capacity negative": (
        {"nodes.csv": FILES["nodes.csv"].replace("fog,120", "fog,-1 kHz")},
        "nodes.csv",
        4,
        "capacity",
        "-1 kHz",
        "negative",
    ),
    "capacity missing": (
        {"nodes.csv": FILES["nodes.csv"].replace("fog,120", "fog,")},
        "nodes.csv",
        4,
        "capacity",
        None,
        "missing",
    ),
    "hosts neither true nor false": (
        {"nodes.csv": FILES["nodes.csv"].replace("true", "maybe")},
        "nodes.csv",
        4,
        "hosts",
        "maybe",
        "true or false",
    ),
    "coordinate missing": (
        {"nodes.csv": FILES["nodes.csv"].replace("fog,120,8", "fog,120,")},
        "nodes.csv",
        4,
        "x",
        None,
        "missing",
    ),
    "coordinate infinite": (
        {"nodes.csv": FILES["nodes.csv"].replace("fog,120,8", "fog,120,-inf")},
        "nodes.csv",
        4,
        "x",
        "-inf",
        "infinite",
    ),
    "coordinates with a gap": (
        {"nodes.csv": FILES["nodes.csv"].replace("x,y", "x0,x2")},
        "nodes.csv",
        None,
        None,
        None,
        "without gaps",
    ),
    "coordinate z without y": (
        {"nodes.csv": FILES["nodes.csv"].replace("x,y", "x,z")},
        "nodes.csv",
        None,
        "y",
        None,
        "z without y",
    ),
    "coordinates named in both ways": (
        {"nodes.csv": FILES["nodes.csv"].replace("x,y", "x,x0")},
        "nodes.csv",
        None,
        None,
        None,
        "not both",
    ),
    "RTT NaN": ({"rtt.csv": "from,to,rtt_ms\nedge1,edge2,nan\n"}, "rtt.csv", 2, "rtt_ms", "nan", "NaN"),
    "RTT infinite": ({"rtt.csv": "from,to,rtt_ms\nedge1,edge2,inf\n"}, "rtt.csv", 2, "rtt_ms", "inf", "infinite"),
    "RTT negative": ({"rtt.csv": "from,to,rtt_ms\nedge1,edge2,-1\n"}, "rtt.csv", 2, "rtt_ms", "-1", "negative"),
    "RTT absurd": (
        {"rtt.csv": "from,to,rtt_ms\nedge1,edge2,61s\n"},
        "rtt.csv",
        2,
        "rtt_ms",
        "61s",
        "more than 60,000 ms",
    ),
    "RTT of a pair twice": (
        {"rtt.csv": FILES["rtt.csv"] + "fog,hq,6\n"},
        "rtt.csv",
        6,
        "to",
        "fog → hq",
        "duplicate: row 5",
    ),
    "RTT NaN in a matrix": (
        {"rtt.csv": "id,edge1,edge2\nedge1,0,NaN\nedge2,3,0\n"},
        "rtt.csv",
        2,
        "edge2",
        ...,
        "NaN",
    ),
    "RTT negative in a matrix": (
        {"rtt.csv": "id,edge1,edge2\nedge1,0,3\nedge2,-3,0\n"},
        "rtt.csv",
        3,
        "edge1",
        -3.0,
        "negative",
    ),
    "RTT absurd in a matrix": (
        {"rtt.csv": "id,edge1,edge2\nedge1,0,70000\nedge2,,0\n"},
        "rtt.csv",
        2,
        "edge2",
        70000.0,
        "absurd",
    ),
    "RTT of a matrix that is no number": (
        {"rtt.csv": "id,edge1,edge2\nedge1,0,3\nedge2,slow,0\n"},
        "rtt.csv",
        3,
        "edge1",
        "slow",
        "not a number",
    ),
    "matrix with an unknown node": (
        {"rtt.csv": "id,edge1,edge7\nedge1,0,3\nedge7,3,0\n"},
        "rtt.csv",
        3,
        "id",
        "edge7",
        "no such node",
    ),
    "matrix whose header differs": (
        {"rtt.csv": "id,edge1,fog\nedge1,0,3\nedge2,3,0\n"},
        "rtt.csv",
        1,
        "id",
        None,
        "only in the first column: edge2; only",
    ),
    "matrix in another order": (
        {"rtt.csv": "id,edge1,edge2\nedge2,0,3\nedge1,3,0\n"},
        "rtt.csv",
        2,
        "id",
        "edge2",
        "different orders",
    ),
    "latency table of no known shape": (
        {"rtt.csv": "src,dst,ping\nedge1,edge2,3\n"},
        "rtt.csv",
        1,
        None,
        None,
        "the columns here are src, dst, ping",
    ),
    "unreachable pieces": (
        {"nodes.csv": NO_XY, "rtt.csv": "from,to,rtt_ms\nedge1,edge2,14\nfog,hq,8\n"},
        "scenario.yaml",
        None,
        "latency",
        None,
        "2 pieces with no path between them: 2 nodes (edge1, edge2); 2 nodes (fog, hq)",
    ),
    "host without any RTT": (
        {"nodes.csv": NO_XY + "lonely,5,\n"},
        "scenario.yaml",
        None,
        "latency",
        None,
        "4 nodes (edge1, edge2, fog, hq); 1 node (lonely)",
    ),
    "only zero RTTs": (
        {"nodes.csv": NO_XY, "rtt.csv": "from,to,rtt_ms\nedge1,edge2,0\n"},
        "scenario.yaml",
        None,
        "latency",
        None,
        "4 pieces",
    ),
    "neither latencies nor coordinates": (
        {"nodes.csv": NO_XY, "scenario.yaml": SCENARIO.replace("latency: rtt.csv\n", "")},
        "scenario.yaml",
        None,
        "latency",
        None,
        "no latencies",
    ),
    "self-join of a stream": (
        {"scenario.yaml": SCENARIO.replace("right: humidity", "right: pressure")},
        "scenario.yaml",
        10,
        "queries.0.right",
        "pressure",
        "not joined with itself",
    ),
    "self-join of a source": (
        {
            "scenario.yaml": SCENARIO.replace("right: humidity", "right: pressure").replace(
                "on: region", "pairs: pairs.csv"
            ),
            "pairs.csv": "left,right\np1,p2\np1,p1\n",
        },
        "pairs.csv",
        3,
        "right",
        "p1 ⋈ p1",
        "a source is not joined with itself",
    ),
    "empty stream": (
        {"humidity.csv": "id,node,rate\n"},
        "humidity.csv",
        None,
        "streams.humidity.sources",
        None,
        "no rows",
    ),
    "empty nodes": ({"nodes.csv": "id,capacity\n"}, "nodes.csv", None, "nodes", None, "no rows"),
    "empty latency": ({"rtt.csv": "from,to,rtt_ms\n"}, "rtt.csv", None, "latency", None, "no rows"),
    "empty file": ({"humidity.csv": "\n\n"}, "humidity.csv", None, None, None, "the file is empty"),
    "sink that is not a node": (
        {"scenario.yaml": SCENARIO.replace("sink: hq", "sink: hqq")},
        "scenario.yaml",
        12,
        "queries.0.sink",
        "hqq",
        "did you mean 'hq'",
    ),
    "unknown stream": (
        {"scenario.yaml": SCENARIO.replace("left: pressure", "left: presure")},
        "scenario.yaml",
        9,
        "queries.0.left",
        "presure",
        "did you mean 'pressure'",
    ),
    "query twice": (
        {"scenario.yaml": SCENARIO + "  - {id: climate, left: pressure, right: humidity, sink: hq}\n"},
        "scenario.yaml",
        13,
        "queries.1.id",
        "climate",
        "duplicate",
    ),
    "matrix that allows no pair": (
        {"humidity.csv": FILES["humidity.csv"].replace("north", "east").replace("south", "west")},
        "scenario.yaml",
        11,
        "queries.0.on",
        None,
        "pressure has north, south, humidity has east, west",
    ),
    "attribute that does not exist": (
        {"scenario.yaml": SCENARIO.replace("on: region", "on: regoin")},
        "pressure.csv",
        1,
        "regoin",
        None,
        "did you mean 'region'?; the columns here are id, node, rate, region",
    ),
    "unknown source in pairs": (
        {
            "scenario.yaml": SCENARIO.replace("on: region", "pairs: pairs.csv"),
            "pairs.csv": "left,right\np1,h1\np9,h2\n",
        },
        "pairs.csv",
        3,
        "left",
        "p9",
        "no such source of stream 'pressure'",
    ),
    "pair twice": (
        {
            "scenario.yaml": SCENARIO.replace("on: region", "pairs: pairs.csv"),
            "pairs.csv": "left,right\np1,h1\np1,h1\n",
        },
        "pairs.csv",
        3,
        "right",
        "p1 ⋈ h1",
        "duplicate: row 2",
    ),
    "output rate negative": (
        {
            "scenario.yaml": SCENARIO.replace("on: region", "pairs: pairs.csv"),
            "pairs.csv": "left,right,output_rate\np1,h1,-2\n",
        },
        "pairs.csv",
        2,
        "output_rate",
        "-2",
        "negative",
    ),
    "empty pairs": (
        {"scenario.yaml": SCENARIO.replace("on: region", "pairs: pairs.csv"), "pairs.csv": "left,right\n"},
        "pairs.csv",
        None,
        "queries.climate.pairs",
        None,
        "no rows",
    ),
    "both on and pairs": (
        {"scenario.yaml": SCENARIO.replace("on: region", "on: region\n    pairs: pairs.csv")},
        "scenario.yaml",
        8,
        "queries.0",
        ...,
        "give one of them",
    ),
    "missing file": ({"rtt.csv": None}, "rtt.csv", None, "latency", None, "no such file"),
    "file with a typo": (
        {"scenario.yaml": SCENARIO.replace("humidity.csv", "humidty.csv")},
        "humidty.csv",
        None,
        "streams.humidity.sources",
        None,
        "did you mean 'humidity.csv'",
    ),
    "table of no known format": (
        {"scenario.yaml": SCENARIO.replace("rtt.csv", "rtt.xls"), "rtt.xls": "x"},
        "rtt.xls",
        None,
        "latency",
        None,
        ".parquet",
    ),
    "ragged row": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,25,north\n\np2,edge2,25\n"},
        "pressure.csv",
        4,
        None,
        "p2,edge2,25",
        "3 fields where the header has 4",
    ),
    "wrong column name": (
        {"pressure.csv": "id,node,rtae,region\np1,edge1,25,north\n"},
        "pressure.csv",
        1,
        "rate",
        None,
        "did you mean 'rtae'?; the columns here are id, node, rtae, region",
    ),
    "column twice": (
        {"pressure.csv": "id,node,rate,rate\np1,edge1,25,3\n"},
        "pressure.csv",
        1,
        "rate",
        None,
        "two columns",
    ),
    "not UTF-8": (
        {"pressure.csv": "id,node,rate,region\np1,edge1,25,north\np2,edge2,25,süd\n".encode("latin-1")},
        "pressure.csv",
        3,
        None,
        ...,
        "not UTF-8",
    ),
    "not YAML": ({"scenario.yaml": SCENARIO + "  - id: [\n"}, "scenario.yaml", 14, None, None, "not YAML"),
    "field twice": (
        {"scenario.yaml": SCENARIO + "nodes: other.csv\n"},
        "scenario.yaml",
        13,
        None,
        None,
        "'nodes' stands here twice",
    ),
    "scenario that is not UTF-8": (
        {"scenario.yaml": SCENARIO.encode() + b"# \xff\n"},
        "scenario.yaml",
        13,
        None,
        b"\xff",
        "not UTF-8",
    ),
    "empty scenario": ({"scenario.yaml": "# nothing\n"}, "scenario.yaml", None, None, None, "empty"),
    "scenario that is a list": ({"scenario.yaml": "- nova: 1\n"}, "scenario.yaml", 1, None, None, "not a list"),
    "missing scenario": ({"scenario.yaml": None}, "scenario.yaml", None, None, None, "no such file"),
    "unknown field": (
        {"scenario.yaml": SCENARIO + "latencey: x\n"},
        "scenario.yaml",
        13,
        "latencey",
        None,
        "did you mean 'latency' or 'latency_unit'?; the fields here are nova, nodes, latency, latency_unit, links,",
    ),
    "unknown field of a query": (
        {"scenario.yaml": SCENARIO.replace("sink: hq", "sink: hq\n    widnow: {tumbling: 1s}")},
        "scenario.yaml",
        13,
        "queries.0.widnow",
        None,
        "did you mean 'window'",
    ),
    "missing field": (
        {"scenario.yaml": SCENARIO.replace("    sink: hq\n", "")},
        "scenario.yaml",
        8,
        "queries.0.sink",
        None,
        "missing",
    ),
    "no queries": (
        {"scenario.yaml": SCENARIO[: SCENARIO.index("queries")] + "queries: []\n"},
        "scenario.yaml",
        7,
        "queries",
        [],
        "at least 1",
    ),
    "other version": (
        {"scenario.yaml": SCENARIO.replace("nova: 1", "nova: 2")},
        "scenario.yaml",
        1,
        "nova",
        2,
        "format 1",
    ),
    "window unit that does not parse": (
        {"scenario.yaml": SCENARIO + "    window: {tumbling: 1 fortnight}\n"},
        "scenario.yaml",
        13,
        "queries.0.window.tumbling",
        "1 fortnight",
        "unknown unit 'fortnight'",
    ),
    "window without a unit": (
        {"scenario.yaml": SCENARIO + "    window: {tumbling: 10}\n"},
        "scenario.yaml",
        13,
        "queries.0.window.tumbling",
        10,
        "give a unit",
    ),
    "window of no length": (
        {"scenario.yaml": SCENARIO + "    window: {tumbling: 0s}\n"},
        "scenario.yaml",
        13,
        "queries.0.window.tumbling",
        "0s",
        "positive",
    ),
    "option out of range": (
        {"scenario.yaml": SCENARIO + "options: {sigma: 1.5}\n"},
        "scenario.yaml",
        13,
        "options.sigma",
        1.5,
        "less than or equal to 1",
    ),
    "unknown option": (
        {"scenario.yaml": SCENARIO + "options: {partiton: grid}\n"},
        "scenario.yaml",
        13,
        "options.partiton",
        None,
        "did you mean 'partition'",
    ),
    "option of a wrong kind": (
        {"scenario.yaml": SCENARIO + "options: {seed: many}\n"},
        "scenario.yaml",
        13,
        "options.seed",
        "many",
        "integer",
    ),
    "file input without a path": (
        {"scenario.yaml": SCENARIO.replace("sources: pressure.csv", "sources: pressure.csv, input: {format: csv}")},
        "scenario.yaml",
        5,
        "streams.pressure.input",
        ...,
        "csv input needs a path",
    ),
    "nested inline value": (
        {"scenario.yaml": SCENARIO.replace("humidity.csv", "[{id: h1, node: [edge1], rate: 3}]")},
        "scenario.yaml: streams.humidity.sources",
        1,
        "node",
        ["edge1"],
        "single value",
    ),
    "ragged inline row": (
        {"scenario.yaml": SCENARIO.replace("humidity.csv", "[[id, node, rate], [h1, edge1]]")},
        "scenario.yaml: streams.humidity.sources",
        1,
        None,
        None,
        "2 values where the first row names 3 columns",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_is_named(name: str, tmp_path: Path) -> None:
    changes, file, row, field, value, words = CASES[name]
    found = faults_of(write_files(tmp_path, changes))
    matching = [
        fault
        for fault in found
        if fault.file == str(tmp_path / file)
        and (fault.row, fault.field) == (row, field)
        and (value is ... or fault.value == value)
        and words in fault.message
    ]
    assert matching, "\n".join(str(fault) for fault in found)


@pytest.mark.parametrize("name", ["unknown node of a source", "unreachable pieces", "not YAML", "unknown option"])
def test_exit_code_2_and_nothing_written(name: str, tmp_path: Path) -> None:
    path = write_files(tmp_path / "in", CASES[name][0])
    before = sorted(tmp_path.rglob("*"))
    result = invoke("plan", path, "-o", tmp_path / "plan")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert CASES[name][1] in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_all_problems_at_once(tmp_path: Path) -> None:
    names = [
        "unknown node of a source",
        "capacity NaN",
        "duplicate source",
        "RTT of a pair twice",
        "sink that is not a node",
    ]
    changes: dict[str, Any] = {}
    for name in names:
        changes |= CASES[name][0]
    changes["scenario.yaml"] += "options: {seed: -1}\n"
    found = faults_of(write_files(tmp_path, changes))
    assert {Path(fault.file).name for fault in found} == {
        "pressure.csv",
        "nodes.csv",
        "humidity.csv",
        "rtt.csv",
        "scenario.yaml",
    }
    assert len(found) == len(names) + 1


def test_many_problems_are_counted_but_not_all_listed(tmp_path: Path) -> None:
    rows = "".join(f"p{i},nowhere,25,north\n" for i in range(1000))
    with pytest.raises(InvalidInput) as caught:
        load(write_files(tmp_path, {"pressure.csv": "id,node,rate,region\n" + rows}))
    lines = str(caught.value).splitlines()
    assert lines[0] == "1,000 problems in the input:"
    assert lines[-1] == f"… and {1000 - SHOWN} more"
    assert len(lines) == SHOWN + 2


def test_a_ragged_row_does_not_hide_other_problems_and_lines_stay_right(tmp_path: Path) -> None:
    text = 'id,node,rate,region\n\np1,edge1,25\n"p\n2",edge1,3,north\np3,edge1,-1,north\n'
    found = faults_of(write_files(tmp_path, {"pressure.csv": text}))
    assert [(fault.row, fault.field) for fault in found] == [(3, None), (4, "id"), (6, "rate")]


def test_blank_lines_and_quoted_newlines_count_as_lines(tmp_path: Path) -> None:
    text = 'id,node,rate,region\n\n"p\n2",edge1,3,north\n\np3,edge1,-1,north\n'
    found = faults_of(write_files(tmp_path, {"pressure.csv": text}))
    assert [(fault.row, fault.field) for fault in found] == [(3, "id"), (6, "rate")]


def test_a_field_too_long_for_the_careful_reader_still_has_its_fault_told(tmp_path: Path) -> None:
    nodes = FILES["nodes.csv"].replace("fog,120", f"{'x' * 200_000},-120")
    with pytest.raises(InvalidInput, match=r"nodes\.csv, row 4, field capacity: negative"):
        load(write_files(tmp_path, {"nodes.csv": nodes}))


def test_gzipped_tables_name_lines_too(tmp_path: Path) -> None:
    changes = {
        "scenario.yaml": SCENARIO.replace("humidity.csv", "humidity.csv.gz"),
        "humidity.csv.gz": gzip.compress(FILES["humidity.csv"].replace("h2,edge1", "h2,egde1").encode()),
    }
    (fault,) = faults_of(write_files(tmp_path, changes))
    assert (Path(fault.file).name, fault.row, fault.value) == ("humidity.csv.gz", 3, "egde1")


@pytest.mark.parametrize(
    "content", [b"not gzip", gzip.compress(b"id,node,rate\nh1,edge1,3\n", mtime=0)[:20]], ids=["not gzip", "cut short"]
)
def test_broken_gzip(content: bytes, tmp_path: Path) -> None:
    changes = {"scenario.yaml": SCENARIO.replace("humidity.csv", "humidity.csv.gz"), "humidity.csv.gz": content}
    (fault,) = faults_of(write_files(tmp_path, changes))
    assert "cannot be read" in fault.message


def test_parquet_faults_count_records(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"scenario.yaml": SCENARIO.replace("humidity.csv", "humidity.parquet")})
    table = pa.table(
        {"id": ["h1", "h2"], "node": ["edge1", "edge2"], "rate": [1.0, -2.0], "region": ["north", "south"]}
    )
    pq.write_table(table, tmp_path / "humidity.parquet")
    (fault,) = faults_of(path)
    assert (Path(fault.file).name, fault.row, fault.field, fault.value) == ("humidity.parquet", 2, "rate", -2.0)


def test_broken_parquet(tmp_path: Path) -> None:
    changes = {"scenario.yaml": SCENARIO.replace("humidity.csv", "humidity.parquet"), "humidity.parquet": "id,node"}
    (fault,) = faults_of(write_files(tmp_path, changes))
    assert "not a Parquet file" in fault.message


def test_json_faults_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    path.write_text('{\n  "nova": 1,\n  "nodes": "nodes.csv",\n}')
    (fault,) = faults_of(path)
    assert fault.row in (3, 4)
    path.write_text('{\n  "nova": 1,\n  "nodse": "nodes.csv"\n}')
    assert ("nodse", 3) in [(fault.field, fault.row) for fault in faults_of(path)]
    path.write_text('{"nova": 1, "nova": 1}')
    (fault,) = faults_of(path)
    assert fault.field == "nova"


def test_overrides_are_checked_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(write_files(tmp_path), {"partition": "grd", "sigma": -1.0})
    assert [(fault.file, fault.field, fault.value) for fault in caught.value.faults] == [
        ("overrides", "partition", "grd"),
        ("overrides", "sigma", -1.0),
    ]


def test_too_many_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova.scenario.scenario.MOST_PAIRS", 3)
    (fault,) = faults_of(write_files(tmp_path, {"scenario.yaml": SCENARIO.replace("    on: region\n", "")}))
    assert "4 pairs of sources join" in fault.message
