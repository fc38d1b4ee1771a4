"""Instance files of the published simulations as problems."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nova.datasets.instances import load, load_instance
from nova.model.errors import InvalidInput
from nova.placement.resolve import resolve

DOCUMENT = {
    "sink": 7,
    "params": {"sigma": 0.4, "c_min": 5.0},
    "nodes": [
        {"id": 7, "x": 0, "y": 0, "role": "sink", "capacity": 100, "rate": 0},
        {"id": 8, "x": 3, "y": 4, "role": "source", "capacity": 10, "rate": 2},
        {"id": 9, "x": 6, "y": 8, "role": "source", "capacity": 20, "rate": 3},
    ],
    "pairs": [{"left": 9, "right": 8, "output": 4}],
    "published_scripts": {"sink-based": {"lat_exact_mean": 7.5}},
}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "tiny-0.json"
    path.write_text(json.dumps({**DOCUMENT, **changes}))
    return path


def test_an_instance_is_a_problem_whose_sink_hosts_nothing(tmp_path: Path) -> None:
    instance = load(write(tmp_path))
    problem = instance.problem
    assert (instance.name, instance.sigma, instance.c_min) == ("tiny-0", 0.4, 5.0)
    assert instance.published["sink-based"]["lat_exact_mean"] == 7.5
    assert problem.nodes.hosts.tolist() == [False, True, True]
    joins = resolve(problem)
    assert (joins.left_node.tolist(), joins.right_node.tolist(), joins.sink.tolist()) == ([2], [1], [0])
    assert (joins.left_rate[0], joins.right_rate[0], joins.output_rate[0]) == (3.0, 2.0, 4.0)
    assert np.array_equal(load_instance(write(tmp_path)).nodes.capacity, [100, 10, 20])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": [{"left": 1, "right": 8, "output": 4}]}, "row 1, field left: unknown node .found 1."),
        ({"sink": 3}, "field sink: unknown node"),
    ],
)
def test_unknown_nodes_are_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(write(tmp_path, **changes))


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file of an instance"):
        load(tmp_path / "absent.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"row 1: not an instance: .* at column 2"):
        load(tmp_path / "broken.json")
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InvalidInput, match="field pairs: missing"):
        load(tmp_path / "empty.json")
