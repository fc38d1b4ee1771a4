"""Phase I: a cost space for a problem, with an honest word on its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from nova.costspace import mds, residual, stress, vivaldi
from nova.costspace.accuracy import measure, tiv
from nova.costspace.landmarks import pieces
from nova.costspace.neighbours import choose, spanning
from nova.model.errors import Fault, InvalidInput
from nova.model.options import Options
from nova.model.problem import Bools, Floats, Ints, Latency, Problem
from nova.model.space import CostSpace, HeldOut

REFIT_SHARE = 0.1
"""Share of the pairs that a second fit leaves out where all are needed."""
RESERVE_FROM = 1_000_000
"""From so many pairs on a second fit costs more than `RESERVED` pairs are worth: those stay out of the only fit."""
RESERVED = 20_000
MOST_HELDOUT = 2_000_000
"""Accuracy is told on at most so many pairs, drawn: its last digits are not worth minutes."""

Progress = Callable[[float], None]
"""Called with the share of the work done, in [0, 1]."""


def embed(problem: Problem, options: Options = Options(), progress: Progress | None = None) -> CostSpace:
    """Phase I: the cost space of a problem.

    Coordinates on the nodes are the space; measurements, if any, only tell its accuracy. Otherwise the measured RTTs
    are embedded by `options.embedding`, from at most `options.neighbours` picks per node, same seed, same space.
    """
    latency, nodes = problem.latency, problem.nodes
    if nodes.coordinates is not None:
        heights = np.zeros(len(nodes)) if nodes.heights is None else nodes.heights
        space = CostSpace(np.ascontiguousarray(nodes.coordinates, dtype=np.float64), heights)
        return space if latency is None else _told(space, latency, np.ones(len(latency), bool), "given", options)
    if latency is None:
        raise InvalidInput("the nodes have neither coordinates nor latencies: there is nothing to place them by")
    count, piece = pieces(len(nodes), latency.first, latency.second)
    if count <= 1:
        return embed_latency(len(nodes), latency, options, progress)
    return _embed_piece(latency, piece == _piece_in_use(problem, piece), options, progress)


def embed_latency(
    n: int, latency: Latency, options: Options = Options(), progress: Progress | None = None
) -> CostSpace:
    """The cost space of n nodes from measured RTTs, which have to connect all nodes; see `embed`. A low-rank residual
    refines the stress solver's space where measurements left out say that it helps."""
    used, heldout = _used(n, latency, options)
    refine = options.embedding == "stress" and residual.helpful(
        n, latency, used, lambda part: _fit(n, latency, part, options, None), options.seed
    )

    def fit(part: Bools, progress: Progress | None) -> CostSpace:
        space = _fit(n, latency, part, options, progress)
        return residual.with_residual(space, latency, part) if refine else space

    if heldout == "refit":
        space, trial = fit(np.ones(len(latency), bool), progress), fit(used, None)
        return replace(space, accuracy=_told(trial, latency, ~used, heldout, options).accuracy)
    return _told(fit(used, progress), latency, used if heldout == "none" else ~used, heldout, options)


def _used(n: int, latency: Latency, options: Options) -> tuple[Bools, HeldOut]:
    """Which pairs to fit, and what the others are. n·m pairs are what m picks of each node come to at most."""
    first, second, pairs = latency.first, latency.second, len(latency)
    if pairs > n * options.neighbours and options.embedding != "mds":
        used = choose(n, first, second, latency.rtt_ms, options.neighbours, options.seed)
        if not used.all():
            return used, "unused"
    order = np.random.default_rng([options.seed, 6]).permutation(pairs).astype(np.int64)
    needed = np.zeros(pairs, bool)
    needed[spanning(n, first, second, order)] = True
    spare = order[~needed[order]]
    out = spare[: RESERVED if pairs >= RESERVE_FROM else round(REFIT_SHARE * pairs)]
    used = np.ones(pairs, bool)
    used[out] = False
    return used, "none" if len(out) == 0 else "reserved" if pairs >= RESERVE_FROM else "refit"


def _fit(n: int, latency: Latency, used: Bools, options: Options, progress: Progress | None) -> CostSpace:
    first, second, rtt = latency.first[used], latency.second[used], latency.rtt_ms[used]
    coordinates: Floats
    heights: Floats
    if options.embedding == "stress":
        coordinates, heights = stress.solve(
            n,
            first,
            second,
            rtt,
            dimensions=options.dimensions,
            heights=options.heights,
            seed=options.seed,
            progress=progress,
        )
    elif options.embedding == "vivaldi":
        coordinates, heights = vivaldi.solve(
            n,
            first,
            second,
            rtt,
            dimensions=options.dimensions,
            heights=options.heights,
            seed=options.seed,
            progress=progress,
        )
    else:
        coordinates, heights = mds.solve(
            n, first, second, rtt, dimensions=options.dimensions, seed=options.seed, progress=progress
        )
    return CostSpace(coordinates, heights)


def _told(space: CostSpace, latency: Latency, on: Bools, heldout: HeldOut, options: Options) -> CostSpace:
    """The space with its accuracy on the pairs `on`."""
    rows = np.flatnonzero(on)
    if len(rows) > MOST_HELDOUT:
        rows = np.sort(np.random.default_rng([options.seed, 7]).choice(rows, MOST_HELDOUT, replace=False))
    first, second, rtt = latency.first, latency.second, latency.rtt_ms
    broken = tiv(len(space), first, second, rtt, options.seed)
    return replace(space, accuracy=measure(space, first[rows], second[rows], rtt[rows], heldout, broken))


def _piece_in_use(problem: Problem, piece: Ints) -> int:
    """The one piece that holds all hosts, sources and sinks. Pieces have no latency between them, and none may be
    made up (consul #20955)."""
    used = problem.nodes.hosts.copy()
    used[problem.sources.node] = True
    used[[query.sink for query in problem.queries]] = True
    sizes = np.bincount(piece[used])
    largest = int(sizes.argmax())
    if np.count_nonzero(sizes) > 1:
        ids: pa.StringArray = problem.nodes.ids
        raise InvalidInput(
            [
                Fault(
                    "latency",
                    f"no measured way to the {sizes[largest]:,} nodes of the largest connected piece",
                    field="id",
                    value=ids[int(node)].as_py(),
                )
                for node in np.flatnonzero(used & (piece != largest))
            ]
        )
    return largest


def _embed_piece(latency: Latency, inside: Bools, options: Options, progress: Progress | None) -> CostSpace:
    """Embed the nodes `inside`, which are connected. The others, which nothing uses, are infinitely high: no finite
    latency is known to them."""
    row = np.cumsum(inside).astype(np.int32) - np.int32(1)
    keep = inside[latency.first]
    part = Latency(row[latency.first[keep]], row[latency.second[keep]], latency.rtt_ms[keep])
    space = embed_latency(int(inside.sum()), part, options, progress)
    coordinates = np.tile(space.coordinates.mean(0), (len(inside), 1))
    heights = np.full(len(inside), np.inf)
    coordinates[inside], heights[inside] = space.coordinates, space.heights
    refined = space.residual
    if refined is not None:
        factors = np.zeros((len(inside), refined.rank))
        factors[inside] = refined.factors
        refined = replace(refined, factors=factors)
    return CostSpace(coordinates, heights, space.accuracy, refined)
