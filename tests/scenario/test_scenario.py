"""Good scenarios: what they mean."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from builders import FILES, write_files, write_scenario
from nova.model.errors import InvalidInput
from nova.model.options import Options
from nova.model.problem import Dense, Equal, Pairs
from nova.model.rates import pair_rates, result_rates
from nova.placement.resolve import resolve
from nova.scenario import Columns, load
from nova.scenario.writer import write

SCENARIO = FILES["scenario.yaml"]


def test_the_small_scenario(tmp_path: Path) -> None:
    scenario = load(write_scenario(tmp_path))
    problem = scenario.problem
    assert problem.nodes.ids.to_pylist() == ["edge1", "edge2", "fog", "cloud", "hq"]
    assert problem.nodes.hosts.tolist() == [True, True, True, True, False]
    assert np.isinf(problem.nodes.bandwidth).all()
    assert problem.streams == ("pressure", "humidity")
    assert problem.sources.ids.to_pylist() == ["p1", "p2", "h1", "h2"]
    assert problem.sources.stream.tolist() == [0, 0, 1, 1]
    assert problem.sources.node.tolist() == [0, 1, 1, 0]
    (query,) = problem.queries
    assert (query.left, query.right, query.sink, query.window_ms) == (0, 1, 4, 1000.0)
    joins = resolve(problem)
    assert (joins.left.tolist(), joins.right.tolist()) == ([0, 1], [2, 3])
    assert scenario.options == Options(waiting=0.0)
    assert scenario.digest == problem.digest
    assert len(scenario.digest) == 64


def test_numbers_with_units_and_infinite_capacity(tmp_path: Path) -> None:
    nodes = "id,capacity,bandwidth,x,hosts\nedge1,1 kHz,600/min,0,yes\nedge2,inf,,1,0\nfog,5,inf,2,1\nhq,0,0,3,no\n"
    problem = load(write_files(tmp_path, {"nodes.csv": nodes})).problem
    assert problem.nodes.capacity.tolist() == [1000, math.inf, 5, 0]
    assert problem.nodes.bandwidth.tolist() == [10, math.inf, math.inf, 0]
    assert problem.nodes.hosts.tolist() == [True, False, True, False]
    assert problem.nodes.coordinates is not None
    assert problem.nodes.coordinates.shape == (4, 1)


def test_pairs_are_sorted_and_shifted_to_the_source_table(tmp_path: Path) -> None:
    pairs = "left,right,output_rate\np2,h1,3/s\np1,h2,\n"
    changes = {"scenario.yaml": SCENARIO.replace("on: region", "pairs: pairs.csv"), "pairs.csv": pairs}
    (query,) = load(write_files(tmp_path, changes)).problem.queries
    assert isinstance(query.matrix, Pairs)
    assert query.matrix.left.tolist() == [0, 1]
    assert query.matrix.right.tolist() == [3, 2]
    np.testing.assert_array_equal(query.matrix.output_rate, [math.nan, 3])


def test_neither_on_nor_pairs_is_dense(tmp_path: Path) -> None:
    problem = load(write_files(tmp_path, {"scenario.yaml": SCENARIO.replace("    on: region\n", "")})).problem
    assert isinstance(problem.queries[0].matrix, Dense)
    assert len(resolve(problem)) == 4


def test_composite_attributes_and_missing_values(tmp_path: Path) -> None:
    changes = {
        "scenario.yaml": SCENARIO.replace("on: region", "on: [region, floor]"),
        "pressure.csv": "id,node,rate,region,floor\np1,edge1,1,north,1\np2,edge1,1,north,2\np3,edge1,1,,2\n",
        "humidity.csv": "id,node,rate,floor,region\nh1,edge1,1,2,north\nh2,edge1,1,1,south\nh3,edge1,1,2,\n",
    }
    scenario = load(write_files(tmp_path, changes))
    matrix = scenario.problem.queries[0].matrix
    assert isinstance(matrix, Equal)
    assert matrix.attribute == "region, floor"
    assert matrix.left[2] == matrix.right[2] == -1
    joins = resolve(scenario.problem)
    assert (joins.left.tolist(), joins.right.tolist()) == ([1], [3])
    assert [w.partition("query ")[2] for w in scenario.warnings] == [
        "'climate': 1 sources of stream 'pressure' have no region, floor: they join nothing",
        "'climate': 1 sources of stream 'humidity' have no region, floor: they join nothing",
    ]


def test_attributes_agree_across_types(tmp_path: Path) -> None:
    changes = {
        "scenario.yaml": SCENARIO.replace("humidity.csv", "humidity.parquet"),
        "pressure.csv": "id,node,rate,region\np1,edge1,1,7\np2,edge1,1,8\n",
    }
    path = write_files(tmp_path, changes)
    table = pa.table({"id": [1, 2], "node": ["edge1", "fog"], "rate": [3, 4], "region": [8.0, 9.0]})
    pq.write_table(table, tmp_path / "humidity.parquet")
    problem = load(path).problem
    assert problem.sources.ids.to_pylist() == ["p1", "p2", "1", "2"]
    joins = resolve(problem)
    assert (joins.left.tolist(), joins.right.tolist()) == ([1], [2])


def test_several_queries_and_sinks_share_sources(tmp_path: Path) -> None:
    more = (
        "  - {id: wide, left: humidity, right: pressure, sink: edge1, window: {tumbling: 500 ms}}\n"
        "  - {id: third, left: pressure, right: wind, sink: fog, on: [region]}\n"
    )
    changes = {
        "scenario.yaml": SCENARIO.replace("queries:", "  wind: {sources: wind.csv}\nqueries:") + more,
        "wind.csv": "id,node,rate,region\np1,fog,2,south\n",
    }
    problem = load(write_files(tmp_path, changes)).problem
    assert [(q.id, q.left, q.right, q.sink, q.window_ms) for q in problem.queries] == [
        ("climate", 0, 1, 3, 1000),
        ("wide", 1, 0, 0, 500),
        ("third", 0, 2, 2, 1000),
    ]
    joins = resolve(problem)
    assert np.bincount(joins.query).tolist() == [2, 4, 1]


def test_yaml_names_stay_names(tmp_path: Path) -> None:
    text = """
nova: 1
nodes:
  - {id: no, capacity: 1, x: 0}
  - {id: 007, capacity: 1, x: 0}
  - {id: 2024-01-01, capacity: .inf, x: 0}
  - {id: 12, capacity: 1e3, x: 1.5e1}
  - {id: 1e5, capacity: 1, x: 0}
  - {id: 1_000, capacity: 1, x: -.5}
streams:
  yes: {sources: y.csv}
  5: {sources: five.csv}
queries:
  - {id: 3, left: yes, right: 5, sink: 007}
"""
    path = tmp_path / "s.yaml"
    path.write_text(text)
    (tmp_path / "y.csv").write_text("id,node,rate\na,no,1\nb,12,1\n")
    (tmp_path / "five.csv").write_text("id,node,rate\na,2024-01-01,1\nb,1_000,1\n")
    problem = load(path).problem
    assert problem.nodes.ids.to_pylist() == ["no", "007", "2024-01-01", "12", "1e5", "1_000"]
    assert problem.nodes.capacity.tolist() == [1, 1, math.inf, 1000, 1, 1]
    assert problem.streams == ("yes", "5")
    assert problem.queries[0].id == "3"
    assert problem.queries[0].sink == 1


def test_spaces_around_cells_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    text = "\ufeffid, node, rate, region\r\np1, edge1, 25, north\r\n p2 ,edge2, 25 Hz ,south\r\n"
    spaced = load(write_files(tmp_path / "a", {"pressure.csv": text}))
    assert spaced.digest == load(write_files(tmp_path / "b")).digest


def test_options_and_overrides(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"scenario.yaml": SCENARIO + "options: {seed: 7, partition: grid, c_min: 2 kHz}\n"})
    assert load(path).options == Options(seed=7, partition="grid", c_min=2000.0)
    assert load(path, {"seed": 9, "objective": None}).options == Options(seed=9, partition="grid", c_min=2000.0)


def test_the_digest_notices_data_but_not_options_or_labels(tmp_path: Path) -> None:
    base = load(write_files(tmp_path / "a")).digest
    labelled = FILES["nodes.csv"].replace("\n", ",here\n").replace("hosts,here", "hosts,town")
    label: dict[str, str | bytes | None] = {"nodes.csv": labelled}
    assert load(write_files(tmp_path / "b", label)).digest == base
    assert load(write_files(tmp_path / "c", {"scenario.yaml": SCENARIO + "options: {seed: 3}\n"})).digest == base
    for k, (name, old, new) in enumerate(
        [
            ("nodes.csv", "fog,120", "fog,121"),
            ("rtt.csv", "8.2", "8.3"),
            ("pressure.csv", "p1,edge1,25", "p1,edge1,26"),
            ("pressure.csv", "p1,edge1", "p1,fog"),
            ("scenario.yaml", "sink: hq", "sink: fog"),
            ("scenario.yaml", "on: region", "window: {tumbling: 2s}"),
        ]
    ):
        changed = FILES[name].replace(old, new)
        assert load(write_files(tmp_path / str(k), {name: changed})).digest != base


def test_stream_inputs_are_kept_for_the_runtime(tmp_path: Path) -> None:
    given = "{format: kafka, options: {subscribe: p, n: 3, fast: true}, columns: {source: sensor}}"
    text = SCENARIO.replace("sources: pressure.csv", f"sources: pressure.csv, input: {given}")
    text = text.replace("sources: humidity.csv", "sources: humidity.csv, input: {format: csv, path: data/h.csv}")
    scenario = load(write_files(tmp_path, {"scenario.yaml": text}))
    kafka, file = scenario.streams["pressure"].input, scenario.streams["humidity"].input
    assert kafka is not None
    assert (kafka.format, kafka.path, kafka.options) == ("kafka", None, {"subscribe": "p", "n": 3, "fast": True})
    assert kafka.columns == Columns(source="sensor", time="event_time", value="value")
    assert file is not None
    assert file.location(scenario.path.parent) == str(tmp_path / "data/h.csv")
    assert kafka.location(tmp_path) is None
    assert scenario.document.queries[0].on == ("region",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"nodes.csv": FILES["nodes.csv"].replace("hosts", "host")},
            "column 'host' is taken as a label; did you mean 'hosts'",
        ),
        (
            {"scenario.yaml": SCENARIO.replace("queries:", "  wind: {sources: humidity.csv}\nqueries:")},
            "no query joins stream 'wind'",
        ),
        ({"nodes.csv": FILES["nodes.csv"].replace("x,y", "height,y")}, "heights are only used with coordinates"),
    ],
)
def test_warnings(changes: dict[str, str | bytes | None], says: str, tmp_path: Path) -> None:
    (warning,) = load(write_files(tmp_path, changes)).warnings
    assert says in warning


@pytest.mark.slow
def test_a_million_nodes_load(tmp_path: Path) -> None:
    n = 1_000_000
    ids = np.char.add("n", np.arange(n).astype(str))
    place = np.random.default_rng(1).normal(size=(2, n)).round(3)
    table = pa.table({"id": ids, "capacity": np.full(n, 100), "x": place[0], "y": place[1]})
    pacsv.write_csv(table, tmp_path / "nodes.csv")
    for name in ("pressure", "humidity"):
        sources = pa.table({"id": ids[:300_000], "node": ids[:300_000], "rate": ["25 Hz"] * 300_000})
        keys = pa.array(np.arange(300_000) // 3)
        pacsv.write_csv(sources.append_column("region", keys), tmp_path / f"{name}.csv")
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("latency: rtt.csv\n", "").replace("sink: hq", "sink: n7"))
    problem = load(tmp_path / "scenario.yaml").problem
    assert len(problem.nodes) == n
    assert len(resolve(problem)) == 900_000


def test_a_query_may_say_which_share_of_its_pairs_matches(tmp_path: Path) -> None:
    """What is stated stays so when the scenario is written again; filters of streams are for SQL."""
    changes = {"scenario.yaml": SCENARIO.replace("on: region", "on: region\n    selectivity: {join: 0.1}")}
    problem = load(write_files(tmp_path / "stated", changes)).problem
    joins = resolve(problem)
    assert result_rates(problem, joins) == pytest.approx(0.1 * pair_rates(problem, joins))
    file = write(tmp_path / "again", problem, Options())
    assert file is not None
    assert load(file).problem.queries[0].output == problem.queries[0].output
    wrong = {"scenario.yaml": SCENARIO.replace("on: region", "on: region\n    selectivity: {pressure: 0.1}")}
    with pytest.raises(InvalidInput, match="`selectivity` has `join` alone"):
        load(write_files(tmp_path / "wrong", wrong))
