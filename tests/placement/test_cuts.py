"""Ways to cut a sub-join: their boxes tile, and pieces that meet on a host become one range."""

from __future__ import annotations

import numpy as np
import pytest

from nova.model.replicas import SHARES, Replicas
from nova.placement.check import broken_joins
from nova.placement.cuts import BY_GRID, BY_KEY, BY_LARGE_GRID, BY_SLICES, MOST, WHOLE, Cut, recognise, replicas

CUTS = (WHOLE, *BY_KEY, *BY_GRID, *BY_LARGE_GRID, *BY_SLICES)


@pytest.mark.parametrize("cut", CUTS)
def test_boxes_tile(cut: Cut) -> None:
    chosen = np.array([CUTS.index(cut)])
    nodes = np.arange(MOST)[None, :] % 7 if cut.kind else np.arange(MOST)[None, :]
    table = replicas(CUTS, chosen, nodes)
    assert not len(broken_joins(table, 1))
    assert len(np.unique(table.node)) == len(table)


def test_pieces_of_one_host_make_one_range() -> None:
    hosts, boxes = Cut(1, 4).boxes(np.array([9, 3, 9, 9], np.int32))
    assert hosts.tolist() == [3, 9]
    assert boxes[:, 6:].tolist() == [[0.0, 0.25], [0.25, 1.0]]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_is_recognised_by_its_boxes(cut: Cut) -> None:
    nodes = np.full((3, MOST), -1)
    nodes[0, : cut.pieces] = np.arange(cut.pieces)[::-1] + 5
    nodes[2, 0] = 4
    table = replicas(CUTS, np.array([CUTS.index(cut), -1, 0]), nodes)
    chosen, where = recognise(CUTS, table, 3)
    assert chosen[1:].tolist() == [-1, 0]
    again = replicas(CUTS, chosen, where)
    for name in ("join", "node", *SHARES):
        assert np.array_equal(getattr(again, name), getattr(table, name)), name


def test_boxes_that_no_cut_makes_are_not_recognised() -> None:
    zero, one = np.zeros(2), np.ones(2)
    uneven = Replicas(
        np.zeros(2, np.int32),
        np.arange(2, dtype=np.int32),
        np.array([0, 0.37]),
        np.array([0.37, 1]),
        zero,
        one,
        zero,
        one,
    )
    assert recognise(CUTS, uneven, 1)[0].tolist() == [-1]
