"""Requirements: conditions on labels, read and met."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nova.model.requires import allowed, came_nearest, parse

LABELS = {
    "region": pa.array(["eu", "us", None, "ch"]),
    "gpu": pa.array([0, 2, 1, None]),
    "memory": pa.array(["4", "8", "16.5", "2"]),
}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("region = eu", [True, False, False, False]),
        ("region in [eu, 'ch']", [True, False, False, True]),
        ("region != eu", [False, True, False, True]),
        ("gpu >= 1", [False, True, True, False]),
        ("gpu = 2", [False, True, False, False]),
        ("memory > 4 and gpu < 2", [False, False, True, False]),
    ],
)
def test_conditions_are_met_by_the_nodes_that_say_so(text: str, met: list[bool]) -> None:
    requires = parse(text)
    assert allowed(requires, LABELS, 4).tolist() == met
    assert parse(" and ".join(map(str, requires))) == requires


@pytest.mark.parametrize("text", ["region", "region in eu", "region in []", "gpu >= many", "= 3", ""])
def test_what_is_not_understood_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is not understood"):
        parse(text)


def test_the_nodes_that_came_nearest_are_named() -> None:
    told = came_nearest(
        parse("region = eu and gpu >= 1 and memory > 3"), LABELS, pa.array(list("abcd")), allowed((), {}, 4)
    )
    assert told == "a (gpu is 0), b (region is us), c (region is None)"
