from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.model.operators import Pipeline
from nova.model.problem import Dense, Key, Query
from nova.model.skew import KeyAxis
from nova.routing import GOLDEN, key_position, slice_position, tuple_share, window_number
from nova.routing.position import hash_ranges
from nova.routing.xxh64 import hash_bytes, hash_longs, hash_strings


def test_xxh64_gives_the_published_values() -> None:
    # XXH64 of nothing and of short texts, from the reference implementation (seed 0).
    assert hash_bytes(b"", 0) == 0xEF46DB3751D8E999
    assert hash_bytes(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert hash_bytes(b"abc", 0) == 0x44BC2CF5AD770999
    assert hash_bytes(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1))
def test_longs_hash_as_their_eight_bytes(value: int, seed: int) -> None:
    assert int(hash_longs(np.array([value]), seed)[0]) == hash_bytes(value.to_bytes(8, "little", signed=True), seed)


@given(st.lists(st.integers(-(10**13), 10**13), min_size=1), st.integers(1, 10**10))
def test_windows_tile_time(times: list[int], window_us: int) -> None:
    number = window_number(np.array(times), window_us)
    for time, w in zip(times, number.tolist(), strict=True):
        assert w * window_us <= time < (w + 1) * window_us


@given(st.integers(-(10**12), 2 * 10**12))
def test_slices_follow_the_rule_in_double_precision(window: int) -> None:
    place = float(slice_position(np.array([window]))[0])
    turned = float(window) * GOLDEN
    assert place == turned - math.floor(turned)
    assert 0 <= place < 1


def test_slices_spread_consecutive_windows_evenly() -> None:
    for first in (0, 1_700_000_000, 1_700_000_000_000):  # windows of hours, seconds and milliseconds today
        places = slice_position(np.arange(first, first + 1000))
        counts = np.histogram(places, bins=10, range=(0, 1))[0]
        assert counts.min() >= 97
        assert counts.max() <= 103


def test_shares_are_uniform_and_stable() -> None:
    source = np.repeat(hash_strings(["p1", "p2"]), 5000)
    times = np.tile(np.arange(5000) * 1000 + 1_700_000_000_000_000, 2)
    values = pa.array(np.sin(np.arange(10000)))
    shares = tuple_share(source, times, values)
    assert np.histogram(shares, bins=10, range=(0, 1))[0].min() > 900
    np.testing.assert_array_equal(shares, tuple_share(source, times, values))
    assert not np.array_equal(shares[:5000], shares[5000:])


def test_values_of_any_kind_take_part_in_the_share() -> None:
    source, times = np.repeat(hash_strings(["p1"]), 3), np.zeros(3, np.int64)
    numbers = tuple_share(source, times, pa.array([0.0, -0.0, 1.5]))
    assert numbers[0] == numbers[1] != numbers[2]
    np.testing.assert_array_equal(
        tuple_share(source, times, pa.array([1, 2, None])), tuple_share(source, times, pa.array([1.0, 2.0, None]))
    )
    words = tuple_share(source, times, pa.array(["a", "b", None]))
    assert len(set(words.tolist())) == 3
    assert words[2] == tuple_share(source, times)[2]  # a missing value is left out


def test_keys_lie_evenly_and_equal_keys_lie_together_whatever_their_type() -> None:
    whole = key_position([pa.array(np.arange(10_000))])
    assert ((whole >= 0) & (whole < 1)).all()
    assert np.histogram(whole, 10, (0, 1))[0] == pytest.approx(1000, rel=0.15)
    np.testing.assert_array_equal(whole, key_position([pa.array(np.arange(10_000, dtype=np.float32))]))
    pair = key_position([pa.array(["a", "a", "b"]), pa.array([1, 1, 1])])
    assert pair[0] == pair[1] != pair[2]
    with pytest.raises(ValueError, match="no column"):
        key_position([])


@given(
    shares=st.lists(st.floats(0.01, 1.0), max_size=5),
    cuts=st.lists(st.floats(0.0, 1.0), max_size=6),
    whole=st.booleans(),
)
def test_ranges_that_tile_the_key_axis_tile_the_hash_space(shares: list[float], cuts: list[float], whole: bool) -> None:
    """Every key lies in the ranges of exactly one box: a heavy one, as text or number, in the one where its own range
    begins, all others in the order of their hashes."""
    shares = sorted((share / max(sum(shares), 1.0) for share in shares), reverse=True)
    key = Key(("k",), 1000, tuple(shares), tuple(str(number) for number in range(len(shares))))
    axis = KeyAxis.of(Query("q", 0, 1, 0, Dense(), key=key, pipeline=Pipeline(on=("k",))))
    edges = sorted({0.0, 1.0, *cuts, *(axis.edges if whole else ())})
    ranges = [hash_ranges(axis, low, high) for low, high in itertools.pairwise(edges)]
    pieces = sorted(piece for found in ranges for piece in found)
    assert all(low < high for low, high in pieces)
    assert [0.0, *(high for _, high in pieces)] == [*(low for low, _ in pieces), 1.0]
    for value, edge in zip(axis.values, axis.edges, strict=False):
        for place in key_position([pa.array([value])])[0], key_position([pa.array([int(value)])])[0]:
            at = [box for box, found in enumerate(ranges) if any(low <= place < high for low, high in found)]
            assert at == [max(box for box, low in enumerate(edges[:-1]) if low <= edge)]
    places = np.random.default_rng(0).random(1000)
    for (low, high), found in zip(itertools.pairwise(edges), ranges, strict=True):
        there = sum(((places >= start) & (places < end)).mean() for start, end in found)
        begin = axis.edges[-1]
        wanted = (max(high, begin) - max(low, begin)) / (1.0 - begin)
        assert there == pytest.approx(wanted, abs=0.1)
