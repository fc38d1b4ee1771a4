from __future__ import annotations

import pytest

from nova.model.operators import Pipeline
from nova.model.problem import Dense, Key, Query
from nova.model.skew import OTHERS, PLAIN, KeyAxis


def query(key: Key | None, *on: str) -> Query:
    return Query("q", 0, 1, 0, Dense(), key=key, pipeline=Pipeline(on=on))


def test_heavy_keys_have_ranges_as_long_as_their_shares() -> None:
    axis = KeyAxis.of(query(Key(("k",), 100, (0.5, 0.2), ("a", "b")), "k"))
    assert axis.values == ("a", "b")
    assert axis.edges == pytest.approx((0.0, 0.5, 0.7))


def test_keys_that_nobody_names_or_can_tell_have_none() -> None:
    for key, on in (
        (None, ("k",)),
        (Key(("k",), 100, (0.5,)), ("k",)),
        (Key(("k",), 9, (0.5,), ("a",)), ("zone", "k")),
    ):
        assert KeyAxis.of(query(key, *on)) == PLAIN
    assert not PLAIN


def test_other_keys_always_have_a_range() -> None:
    axis = KeyAxis.of(query(Key(("k",), 2, (0.75, 0.25), ("a", "b")), "k"))
    assert axis.edges[-1] == pytest.approx(1.0 - OTHERS)
    assert axis.edges[1] == pytest.approx(0.75 * (1.0 - OTHERS))
