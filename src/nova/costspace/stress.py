"""Batch stress solver with heights: the default of Phase I.

Minimises Σ ρ(‖x_i − x_j‖ + h_i + h_j − d_ij) over measured pairs by stochastic gradient descent with annealed steps:
every measurement in turn pulls its two nodes together or pushes them apart (Zheng, Pawar and Goodman, "Graph Drawing by
Stochastic Gradient Descent", 2018, extended by heights). Steps are proportional to 1/d, so that near pairs count more;
1/d² would let a few tiny RTTs decide everything and can collapse the layout.

Two sweeps of epochs. The first is quadratic and finds the global layout. The second is robust: residuals beyond a
share c of their RTT pull with constant force only, as in an L1 fit, so that detours and spikes, which no metric space
can fit, stop bending their neighbourhood. c shrinks from `LOOSE` to `TIGHT`. On RIPE Atlas (m = 20)
the robust sweep lowers the held-out median relative error from .087 to .077, on PlanetLab (m = 32) from .072 to .061.

Nodes are dealt into blocks and the pairs into cells of two blocks, which are worked off like the rounds of a
tournament: the cells of one round share no node. So they can run side by side and stay in cache, and the result is the
same whatever the number of threads. `descend` works on any slice of pairs, which is all that a distributed run needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from nova.costspace import dice
from nova.costspace.landmarks import start
from nova.jit import kernel
from nova.model.problem import Floats, Ints
from nova.model.space import Rows

LOOSE, TIGHT = 0.2, 0.05
"""Relative residual beyond which the robust sweep pulls with constant force, at its beginning and its end."""
QUADRATIC = 1e3
"""The same for the first sweep: so large that every residual counts in full."""
MANY = 100_000
"""From so many nodes on, cells run side by side. Below, one core is done before others are awake."""
BLOCKS = 16
"""Blocks that many nodes are dealt into: eight cells per round, for up to eight cores; fixed, so that results do not
depend on the machine."""
SMALL = 48
"""Up to this many nodes several starts are tried: small layouts have mirror-image traps, and cost nothing."""
RESTARTS = 12
LONG = 8192
"""From so many pairs on, pairs are visited in chunks of `CHUNK`: lines of cache are then read once."""
CHUNK = 32
COINCIDENT = 1e-9
"""Closer than this (as a share of the RTT), two nodes have no direction; a drawn one parts them."""
TO_HEIGHT = 0.5
"""Share of a coordinate's step that a height takes: heights follow more slowly, so that distance explains first."""


@dataclass(frozen=True)
class Schedule:
    """Epochs and step sizes. A step of 1 for a pair of median RTT removes its whole residual at once."""

    quadratic_epochs: int = 70
    robust_epochs: int = 90
    first_step: float = 1.0
    middle_step: float = 0.1
    last_step: float = 0.05

    @classmethod
    def of(cls, pairs: int) -> Schedule:
        """Fewer epochs where there are many pairs: more gain a hundredth of the error, for most of the time."""
        share = min(1.0, max(0.375, 400_000 / max(1, pairs)))
        return cls(round(cls.quadratic_epochs * share), round(cls.robust_epochs * share))

    def steps(self) -> Floats:
        """Step of every epoch. The robust sweep begins anew at `first_step`, as its force is bounded."""
        return np.concatenate(
            [
                np.geomspace(self.first_step, self.middle_step, self.quadratic_epochs),
                np.geomspace(self.first_step, self.last_step, self.robust_epochs),
            ]
        )

    def tolerances(self) -> Floats:
        """Relative residual of every epoch beyond which a pair pulls with constant force."""
        return np.concatenate(
            [
                np.full(self.quadratic_epochs, QUADRATIC),
                np.geomspace(LOOSE, TIGHT, self.robust_epochs),
            ]
        )


@kernel
def descend(
    state: Floats,
    first: Ints,
    second: Ints,
    rtt: Floats,
    begin: int,
    end: int,
    salt: int,
    step: float,
    tolerance: float,
    heights: bool,
) -> None:
    """Let the pairs [begin, end) pull once each, in an order drawn from `salt`. `state` changes in place.

    `state` is n × (d + 1): coordinates, then height, in ms. `step` is the share of the residual that a pair with an RTT
    of 1 ms would remove (so callers pass share × reference RTT); no pair ever removes more than its whole residual.
    """
    chunk = CHUNK if end - begin > LONG else 1
    count = (end - begin + chunk - 1) // chunk
    if count <= 0:
        return
    d = state.shape[1] - 1
    step_on, at = dice.stride(count, salt), dice.below(count, salt, 2)
    along = 1.0 / (1.0 + TO_HEIGHT) if heights else 1.0
    for visit in range(count * chunk):
        pair = begin + at * chunk + visit % chunk
        if visit % chunk == chunk - 1:
            at += step_on
            if at >= count:
                at -= count
        if pair >= end:
            continue
        i, j, target = first[pair], second[pair], rtt[pair]
        square = 0.0
        for c in range(d):
            square += (state[i, c] - state[j, c]) ** 2
        straight = np.sqrt(square)
        residual = straight + state[i, d] + state[j, d] - target
        relative = residual / (target * tolerance)
        move = 0.5 * along * residual * min(1.0, step / (target * np.sqrt(1.0 + relative * relative)))
        if straight > COINCIDENT * target:
            for c in range(d):
                shift = move * (state[i, c] - state[j, c]) / straight
                state[i, c] -= shift
                state[j, c] += shift
        else:
            for c in range(d):
                unit = dice.share(salt + pair, 3 + c) - 0.5
                state[i, c] -= move * unit
                state[j, c] += move * unit
        if heights:
            state[i, d] = max(0.0, state[i, d] - TO_HEIGHT * move)
            state[j, d] = max(0.0, state[j, d] - TO_HEIGHT * move)


@dataclass(frozen=True)
class Cells:
    """Pairs in an order that can run side by side: cell (I, J) holds the pairs between blocks I ≤ J."""

    first: Ints
    second: Ints
    rtt: Floats
    offsets: Rows
    """Cell k holds the pairs [offsets[k], offsets[k + 1])."""
    rounds: tuple[Rows, ...]
    """Cells that share no node, round by round; together all cells."""


def deal(first: Ints, second: Ints, rtt: Floats, block: Ints, seed: int) -> Cells:
    """Shuffle the pairs and sort them into cells by the blocks of their nodes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rtt))
    blocks = int(block.max(initial=0)) + 1
    if blocks == 1:
        return Cells(first[order], second[order], rtt[order], np.array([0, len(rtt)]), (np.array([0]),))
    low = np.minimum(block[first], block[second]).astype(np.int64)
    high = np.maximum(block[first], block[second]).astype(np.int64)
    cell = low * blocks + high
    order = order[np.argsort(cell[order], kind="stable")]
    offsets = np.searchsorted(cell[order], np.arange(blocks * blocks + 1)).astype(np.int64)
    return Cells(first[order], second[order], rtt[order], offsets, tournament(blocks))


def tournament(blocks: int) -> tuple[Rows, ...]:
    """Every block meets every other once (circle method) and itself once; in no round twice."""
    even = blocks + blocks % 2
    rounds = [np.arange(blocks, dtype=np.int64) * (blocks + 1)]
    ring = list(range(1, even))
    for _ in range(even - 1):
        seats = [0, *ring]
        games = [(seats[k], seats[even - 1 - k]) for k in range(even // 2)]
        cells = [min(a, b) * blocks + max(a, b) for a, b in games if max(a, b) < blocks]
        rounds.append(np.array(cells, dtype=np.int64))
        ring = ring[-1:] + ring[:-1]
    return tuple(rounds)


def epoch(state: Floats, cells: Cells, number: int, seed: int, step: float, tolerance: float, heights: bool) -> None:
    """Let every pair pull once. `state` changes in place; see `descend` for the units."""
    salt = (seed % 2**20) * 1_000_003 + number * 7919
    if len(cells.rounds) == 1:
        descend(state, cells.first, cells.second, cells.rtt, 0, len(cells.rtt), salt, step, tolerance, heights)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # threads, not prange: idle ones sleep and leave the cores alone
        for k in np.random.default_rng([seed, number]).permutation(len(cells.rounds)):
            games = [
                pool.submit(
                    descend,
                    state,
                    cells.first,
                    cells.second,
                    cells.rtt,
                    cells.offsets[cell],
                    cells.offsets[cell + 1],
                    salt + 7 * int(cell),
                    step,
                    tolerance,
                    heights,
                )
                for cell in cells.rounds[k]
            ]
            for game in games:
                game.result()


@kernel
def stress(state: Floats, first: Ints, second: Ints, rtt: Floats, tolerance: float) -> float:
    """Mean robust cost of the pairs, in ms: what the robust sweep descends at its end."""
    d = state.shape[1] - 1
    total = 0.0
    for pair in range(len(rtt)):
        square = 0.0
        for c in range(d):
            square += (state[first[pair], c] - state[second[pair], c]) ** 2
        z = (np.sqrt(square) + state[first[pair], d] + state[second[pair], d] - rtt[pair]) / rtt[pair]
        total += rtt[pair] * tolerance * (np.sqrt(tolerance * tolerance + z * z) - tolerance)
    return total / max(1, len(rtt))


def solve(
    n: int,
    first: Ints,
    second: Ints,
    rtt: Floats,
    *,
    dimensions: int = 3,
    heights: bool = True,
    seed: int = 0,
    schedule: Schedule | None = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Floats, Floats]:
    """Coordinates (n × dimensions) and heights (n) in ms from measured pairs. O(pairs) per epoch and in memory."""
    if len(rtt) == 0:
        return np.zeros((n, dimensions)), np.zeros(n)
    assert 0 < float(rtt.min()) <= float(rtt.max()) < np.inf, "RTTs are positive and finite"
    # Relabel at random: files tend to list neighbours together, which would make cells uneven and orders regular.
    label = np.random.default_rng([seed, 1]).permutation(n).astype(np.int32)
    blocks = BLOCKS if n >= MANY else 1
    block = (np.arange(n) * blocks // n).astype(np.int32)
    cells = deal(label[first], label[second], np.asarray(rtt, dtype=np.float64), block, seed)
    schedule = Schedule.of(len(rtt)) if schedule is None else schedule
    attempts = RESTARTS if n <= SMALL else 1
    best: Floats | None = None
    best_stress = np.inf
    for attempt in range(attempts):
        state = start(
            n,
            cells.first,
            cells.second,
            cells.rtt,
            dimensions,
            heights,
            seed + attempt,
            spread=0.0 if attempt == 0 else 1.0,
        )
        _anneal(state, cells, heights, seed + attempt, schedule, progress if attempts == 1 else None)
        value = stress(state, cells.first, cells.second, cells.rtt, TIGHT) if attempts > 1 else 0.0
        if value < best_stress:
            best, best_stress = state, value
    assert best is not None
    assert bool(np.isfinite(best).all()), "the solver never leaves finite numbers"
    best = best[label]
    return np.ascontiguousarray(best[:, :-1]), np.ascontiguousarray(best[:, -1])


def _anneal(
    state: Floats,
    cells: Cells,
    heights: bool,
    seed: int,
    schedule: Schedule,
    progress: Callable[[float], None] | None,
) -> None:
    reference = float(np.median(cells.rtt))
    steps, tolerances = schedule.steps() * reference, schedule.tolerances()
    for number, (step, tolerance) in enumerate(zip(steps, tolerances, strict=True)):
        epoch(state, cells, number, seed, float(step), float(tolerance), heights)
        if progress is not None:
            progress((number + 1) / len(steps))
