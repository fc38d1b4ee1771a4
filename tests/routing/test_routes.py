from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova.model.replicas import Replicas
from nova.model.skew import KeyAxis
from nova.model.subjoins import SubJoins
from nova.routing import Epoch, Routes, Timeline, compile_routes, key_position
from tilings import random_replicas, sub_joins

LEFTS, RIGHTS, NODES = 4, 4, 3
SOURCES = LEFTS + RIGHTS


@st.composite
def matrices(draw: st.DrawFn) -> SubJoins:
    """Any join matrix over four left and four right sources, empty ones included."""
    allowed = np.array(draw(st.lists(st.booleans(), min_size=16, max_size=16))).reshape(LEFTS, RIGHTS)
    left, right = np.nonzero(allowed)
    return sub_joins(left, right + LEFTS, SOURCES)


def tuples(rng: np.random.Generator, n: int, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(first, first + count, n).astype(np.int32), rng.random(n)


@given(joins=matrices(), seed=st.integers(0, 2**32 - 1))
def test_every_joinable_pair_meets_exactly_once_and_on_its_box_host(joins: SubJoins, seed: int) -> None:
    replicas = random_replicas(joins, NODES, seed, keyed=True) if len(joins) else Replicas.whole(joins.left, joins.left)
    routes = compile_routes(joins, replicas, 0, SOURCES, 0)
    rng = np.random.default_rng(seed)
    left, left_share = tuples(rng, 30, 0, LEFTS)
    right, right_share = tuples(rng, 30, LEFTS, RIGHTS)
    place, key = float(rng.random()), float(rng.random())  # of one window, with one key: all of them may join

    at_left, meeting_left = routes.left.reach(left, left_share, np.full(30, place), np.full(30, key))
    at_right, meeting_right = routes.right.reach(right, right_share, np.full(30, place), np.full(30, key))
    met = {}
    for i, m in zip(at_left, meeting_left, strict=True):
        for j in at_right[meeting_right == m]:
            met.setdefault((int(i), int(j)), []).append(int(routes.node[m]))

    r = replicas
    for i in range(30):
        for j in range(30):
            pair = (joins.left[r.join] == left[i]) & (joins.right[r.join] == right[j])
            inside = (r.left_from <= left_share[i]) & (left_share[i] < r.left_to)
            inside &= (r.right_from <= right_share[j]) & (right_share[j] < r.right_to)
            inside &= (r.slice_from <= place) & (place < r.slice_to)
            inside &= (r.key_from <= key) & (key < r.key_to)
            assert met.get((i, j), []) == r.node[pair & inside].tolist()


@given(seed=st.integers(0, 2**32 - 1), heavy=st.integers(1, 3), numbers=st.booleans())
def test_tuples_of_heavy_keys_meet_once_in_the_box_of_their_key(seed: int, heavy: int, numbers: bool) -> None:
    """Boxes of any shape on an axis with heavy keys: joinable tuples meet at one of them, and where their key is heavy,
    in the one in which its range begins."""
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    rng = np.random.default_rng(seed)
    shares = np.sort(rng.random(heavy))[::-1] / (1 + heavy)
    axis = KeyAxis(tuple(str(number) for number in range(heavy)), (0.0, *np.cumsum(shares).tolist()))
    replicas = random_replicas(joins, NODES, seed, keyed=True)
    routes = compile_routes(joins, replicas, 0, 2, 0, axis)
    for key in range(heavy + 20):
        at_key = np.repeat(key_position([pa.array([key if numbers else str(key)])]), 10)
        share, place = (rng.random(10), rng.random(10)), np.full(10, rng.random())
        at_left, meeting_left = routes.left.reach(np.zeros(10, np.int32), share[0], place, at_key)
        at_right, meeting_right = routes.right.reach(np.ones(10, np.int32), share[1], place, at_key)
        met = np.zeros((10, 10))
        for i, m in zip(at_left.tolist(), meeting_left.tolist(), strict=True):
            for j in at_right[meeting_right == m].tolist():
                met[i, j] += 1
                if key < heavy:
                    r, edge = replicas, axis.edges[key]
                    box = (r.left_from <= share[0][i]) & (share[0][i] < r.left_to) & (r.key_from <= edge)
                    box &= (r.right_from <= share[1][j]) & (share[1][j] < r.right_to) & (edge < r.key_to)
                    box &= (r.slice_from <= place[0]) & (place[0] < r.slice_to)
                    assert routes.node[m] == r.node[box].item()
        assert (met == 1).all()


def test_planned_shares_of_boxes_are_told_once() -> None:
    """A box whose keys are several ranges of hashes takes as many tuples as its range of the axis is long."""
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    halves = Replicas.whole(np.array([0, 0]), np.array([0, 1]))
    halves.key_to[0] = halves.key_from[1] = 0.6
    side = compile_routes(joins, halves, 0, 2, 0, KeyAxis(("a", "b"), (0.0, 0.6, 0.7))).left
    assert len(side.meeting) > 2
    parts = [float(side.key_part[side.meeting == meeting].sum()) for meeting in (0, 1)]
    assert sorted(parts) == pytest.approx([0.4, 0.6])


def test_tuples_reach_only_replicas_that_need_them() -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    half = Replicas(
        np.zeros(2, np.int32),
        np.array([5, 6], np.int32),
        np.array([0, 0.5]),
        np.array([0.5, 1]),
        np.zeros(2),
        np.ones(2),
        np.zeros(2),
        np.ones(2),
    )
    routes = compile_routes(joins, half, 0, 2, 0)
    rows, meeting = routes.left.reach(np.array([0, 0]), np.array([0.2, 0.7]), np.zeros(2))
    assert rows.tolist() == [0, 1]
    assert routes.node[meeting].tolist() == [5, 6]
    rows, meeting = routes.right.reach(np.array([1]), np.array([0.2]), np.zeros(1))
    assert sorted(routes.node[meeting].tolist()) == [5, 6]  # the right stream is broadcast


def test_a_complete_region_on_one_host_gets_each_tuple_once() -> None:
    left, right = np.repeat(np.arange(10), 10), np.tile(np.arange(10, 20), 10)
    joins = sub_joins(left, right, 20)
    routes = compile_routes(joins, Replicas.whole(np.arange(100), np.full(100, 3)), 0, 20, 0)
    assert routes.node.tolist() == [3]
    rows, _ = routes.left.reach(np.arange(10), np.zeros(10), np.zeros(10))
    assert rows.tolist() == list(range(10))


def test_unknown_sources_and_empty_tables_go_nowhere() -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    routes = compile_routes(joins, Replicas.whole(np.array([0]), np.array([0])), 0, 2, 0)
    assert len(routes.left.reach(np.array([-1, 1]), np.zeros(2), np.zeros(2))[0]) == 0
    none = compile_routes(joins, Replicas.whole(np.empty(0, int), np.empty(0, int)), 0, 2, 0)
    assert len(none.left.reach(np.array([0]), np.zeros(1), np.zeros(1))[0]) == 0


def test_routes_written_before_there_were_keys_take_all_keys(tmp_path: Path) -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    routes = compile_routes(joins, random_replicas(joins, NODES, 1), 0, 2, 0)
    routes.save(tmp_path / "routes.npz")
    with np.load(tmp_path / "routes.npz") as stored:
        np.savez(tmp_path / "old.npz", **{name: stored[name] for name in stored if "_key_" not in name})
    old = Routes.load(tmp_path / "old.npz")
    assert not old.keyed
    np.testing.assert_array_equal(old.left.key_to, routes.left.key_to)


def test_a_keyed_plan_needs_the_tuples_keys() -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    halves = Replicas.whole(np.array([0, 0]), np.array([0, 1]))
    halves.key_to[0] = halves.key_from[1] = 0.5
    routes = compile_routes(joins, halves, 0, 2, 0)
    rows, meeting = routes.left.reach(np.array([0, 0]), np.zeros(2), np.zeros(2), np.array([0.2, 0.7]))
    assert rows.tolist() == [0, 1]  # each tuple goes to one host: keys need no broadcast
    assert routes.node[meeting].tolist() == [0, 1]
    with pytest.raises(ValueError, match="keys"):
        routes.left.reach(np.array([0]), np.zeros(1), np.zeros(1))


def test_routes_survive_the_disk(tmp_path: Path) -> None:
    joins = sub_joins(np.array([0, 0]), np.array([1, 2]), 3)
    routes = compile_routes(joins, random_replicas(joins, NODES, 1, keyed=True), 0, 3, 2)
    routes.save(tmp_path / "routes.npz")
    again = Routes.load(tmp_path / "routes.npz")
    assert again.sink == 2
    for name in ("left", "right"):
        for field in ("start", "meeting", "share_from", "share_to", "slice_from", "slice_to", "key_from", "key_to"):
            np.testing.assert_array_equal(getattr(again.side(name), field), getattr(routes.side(name), field))


def test_windows_keep_the_plan_of_their_epoch() -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    old, new = (compile_routes(joins, Replicas.whole(np.array([0]), np.array([node])), 0, 2, 0) for node in (4, 9))
    timeline = Timeline((Epoch(-100, old), Epoch(10, new)))
    windows = np.array([-5, 9, 10, 11])
    rows, meeting = timeline.reach("left", np.zeros(4, np.int32), np.zeros(4), windows)
    assert timeline.node(meeting, windows[rows])[np.argsort(rows)].tolist() == [4, 4, 9, 9]
    assert timeline.epoch_of(windows).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_epoch_without_tuples_reaches_nothing(side: str) -> None:
    joins = sub_joins(np.array([0]), np.array([1]), 2)
    routes = compile_routes(joins, Replicas.whole(np.array([0]), np.array([0])), 0, 2, 0)
    rows, meeting = Timeline((Epoch(0, routes), Epoch(5, routes))).reach(
        side, np.empty(0, np.int32), np.empty(0), np.empty(0, np.int64)
    )  # type: ignore[arg-type]
    assert len(rows) == len(meeting) == 0
