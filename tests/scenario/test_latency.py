"""Latency tables: shapes, repairs that are said, and what is never invented."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import FILES, write_files
from nova.model.problem import Latency, Problem
from nova.scenario import Scenario, load

NODES = "id,capacity\na,1\nb,1\nc,1\n"
SOURCES = {"pressure.csv": "id,node,rate\np,a,1\n", "humidity.csv": "id,node,rate\nh,b,1\n"}
SCENARIO = FILES["scenario.yaml"].replace("    on: region\n", "").replace("sink: hq", "sink: c")


def read(folder: Path, rtt: str, nodes: str = NODES, scenario: str = SCENARIO) -> Scenario:
    return load(write_files(folder, {**SOURCES, "nodes.csv": nodes, "rtt.csv": rtt, "scenario.yaml": scenario}))


def as_dict(problem: Problem) -> dict[tuple[str, str], float]:
    latency, ids = problem.latency, problem.nodes.ids.to_pylist()
    assert isinstance(latency, Latency)
    assert (latency.first < latency.second).all()
    return {
        (ids[a], ids[b]): rtt for a, b, rtt in zip(latency.first, latency.second, latency.rtt_ms.tolist(), strict=True)
    }


def test_edge_list_in_any_order_and_with_units(tmp_path: Path) -> None:
    scenario = read(tmp_path, "to,rtt_ms,from\nc,5,a\na,0.002 s,b\n")
    assert as_dict(scenario.problem) == {("a", "b"): 2.0, ("a", "c"): 5.0}
    assert scenario.warnings == ()


def test_matrix_with_gaps(tmp_path: Path) -> None:
    scenario = read(tmp_path, "id,c,a,b\nc,0,5,\na,5,0,2\nb,,2,0\n")
    assert as_dict(scenario.problem) == {("a", "b"): 2.0, ("a", "c"): 5.0}
    assert scenario.warnings == ()


def test_matrix_with_one_direction_only(tmp_path: Path) -> None:
    scenario = read(tmp_path, ",a,b,c\na,,2,5\nb,,,3\nc,,,\n")
    assert as_dict(scenario.problem) == {("a", "b"): 2.0, ("a", "c"): 5.0, ("b", "c"): 3.0}
    assert scenario.warnings == ()


def test_matrix_and_edge_list_agree(tmp_path: Path) -> None:
    matrix = read(tmp_path / "m", "id,a,b,c\na,0,2,5\nb,2,0,3\nc,5,3,0\n")
    edges = read(tmp_path / "e", "from,to,rtt_ms\nb,c,3\na,b,2\nc,a,5\n")
    assert matrix.digest == edges.digest


def test_inline_matrix(tmp_path: Path) -> None:
    inline = SCENARIO.replace("rtt.csv", "[[id, a, b, c], [a, 0, 2, 5], [b, 2, 0, null], [c, 5, null, 0]]")
    assert as_dict(read(tmp_path, "", scenario=inline).problem) == {("a", "b"): 2.0, ("a", "c"): 5.0}


@pytest.mark.parametrize(
    "rtt",
    ["id,a,b,c\na,0,2,5\nb,4,0,3\nc,6,3,0\n", "from,to,rtt_ms\na,b,2\nb,a,4\na,c,5\nc,a,6\nb,c,3\nc,b,3\n"],
)
def test_directions_that_differ_are_averaged_and_said(rtt: str, tmp_path: Path) -> None:
    scenario = read(tmp_path, rtt)
    assert as_dict(scenario.problem) == {("a", "b"): 3.0, ("a", "c"): 5.5, ("b", "c"): 3.0}
    (warning,) = scenario.warnings
    assert "2 pairs" in warning
    assert "largest difference is 2 ms, between a and b" in warning
    assert "averaged" in warning


@pytest.mark.parametrize(
    "rtt",
    ["id,a,b,c\na,0,2,5\nb,2,0,0\nc,5,0,0\n", "from,to,rtt_ms\na,b,2\na,c,5\nb,c,0\nc,b,0\n"],
)
def test_zeros_between_nodes_are_not_measurements(rtt: str, tmp_path: Path) -> None:
    scenario = read(tmp_path, rtt)
    assert as_dict(scenario.problem) == {("a", "b"): 2.0, ("a", "c"): 5.0}
    (warning,) = scenario.warnings
    assert "2 RTTs between different nodes are 0 ms: taken as not measured" in warning


@pytest.mark.parametrize(
    "rtt",
    ["id,a,b,c\na,7,2,5\nb,2,0,3\nc,5,3,1\n", "from,to,rtt_ms\na,b,2\na,c,5\nb,c,3\na,a,7\nc,c,1\n"],
)
def test_the_diagonal_is_ignored_and_said(rtt: str, tmp_path: Path) -> None:
    scenario = read(tmp_path, rtt)
    assert len(as_dict(scenario.problem)) == 3
    (warning,) = scenario.warnings
    assert "2 RTTs of a node to itself are not 0 (largest 7 ms): ignored" in warning


def test_a_path_through_an_unused_node_counts(tmp_path: Path) -> None:
    nodes = "id,capacity,hosts\na,1,\nb,1,\nc,1,\nrouter,0,false\n"
    scenario = read(tmp_path, "from,to,rtt_ms\na,router,2\nrouter,b,2\nrouter,c,1\n", nodes)
    assert len(as_dict(scenario.problem)) == 3


def test_a_node_that_nothing_uses_may_be_unmeasured(tmp_path: Path) -> None:
    nodes = NODES.replace("capacity", "capacity,hosts").replace(",1", ",1,true") + "spare,1,false\n"
    assert len(as_dict(read(tmp_path, "from,to,rtt_ms\na,b,2\nb,c,1\n", nodes).problem)) == 2


def test_coordinates_reach_everywhere_and_measurements_stay(tmp_path: Path) -> None:
    nodes = "id,capacity,x0,x1,height\na,1,0,0,0.5\nb,1,1 ms,0,\nc,1,0,2,1\n"
    problem = read(tmp_path, "from,to,rtt_ms\na,b,2\n", nodes).problem
    assert as_dict(problem) == {("a", "b"): 2.0}
    np.testing.assert_array_equal(problem.nodes.coordinates, [[0, 0], [1, 0], [0, 2]])
    np.testing.assert_array_equal(problem.nodes.heights, [0.5, 0, 1])


def test_nodes_may_be_called_like_the_columns_of_a_list(tmp_path: Path) -> None:
    nodes = "id,capacity\na,1\nb,1\nc,1\nfrom,1\nto,1\n"
    rtt = "id,a,b,c,from,to\na,0,1,1,1,1\nb,1,0,1,1,1\nc,1,1,0,1,1\nfrom,1,1,1,0,1\nto,1,1,1,1,0\n"
    assert len(as_dict(read(tmp_path, rtt, nodes).problem)) == 10
