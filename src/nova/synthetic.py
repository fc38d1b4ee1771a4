"""Problems drawn at random the way the paper's simulations draw them, at any size, repeatable by seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nova.model.operators import HANDED_ON, Estimate, Grouping, Output, Pipeline
from nova.model.problem import Floats, Nodes, Pairs, Problem, Query, Sources, numbered_ids

LEVELS = 6
"""Heterogeneity levels 0 … 5, from near-uniform to exponential capacities."""
MEAN_RATE = 38


def blobs(n: int, seed: int) -> Floats:
    """n points in Gaussian clusters over [0, 100] × [−50, 50] ms, 20 clusters per thousand nodes at most 2,000."""
    rng = np.random.default_rng([seed, 1])
    centres = rng.uniform([0, -50], [100, 50], size=(int(np.clip(n // 50, 3, 2000)), 2))
    spread = rng.uniform(0.5, 7.3, size=len(centres))
    cluster = rng.integers(len(centres), size=n)
    points: Floats = centres[cluster] + rng.normal(size=(n, 2)) * spread[cluster, None]
    return points


def capacities(sources: int, workers: int, level: int | None, seed: int) -> Floats:
    """Tuples/s of source nodes and workers: uniform at level 0, exponential at level 5, the same sum at all levels.

    Each kind is blended into an exponential of its own sum, so workers stay larger than sources and the coefficient of
    variation goes from 0.95 to 1.4. None: no limits (infinite).
    """
    if level is None:
        return np.full(sources + workers, np.inf)
    rng = np.random.default_rng([seed, 2])
    uniform = np.concatenate([rng.uniform(1, 50, sources), rng.uniform(1, 200, workers)])
    alpha = (level / (LEVELS - 1)) ** (2 / 3)
    exponential = rng.exponential(size=len(uniform))
    for kind in (slice(sources), slice(sources, None)):
        exponential[kind] *= uniform[kind].sum() / max(exponential[kind].sum(), 1e-300)
    blend = np.maximum((1 - alpha) * uniform + alpha * exponential, 1.0)
    result: Floats = np.floor(blend * (uniform.sum() / blend.sum()))
    return np.maximum(result, 1.0)


def rates(n: int, seed: int) -> Floats:
    """Integers from 1 to 75 whose mean is exactly 38."""
    rng = np.random.default_rng([seed, 3])
    drawn = rng.integers(1, 76, size=n)
    while (excess := int(drawn.sum()) - MEAN_RATE * n) != 0:
        step = -1 if excess > 0 else 1
        movable = np.flatnonzero(drawn > 1 if step < 0 else drawn < 75)
        chosen = rng.choice(movable, size=min(abs(excess), len(movable)), replace=False)
        drawn[chosen] += step
    return drawn.astype(np.float64)


def draw(
    nodes: int = 1001,
    level: int | None = 5,
    seed: int = 0,
    coordinates: Floats | None = None,
    load: float | None = None,
) -> Problem:
    """A problem after the paper: 60 % of the nodes are sources, paired at random, the rest workers, one random sink
    that hosts nothing. With `coordinates` the topology is given, else drawn. `load` rescales capacities so that the
    sources' rates sum to that share of them."""
    rng = np.random.default_rng([seed, 0])
    at = blobs(nodes, seed) if coordinates is None else np.asarray(coordinates, dtype=np.float64)
    n = len(at)
    joins = int((n - 1) * 0.6) // 2
    order = rng.permutation(n)
    sink, source_nodes, workers = order[0], order[1 : 1 + 2 * joins], order[1 + 2 * joins :]
    rate = rates(2 * joins, seed)
    capacity = np.zeros(n)
    capacity[np.concatenate([source_nodes, workers])] = capacities(len(source_nodes), len(workers), level, seed)
    if load is not None:
        capacity *= rate.sum() / (load * capacity.sum())
    output = np.full(joins, 10.0)
    capacity[sink] = 1.2 * output.sum()
    hosts = np.ones(n, dtype=bool)
    hosts[sink] = False
    side = np.repeat(np.array([0, 1], dtype=np.int32), joins)
    rows = np.arange(joins, dtype=np.int32)
    return Problem(
        nodes=Nodes(numbered_ids(n, "n"), capacity, np.full(n, np.inf), hosts, at, np.zeros(n)),
        streams=("left", "right"),
        sources=Sources(
            pa.concat_arrays([numbered_ids(joins, "l"), numbered_ids(joins, "r")]),
            side,
            source_nodes.astype(np.int32),
            rate,
        ),
        queries=(Query("join", 0, 1, int(sink), Pairs(rows, rows + np.int32(joins), output)),),
    )


def draw_chains(nodes: int = 1001, level: int | None = 5, seed: int = 0) -> Problem:
    """Joins of three streams: a tenth of the nodes times three are sources, in triples at random, the rest workers, one
    random sink that hosts nothing. The first two streams of a triple are joined, then their results with the third; of
    those, partial aggregates go to the sink: two groups a window and sub-join."""
    rng = np.random.default_rng([seed, 0])
    at = blobs(nodes, seed)
    chains = int((nodes - 1) * 0.3) // 3
    order = rng.permutation(nodes)
    sink, homes, workers = order[0], order[1 : 1 + 3 * chains], order[1 + 3 * chains :]
    capacity = np.zeros(nodes)
    capacity[np.concatenate([homes, workers])] = capacities(len(homes), len(workers), level, seed)
    hosts = np.ones(nodes, dtype=bool)
    hosts[sink] = False
    rows = np.arange(chains, dtype=np.int32)
    made = np.full(chains, 10.0)
    unknown = np.full(chains, np.nan)
    second = 1_000_000
    count = (("n", "count(*)"),), (("n", "sum(n)"),), (("n", "sum(n)"),)
    group = Grouping("array(unix_micros(window_start))", second, 0, (("k", "left_value"),), *count, True, second)
    groups = Output(Estimate(0.1, "stated"), most=2.0)
    return Problem(
        nodes=Nodes(numbered_ids(nodes, "n"), capacity, np.full(nodes, np.inf), hosts, at, np.zeros(nodes)),
        streams=("left", "right", "third", "join.1"),
        sources=Sources(
            pa.concat_arrays([numbered_ids(chains, prefix) for prefix in ("l", "r", "t", "l ⋈ r ")]),
            np.repeat(np.arange(4, dtype=np.int32), chains),
            np.concatenate([homes, np.full(chains, sink)]).astype(np.int32),
            np.concatenate([rates(3 * chains, seed), made]),
        ),
        queries=(
            Query("join.1", 0, 1, int(sink), Pairs(rows, rows + np.int32(chains), unknown), output=HANDED_ON, makes=3),
            Query(
                "join",
                3,
                2,
                int(sink),
                Pairs(rows + np.int32(3 * chains), rows + np.int32(2 * chains), unknown),
                pipeline=Pipeline(group=group),
                output=groups,
            ),
        ),
    )
