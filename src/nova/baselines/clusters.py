"""Clusters of nodes with a head each, after LEACH-SF: fuzzy c-means, then one member near the middle becomes head.

The number of clusters is a tenth of the nodes, as in the published experiments. Heads are chosen by place alone, as the
paper describes these approaches. `weakness` prefers nodes with little capacity: the published scripts' heads are weak
nodes more often than chance would have it (their traffic and overload show it), and agree with a weakness near 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nova.model.problem import Bools, Floats, Ints

SHARE = 0.1
"""Clusters per node."""
ROUNDS = 150
TOLERANCE = 1e-4
"""Centres that move less than this share of the space's extent are at rest."""
BLOCK = 4_000_000
"""Memberships held at a time: bounds the memory of large spaces."""


@dataclass(frozen=True)
class Clusters:
    """Which cluster each node is in, and who heads it."""

    label: Ints
    head: Ints
    """The head of each node's cluster; heads are their own."""


def clusters(
    points: Floats, capacity: Floats, may_head: Bools, seed: int, weakness: float = 0.0, count: int | None = None
) -> Clusters:
    """Cluster nodes and choose heads among those that `may_head`. A node whose cluster has no such member joins the
    nearest head."""
    n = len(points)
    count = max(1, int(SHARE * n)) if count is None else count
    centres = fuzzy_centres(points, count, np.random.default_rng([seed, 17]))
    label = nearest_centre(points, centres)
    distance = np.linalg.norm(points - centres[label], axis=1)
    score = _share_of_largest(distance, label, count)
    if weakness:
        bounded = np.where(np.isfinite(capacity), capacity, 0.0)
        score = score + weakness * _share_of_largest(bounded, label, count)
    candidates = np.flatnonzero(may_head)
    ordered = candidates[np.lexsort((candidates, distance[candidates], score[candidates], label[candidates]))]
    owned, first = np.unique(label[ordered], return_index=True)
    head_of = np.full(count, -1, np.int32)
    head_of[owned] = ordered[first]
    heads = head_of[owned]
    head = head_of[label]
    orphans = np.flatnonzero(head < 0)
    if len(orphans) and len(heads):
        head[orphans] = heads[nearest_centre(points[orphans], points[heads])]
    return Clusters(label, head)


def _share_of_largest(values: Floats, label: Ints, count: int) -> Floats:
    """Each value as a share of the largest in its cluster."""
    largest = np.zeros(count)
    np.maximum.at(largest, label, values)
    of = largest[label]
    share: Floats = np.divide(values, of, out=np.zeros(len(values)), where=of > 0)
    return share


def fuzzy_centres(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Centres of fuzzy c-means with exponent 2, from random memberships. Memberships are never stored: a point's
    membership in a cluster follows from its distances to all centres."""
    n = len(points)
    rows = max(1, BLOCK // count)
    weights, sums = np.zeros(count), np.zeros((count, points.shape[1]))
    for start in range(0, n, rows):
        block = points[start : start + rows]
        member = rng.random((len(block), count))
        member = (member / member.sum(axis=1, keepdims=True)) ** 2
        weights += member.sum(axis=0)
        sums += member.T @ block
    centres: Floats = sums / weights[:, None]
    rest = TOLERANCE * float(np.ptp(points, axis=0).max(initial=0.0))
    for _ in range(ROUNDS):
        weights[:], sums[:] = 0.0, 0.0
        for start in range(0, n, rows):
            block = points[start : start + rows]
            member = 1.0 / np.maximum(_squared(block, centres), 1e-18)
            member /= member.sum(axis=1, keepdims=True)
            member *= member
            weights += member.sum(axis=0)
            sums += member.T @ block
        moved = sums / weights[:, None]
        shift = float(np.abs(moved - centres).max(initial=0.0))
        centres = moved
        if shift <= rest:
            break
    return centres


def nearest_centre(points: Floats, centres: Floats) -> Ints:
    """Row of the nearest centre of each point."""
    rows = max(1, BLOCK // max(1, len(centres)))
    parts = [
        np.argmin(_squared(points[start : start + rows], centres), axis=1) for start in range(0, len(points), rows)
    ]
    return np.concatenate(parts).astype(np.int32) if parts else np.empty(0, np.int32)


def _squared(points: Floats, centres: Floats) -> Floats:
    total = np.zeros((len(points), len(centres)))
    for k in range(points.shape[1]):
        gap = points[:, k, None] - centres[None, :, k]
        gap *= gap
        total += gap
    return total
