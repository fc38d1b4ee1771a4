"""Plans drawn at random: any tiling of the unit cube by boxes, on any hosts. Also ones no optimizer would choose."""

from __future__ import annotations

import numpy as np

from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins


def random_tiling(rng: np.random.Generator, boxes: int, keyed: bool = False) -> np.ndarray:
    """Boxes that tile the unit cube, by repeated cuts: columns left_from, left_to, right_from, right_to, slice_…, and
    key_… where it is `keyed`."""
    tiles = [np.array([0.0, 1] * (3 + keyed))]
    while len(tiles) < boxes:
        tile = tiles.pop(int(rng.integers(len(tiles))))
        axis = int(rng.integers(3 + keyed)) * 2
        cut = rng.uniform(tile[axis], tile[axis + 1])
        low, high = tile.copy(), tile.copy()
        low[axis + 1] = high[axis] = cut
        tiles += [low, high]
    return np.array(tiles)


def random_replicas(joins: SubJoins, nodes: int, seed: int, most: int = 6, keyed: bool = False) -> Replicas:
    """A random tiling of up to `most` boxes for each sub-join, each box on a random node. Some joins stay whole, and
    neighbours often share boxes, so that merging is exercised too."""
    rng = np.random.default_rng(seed)
    shared = random_tiling(rng, most, keyed)
    parts, hosts = [], rng.integers(nodes, size=len(shared))
    for join in range(len(joins)):
        kind = rng.integers(3)
        if kind == 0:
            tiles, node = random_tiling(rng, 1, keyed), rng.integers(2, size=1) % nodes
        elif kind == 1:
            tiles, node = shared, hosts
        else:
            tiles = random_tiling(rng, int(rng.integers(1, most + 1)), keyed)
            node = rng.integers(nodes, size=len(tiles))
        parts.append(Replicas(np.full(len(tiles), join, np.int32), node.astype(np.int32), *tiles.T))
    return Replicas.concat(parts)


def sub_joins(left: np.ndarray, right: np.ndarray, sources: int) -> SubJoins:
    """Sub-joins of one query between the given source rows; the columns that routing does not need are filled."""
    n = len(left)
    zero = np.zeros(n, np.int32)
    rate = np.ones(sources)
    return SubJoins(
        zero,
        left.astype(np.int32),
        right.astype(np.int32),
        zero,
        zero,
        zero,
        rate[left],
        rate[right],
        np.full(n, np.nan),
    )
