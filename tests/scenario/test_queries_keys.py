"""Keys and other work of nodes in scenarios: read, checked, written again, and part of the digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import write_scenario
from nova.model.errors import InvalidInput
from nova.scenario import load
from nova.scenario.writer import write


def scenario(folder: Path, key: Any = None, busy: float | None = None) -> Path:
    node = {"capacity": 100, "y": 0}
    nodes = [{"id": name, "x": x, **node} for x, name in enumerate(("a", "b", "c"))]
    if busy is not None:
        nodes[2]["busy"] = busy
    query: dict[str, Any] = {"id": "q", "left": "l", "right": "r", "sink": "c"}
    if key is not None:
        query["key"] = key
    return write_scenario(
        folder,
        {
            "nova": 1,
            "nodes": nodes,
            "streams": {
                "l": {"sources": [{"id": "l1", "node": "a", "rate": 10}]},
                "r": {"sources": [{"id": "r1", "node": "b", "rate": 10}]},
            },
            "queries": [query],
        },
    )


def test_a_key_is_read_and_written_again(tmp_path: Path) -> None:
    key = {"column": "sensor", "cardinality": 1000, "heavy": {"s1": 0.05, "s2": 0.2}}
    loaded = load(scenario(tmp_path / "a", key, busy=40))
    found = loaded.problem.queries[0].key
    assert found is not None
    assert (found.columns, found.cardinality, found.heavy) == (("sensor",), 1000, (0.2, 0.05))
    assert found.values == ("s2", "s1")
    assert loaded.problem.queries[0].pipeline.on == ("sensor",)
    assert loaded.problem.nodes.other_load.tolist() == [0, 0, 40]
    path = write(tmp_path / "b", loaded.problem, loaded.options)
    assert path is not None
    again = load(path).problem
    assert again.queries[0].key == found
    assert again.nodes.other_load.tolist() == [0, 0, 40]


def test_the_digest_depends_on_them(tmp_path: Path) -> None:
    digests = [
        load(scenario(tmp_path / str(number), key, busy)).digest
        for number, (key, busy) in enumerate(
            [
                (None, None),
                ({"column": "sensor"}, None),
                (None, 5),
                ({"column": "sensor", "heavy": {"a": 0.2}}, None),
                ({"column": "sensor", "heavy": {"b": 0.2}}, None),
            ]
        )
    ]
    assert len(set(digests)) == 5


@pytest.mark.parametrize(
    "key", [{"column": "sensor", "heavy": {"a": 0.7, "b": 0.7}}, {"cardinality": 5}, {"column": "s", "cardinality": 0}]
)
def test_wrong_keys_are_faults(tmp_path: Path, key: Any) -> None:
    with pytest.raises(InvalidInput, match="key"):
        load(scenario(tmp_path, key))
