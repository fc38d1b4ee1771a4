"""Ways to cut a sub-join, behind one interface: whole, by key, by grid, by slices of the windows.

A cut says into how many equal pieces a sub-join goes and what one piece takes in. Pieces by key or by slices may meet
again on one host, which then takes a larger range: so their shares follow the hosts' room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.problem import Ints
from nova.model.replicas import SHARES, Replicas

GRID, KEY, SLICE = 0, 1, 2
MOST = 16
"""Pieces of a sub-join at most, in the usual cuts below."""
SAME = 1e-6
"""Pieces by which an edge may be off and still be the one that a cut makes."""


@dataclass(frozen=True)
class Cut:
    """`left` × `right` boxes, or `left` ranges of keys or slices. A whole sub-join is a grid of one box."""

    kind: int
    left: int = 1
    right: int = 1

    @property
    def pieces(self) -> int:
        return self.left * self.right

    def boxes(self, hosts: Ints) -> tuple[Ints, npt.NDArray[np.float64]]:
        """The hosts of the replicas and their shares (as in `SHARES`), where piece i goes to hosts[i]."""
        if self.kind == GRID:
            box = np.tile(np.array([0.0, 1.0] * 4), (self.pieces, 1))
            row, column = np.divmod(np.arange(self.pieces), self.right)
            box[:, 0], box[:, 1] = row / self.left, (row + 1) / self.left
            box[:, 2], box[:, 3] = column / self.right, (column + 1) / self.right
            return hosts, box
        together = np.sort(hosts)  # pieces of one host make one range
        first = np.flatnonzero(np.diff(together, prepend=-1))
        edges = np.append(first, self.pieces) / self.left
        box = np.tile(np.array([0.0, 1.0] * 4), (len(first), 1))
        at = SHARES.index("key_from" if self.kind == KEY else "slice_from")
        box[:, at], box[:, at + 1] = edges[:-1], edges[1:]
        return together[first], box

    def pieces_of(self, hosts: Ints, boxes: npt.NDArray[np.float64]) -> Ints | None:
        """The inverse of `boxes`: the host of each piece, or None where this cut makes no such boxes."""
        found = np.full(self.pieces, -1, np.int32)
        if self.kind == GRID:
            edges = boxes * np.array([self.left, self.left, self.right, self.right, 1, 1, 1, 1])
            at = np.rint(edges)
            spans = (at[:, 1] - at[:, 0] == 1) & (at[:, 3] - at[:, 2] == 1)
            if len(hosts) != self.pieces or not spans.all() or not (np.abs(edges - at) < SAME).all():
                return None
            found[(at[:, 0] * self.right + at[:, 2]).astype(np.int64)] = hosts
        else:
            axis = SHARES.index("key_from" if self.kind == KEY else "slice_from")
            edges = boxes[:, axis : axis + 2] * self.left
            at = np.rint(edges).astype(np.int64)
            whole = np.delete(boxes, (axis, axis + 1), axis=1) == np.array([0.0, 1.0] * 3)
            if not whole.all() or not (np.abs(edges - at) < SAME).all():
                return None
            for host, (start, end) in zip(hosts, at, strict=True):
                found[start:end] = host
        return found if (found >= 0).all() else None


WHOLE = Cut(GRID)
BY_KEY = tuple(Cut(KEY, parts) for parts in (2, 4, 8, 16))
BY_GRID = tuple(Cut(GRID, *parts) for parts in ((2, 1), (1, 2), (3, 1), (1, 3), (2, 2), (4, 1), (1, 4)))
"""Grids that are tried for every sub-join: they broadcast little."""
BY_LARGE_GRID = tuple(
    Cut(GRID, *parts)
    for parts in ((3, 2), (2, 3), (6, 1), (1, 6), (4, 2), (2, 4), (3, 3), (8, 1), (1, 8), (4, 3), (3, 4), (4, 4))
)
"""Grids for what fits no other way."""
BY_HUGE_GRID = tuple(
    Cut(GRID, *parts)
    for parts in (
        *((12, 1), (1, 12), (16, 1), (1, 16), (8, 2), (2, 8), (5, 4), (4, 5), (5, 5), (6, 4), (4, 6)),
        *((6, 5), (5, 6), (6, 6), (8, 4), (4, 8), (7, 7), (8, 8)),
    )
)
"""Grids for a heavy key that fits no other way: nothing else divides it."""
BY_SLICES = tuple(Cut(SLICE, parts) for parts in (2, 4, 8, 16))


def table(cuts: tuple[Cut, ...]) -> npt.NDArray[np.int64]:
    """Cuts as kernels read them: kind, left and right parts."""
    return np.array([(cut.kind, cut.left, cut.right) for cut in cuts], np.int64).reshape(-1, 3)


def most_pieces(cuts: tuple[Cut, ...]) -> int:
    """Pieces that a sub-join may have by some cuts."""
    return max((MOST, *(cut.pieces for cut in cuts)))


def replicas(cuts: tuple[Cut, ...], chosen: npt.NDArray[np.integer], nodes: npt.NDArray[np.integer]) -> Replicas:
    """The replicas of sub-joins cut by `cuts[chosen[j]]` (−1: left out) whose pieces are on `nodes[j]`."""
    whole = np.flatnonzero(chosen == 0)
    parts = [Replicas.whole(whole, nodes[whole, 0])]
    for j in np.flatnonzero(chosen > 0):
        cut = cuts[chosen[j]]
        hosts, box = cut.boxes(nodes[j, : cut.pieces].astype(np.int32))
        shares = {name: box[:, k].copy() for k, name in enumerate(SHARES)}
        parts.append(Replicas(np.full(len(hosts), j, np.int32), hosts, **shares))
    return Replicas.concat(parts)


def recognise(
    cuts: tuple[Cut, ...], replicas: Replicas, joins: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The inverse of `replicas`: the cut of each sub-join and the nodes of its pieces; −1 where it has no replicas, or
    such as no cut makes."""
    chosen, nodes = np.full(joins, -1, np.int64), np.full((joins, most_pieces(cuts)), -1, np.int64)
    order = np.argsort(replicas.join, kind="stable")
    first = np.searchsorted(replicas.join[order], np.arange(joins + 1))
    boxes = np.column_stack([getattr(replicas, name) for name in SHARES])[order]
    hosts = replicas.node[order]
    whole = np.flatnonzero((np.diff(first) == 1) & (WHOLE in cuts))
    chosen[whole], nodes[whole, 0] = (cuts.index(WHOLE) if len(whole) else -1), hosts[first[whole]]
    for j in np.flatnonzero(np.diff(first) > 1):
        mine = slice(first[j], first[j + 1])
        for x, cut in enumerate(cuts):
            pieces = cut.pieces_of(hosts[mine], boxes[mine])
            if pieces is not None:
                chosen[j], nodes[j, : cut.pieces] = x, pieces
                break
    return chosen, nodes
