"""The fixed instances, written as scenarios and planned by the command: nothing overloaded, every tiling exact.

The checks follow the contract on plans alone, from `replicas.parquet`, and share no code with nova.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from builders import invoke

INSTANCES = 49
TINY = 1e-6
Box = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]


def write_instance(instance: dict[str, Any], folder: Path) -> Path:
    """The instance as a scenario: coordinates on the nodes, explicit pairs, a sink that hosts nothing."""
    rates = {node["id"]: node["rate"] for node in instance["nodes"]}
    tables = {
        "nodes": [
            {k: node[k] for k in ("id", "capacity", "x", "y")} | {"hosts": node["id"] != instance["sink"]}
            for node in instance["nodes"]
        ],
        "pairs": [{"left": p["left"], "right": p["right"], "output_rate": p["output"]} for p in instance["pairs"]],
    }
    for side in ("left", "right"):
        born = dict.fromkeys(pair[side] for pair in instance["pairs"])
        tables[side] = [{"id": node, "node": node, "rate": rates[node]} for node in born]
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    query = {"id": "join", "left": "left", "right": "right", "pairs": "pairs.csv", "sink": instance["sink"]}
    scenario = {
        "nova": 1,
        "nodes": "nodes.csv",
        "streams": {"left": {"sources": "left.csv"}, "right": {"sources": "right.csv"}},
        "queries": [query],
    }
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    return path


def area(rectangles: list[tuple[tuple[float, float], tuple[float, float]]]) -> float:
    """Area of a union of rectangles, cell by cell between all their borders."""
    xs = sorted({x for rectangle in rectangles for x in rectangle[0]})
    ys = sorted({y for rectangle in rectangles for y in rectangle[1]})
    return sum(
        (x1 - x0) * (y1 - y0)
        for x0, x1 in pairwise(xs)
        for y0, y1 in pairwise(ys)
        if any(a <= x0 and x1 <= b and c <= y0 and y1 <= d for (a, b), (c, d) in rectangles)
    )


def check(instance: dict[str, Any], replicas: list[dict[str, Any]]) -> None:
    """Every pair is tiled exactly once, and no node takes in more than it can."""
    rates = {str(node["id"]): node["rate"] for node in instance["nodes"]}
    boxes: dict[tuple[str, str], list[tuple[str, Box]]] = defaultdict(list)
    for row in replicas:
        ranges = [(row[f"{axis}_from"], row[f"{axis}_to"]) for axis in ("left", "right", "slice")]
        for start, end in ranges:
            assert 0 <= start < end <= 1
        share = ranges[2][1] - ranges[2][0]
        for side, (start, end) in zip(("left", "right"), ranges, strict=False):
            assert row[f"{side}_rate"] == pytest.approx(rates[row[f"{side}_source"]] * (end - start) * share)
        boxes[row["left_source"], row["right_source"]].append((row["node"], (ranges[0], ranges[1], ranges[2])))
    assert set(boxes) == {(str(pair["left"]), str(pair["right"])) for pair in instance["pairs"]}

    load: dict[str, float] = defaultdict(float)
    for (left, right), placed in boxes.items():
        volume = sum((a[1] - a[0]) * (b[1] - b[0]) * (c[1] - c[0]) for _, (a, b, c) in placed)
        assert volume == pytest.approx(1, abs=1e-9)
        for (_, one), (_, other) in combinations(placed, 2):
            overlap = [min(a[1], b[1]) - max(a[0], b[0]) for a, b in zip(one, other, strict=True)]
            assert min(overlap) <= 1e-12, "two replicas compute the same results"
        for node in {node for node, _ in placed}:
            here = [box for host, box in placed if host == node]
            load[node] += rates[left] * area([(box[0], box[2]) for box in here])
            load[node] += rates[right] * area([(box[1], box[2]) for box in here])
    assert str(instance["sink"]) not in load
    for node in instance["nodes"]:
        assert load[str(node["id"])] <= node["capacity"] * (1 + TINY) + TINY


TOY: dict[str, Any] = {
    "sink": 3,
    "nodes": [
        {"id": 1, "x": 0, "y": 0, "capacity": 10, "rate": 8},
        {"id": 2, "x": 9, "y": 0, "capacity": 10, "rate": 8},
        {"id": 3, "x": 5, "y": 5, "capacity": 100, "rate": 0},
    ],
    "pairs": [{"left": 1, "right": 2, "output": 1}],
}


def replica(node: int, left: tuple[float, float], slices: tuple[float, float]) -> dict[str, Any]:
    """A replica of the toy's one sub-join, with the whole right stream."""
    width = slices[1] - slices[0]
    return {
        "left_source": "1", "right_source": "2", "node": str(node), "left_from": left[0], "left_to": left[1],
        "right_from": 0.0, "right_to": 1.0, "slice_from": slices[0], "slice_to": slices[1],
        "left_rate": 8 * (left[1] - left[0]) * width, "right_rate": 8 * width,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "fits"),
    [
        ([replica(1, (0, 1), (0, 0.5)), replica(2, (0, 1), (0.5, 1))], True),
        ([replica(1, (0, 1), (0, 0.5)), replica(2, (0, 1), (0.4, 1))], False),  # results twice
        ([replica(1, (0, 1), (0, 0.5)), replica(2, (0, 1), (0.6, 1))], False),  # results lost
        ([replica(1, (0, 0.5), (0, 1)), replica(2, (0.5, 1), (0, 1))], False),  # 12 tuples/s each
        ([replica(3, (0, 1), (0, 1))], False),  # on the sink
        ([], False),
    ],
)
def test_the_check_itself(replicas: list[dict[str, Any]], fits: bool) -> None:
    if fits:
        check(TOY, replicas)
    else:
        with pytest.raises(AssertionError):
            check(TOY, replicas)


def test_the_toy_plans(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(TOY))
    plan_and_check(path, tmp_path, "window")


def plan_and_check(path: Path, folder: Path, partition: str) -> None:
    instance = json.loads(path.read_text())
    scenario = write_instance(instance, folder)
    result = invoke("plan", scenario, "-o", folder / "plan", "--partition", partition, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["overloaded"] == 0
    check(instance, pq.read_table(folder / "plan" / "replicas.parquet").to_pylist())


@pytest.mark.shared
@pytest.mark.parametrize("partition", ["grid", "window"])
@pytest.mark.parametrize("name", ["fit-0", "atlas392-5"])
def test_some_instances(name: str, partition: str, shared: Path, tmp_path: Path) -> None:
    plan_and_check(shared / "instances" / f"{name}.json", tmp_path, partition)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("partition", ["grid", "window"])
@pytest.mark.parametrize("number", range(INSTANCES))
def test_every_instance(number: int, partition: str, shared: Path, tmp_path: Path) -> None:
    found = sorted((shared / "instances").glob("*.json"))
    assert len(found) == INSTANCES
    plan_and_check(found[number], tmp_path, partition)
