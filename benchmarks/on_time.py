"""The most results that any placement can have on time, where all joins divide freely by key.

    python benchmarks/on_time.py FOLDER --topology fit --load 0.8 --within 38.2

A linear program deals sub-joins out over hosts and intervals of the hosts' load. A result counts if it is at the sink
`--within` ms after the later of its events; what waits at a host is reckoned at the least load of the interval (M/D/1),
and the rest may be as late as it likes. All sub-joins make equally many results here. So no placement has more on time;
where that is less than half of the results, none has a median within this time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from nova.costspace import CostSpace
from nova.datasets.instances import load
from nova.model.problem import Problem
from nova.model.queue import md1_quantiles
from nova.placement.resolve import resolve
from nova.synthetic import draw

EDGES = np.array([0.0, 0.25, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0])
"""Where intervals of a host's load begin and end, as shares of what it serves."""
LEVELS = np.linspace(0.0, 0.9999, 2000)
"""Shares of the tuples whose waits are told apart."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]


def on_time(problem: Problem, within: float) -> float:
    """The largest share of all results that can be at the sink within so many ms."""
    joins, nodes = resolve(problem), problem.nodes
    assert nodes.coordinates is not None
    space = CostSpace(nodes.coordinates, np.zeros(len(nodes)))
    hosts = np.flatnonzero(nodes.room > 0)
    limit, room, demand = nodes.limit[hosts], nodes.room[hosts], joins.demand
    ends = (joins.left_node, joins.right_node)
    ways = [space.between(end[:, None], hosts) + space.between(hosts, joins.sink[:, None]) for end in ends]
    spare = [(within - way) * limit / 1000.0 - 1.0 for way in ways]  # services that a tuple may wait
    waits = md1_quantiles(EDGES[:-1], LEVELS)

    def soon(services: Floats, interval: int) -> Floats:
        """Share of the tuples that wait no longer."""
        return np.where(services < 0, 0.0, np.interp(services, waits[interval], LEVELS, right=1.0))

    gains = np.stack([0.5 * (soon(spare[0], k) + soon(spare[1], k)) for k in range(len(EDGES) - 1)], axis=2)
    join, host, interval = np.nonzero(gains > 1e-3)
    place = host * gains.shape[2] + interval
    n, places, count = len(join), len(hosts) * gains.shape[2], len(joins)
    late, used, rest = n + np.arange(places), n + places + np.arange(places), n + 2 * places + np.arange(count)
    size = n + 2 * places + count
    most = np.repeat(room, gains.shape[2]) * np.tile(EDGES[1:], len(hosts))
    within_interval = matrix(
        [(place, np.arange(n), demand[join]), (np.arange(places), late, 1.0), (np.arange(places), used, -most)],
        (places, size),
    )
    every = count + len(hosts)
    whole = matrix(
        [
            (join, np.arange(n), 1.0),
            (np.arange(count), rest, 1.0),
            (count + np.arange(places) // gains.shape[2], used, 1.0),
            (np.full(places, every), late, 1.0),
            (np.full(count, every), rest, -demand),
        ],
        (every + 1, size),
    )
    worth = np.zeros(size)
    worth[:n] = -gains[join, host, interval]
    found: Any = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        worth,
        A_ub=within_interval,
        b_ub=np.zeros(places),
        A_eq=whole,
        b_eq=np.append(np.ones(every), 0.0),
        method="highs-ipm",
    )
    if not found.success:
        raise SystemExit(found.message)
    return float(-found.fun / count)


def matrix(parts: list[tuple[Ints, Ints, Floats | float]], shape: tuple[int, int]) -> csr_array:
    """A sparse matrix from rows, columns and values."""
    rows, columns, values = zip(*((r, c, np.broadcast_to(v, r.shape)) for r, c, v in parts), strict=True)
    return csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape)


def main() -> None:
    """Draw the workload of `nova bench waiting` over a topology, and print the share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of instance files")
    parser.add_argument("--topology", default="fit")
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, required=True, help="ms")
    wanted = parser.parse_args()
    at = load(wanted.folder / f"{wanted.topology}-5.json").problem.nodes.coordinates
    problem = draw(seed=wanted.seed, coordinates=at, load=wanted.load)
    share = on_time(problem, wanted.within)
    print(f"{wanted.topology} at {wanted.load:.0%}: at most {share:.1%} of the results within {wanted.within:g} ms")


if __name__ == "__main__":
    main()
