"""Vivaldi (Dabek, Cox, Kaashoek and Morris, SIGCOMM 2004): each node moves by its own measurements alone.

The paper's choice for Phase I, kept for online and decentralised use: `update` takes one measurement. As a batch
method the stress solver is more accurate on the same data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nova.costspace import dice
from nova.costspace.neighbours import adjacency
from nova.jit import inline, kernel
from nova.model.problem import Floats, Ints
from nova.model.space import Rows

C_MOVE = 0.25
"""c_c: the largest share of a residual that one measurement removes."""
C_ERROR = 0.25
"""c_e: how fast a node's opinion of its own error follows the measurements."""
FIRST_ERROR = 1.0
"""Relative error that a node without measurements ascribes to itself."""
LEAST_ERROR = 1e-3
"""A node never thinks itself better than this: two perfect nodes would divide zero by zero."""
LEAST_HEIGHT = 1e-2
"""ms. Heights grow in proportion to themselves, so they must not reach zero."""
ROUNDS = 500
"""Measurements that every node takes in a batch run; about twenty per neighbour for m = 32."""
CHUNK = 50
"""Rounds between two reports of progress."""


@inline
def _step(
    state: Floats,
    error: Floats,
    i: int | np.int64,
    other: Floats,
    other_error: float,
    rtt: float,
    heights: bool,
    angle: float,
) -> None:
    """Node i moves after measuring `rtt` ms to a node at `other` (coordinates, then height). Changes row i in place.

    `angle` in [0, 1) gives the direction of flight where both nodes sit on one spot.
    """
    d = state.shape[1] - 1
    square = 0.0
    for c in range(d):
        square += (state[i, c] - other[c]) ** 2
    straight = np.sqrt(square)
    both = state[i, d] + other[d] if heights else 0.0
    distance = straight + both
    weight = error[i] / (error[i] + other_error)
    sample = abs(distance - rtt) / rtt
    error[i] = max(LEAST_ERROR, sample * C_ERROR * weight + error[i] * (1.0 - C_ERROR * weight))
    force = C_MOVE * weight * (rtt - distance)
    if straight > 1e-9 * rtt:
        for c in range(d):
            state[i, c] += force * (state[i, c] - other[c]) / (distance if heights else straight)
    else:
        for c in range(d):
            state[i, c] += abs(force) * np.cos(2.0 * np.pi * (angle - 0.25 * c) * (1 + c // 2))
    if heights:
        state[i, d] = max(LEAST_HEIGHT, state[i, d] + force * both / max(distance, 1e-12))


@kernel
def _update(
    state: Floats, error: Floats, other: Floats, other_error: float, rtt: float, heights: bool, angle: float
) -> None:
    _step(state, error, 0, other, other_error, rtt, heights, angle)


@dataclass(frozen=True)
class Peer:
    """One node as itself and others know it: what nodes exchange in a decentralised run."""

    coordinate: Floats
    height: float = LEAST_HEIGHT
    """ms; ignored where the space has no heights."""
    error: float = FIRST_ERROR
    """The node's own relative error, as it believes."""


def update(mine: Peer, peer: Peer, rtt_ms: float, *, heights: bool = True, seed: int = 0) -> Peer:
    """What `mine` becomes after measuring `rtt_ms` to `peer`. Measurements that are no RTT are refused with ValueError.

    `seed` decides the direction of flight where both sit on one spot.
    """
    if not (np.isfinite(rtt_ms) and rtt_ms > 0):
        raise ValueError(f"an RTT is a positive number of ms (found {rtt_ms!r})")
    state = np.append(np.asarray(mine.coordinate, dtype=np.float64), mine.height)[None, :]
    other = np.append(np.asarray(peer.coordinate, dtype=np.float64), peer.height)
    error = np.array([mine.error])
    angle = float(np.random.default_rng(seed).random())
    _update(state, error, other, peer.error, float(rtt_ms), heights, angle)
    return replace(mine, coordinate=state[0, :-1], height=float(state[0, -1]), error=float(error[0]))


@kernel
def _rounds(
    state: Floats,
    error: Floats,
    offsets: Rows,
    neighbour: Ints,
    rtt: Floats,
    begin: int,
    end: int,
    heights: bool,
    seed: int,
) -> None:
    """In rounds begin … end − 1 every node measures one drawn neighbour and moves. Changes state and error in place."""
    n = len(error)
    for number in range(begin, end):
        salt = seed * 1_000_003 + number
        step, i = dice.stride(n, salt), dice.below(n, salt, 2)
        for _ in range(n):
            i = (i + step) % n
            degree = offsets[i + 1] - offsets[i]
            if degree == 0:
                continue
            k = offsets[i] + dice.below(degree, salt, 3 + 2 * i)
            j = neighbour[k]
            _step(state, error, i, state[j], error[j], rtt[k], heights, dice.share(salt, 4 + 2 * i))


def solve(
    n: int,
    first: Ints,
    second: Ints,
    rtt: Floats,
    *,
    dimensions: int = 2,
    heights: bool = False,
    seed: int = 0,
    rounds: int = ROUNDS,
    progress: Callable[[float], None] | None = None,
) -> tuple[Floats, Floats]:
    """Coordinates (n × dimensions) and heights (n) in ms, each node starting at the origin as in the paper."""
    state = np.zeros((n, dimensions + 1))
    state[:, dimensions] = LEAST_HEIGHT if heights else 0.0
    if len(rtt):
        assert 0 < float(rtt.min()) <= float(rtt.max()) < np.inf, "RTTs are positive and finite"
        error = np.full(n, FIRST_ERROR)
        offsets, pairs = adjacency(n, first, second)
        owner = np.repeat(np.arange(n, dtype=np.int32), np.diff(offsets))
        neighbour = (first[pairs] + second[pairs] - owner).astype(np.int32)
        times = np.ascontiguousarray(rtt[pairs], dtype=np.float64)
        for done in range(0, rounds, CHUNK):
            _rounds(state, error, offsets, neighbour, times, done, min(done + CHUNK, rounds), heights, seed)
            if progress is not None:
                progress(min(1.0, (done + CHUNK) / rounds))
    assert bool(np.isfinite(state).all()), "Vivaldi never leaves finite numbers"
    return np.ascontiguousarray(state[:, :-1]), np.ascontiguousarray(state[:, -1])
