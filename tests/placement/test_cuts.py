"""Ways to cut a sub-join: their boxes tile, and pieces that meet on a host become one range."""

from __future__ import annotations

import numpy as np
import pytest

from nova.placement.check import broken_joins
from nova.placement.cuts import BY_GRID, BY_KEY, BY_LARGE_GRID, BY_SLICES, MOST, WHOLE, Cut, replicas

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
