"""Where an embedding starts from: landmark MDS on shortest paths, so that sparse measurements begin in the right shape.

A random start is as good where the measured pairs are drawn at random, but it folds up where only neighbours were
measured (sites behind gateways, rings, grids): no single pair knows the far shape there, only chains of pairs do.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra

from nova.model.problem import Floats, Ints
from nova.model.space import Rows

START_HEIGHT = 0.05
"""First guess of a height, as a share of the median RTT."""
BUDGET = 8_000_000
"""Landmarks × pairs: keeps the search for shortest paths in seconds at any size."""


def graph(n: int, first: Ints, second: Ints, rtt: Floats) -> csr_matrix:
    """The measured pairs as a symmetric sparse matrix in ms."""
    rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
    return coo_matrix((np.concatenate([rtt, rtt]), (rows, columns)), shape=(n, n)).tocsr()


def pieces(n: int, first: Ints, second: Ints) -> tuple[int, Ints]:
    """How many unconnected pieces the measured pairs leave, and the piece of every node."""
    links = coo_matrix((np.ones(len(first), dtype=np.int8), (first, second)), shape=(n, n))
    count, label = connected_components(links, directed=False)
    return int(count), label


def start(
    n: int, first: Ints, second: Ints, rtt: Floats, dimensions: int, heights: bool, seed: int, spread: float = 0.0
) -> Floats:
    """A first state, n × (dimensions + 1): coordinates, then height, in ms.

    `spread` blurs the layout by so many median RTTs, for further attempts from elsewhere.
    """
    rng = np.random.default_rng([seed, 2])
    middle = float(np.median(rtt))
    state = np.empty((n, dimensions + 1))
    # a little noise even here: layouts on a line would otherwise never leave it
    state[:, :dimensions] = rng.normal(scale=(0.01 + spread) * middle, size=(n, dimensions))
    state[:, :dimensions] += landmark_mds(n, first, second, rtt, dimensions, seed)
    state[:, dimensions] = START_HEIGHT * middle if heights else 0.0
    return state


def landmark_mds(n: int, first: Ints, second: Ints, rtt: Floats, dimensions: int, seed: int) -> Floats:
    """Coordinates from shortest paths to a few drawn landmarks (de Silva and Tenenbaum, 2004), n × dimensions in ms."""
    marks = draw_marks(n, len(rtt), dimensions, seed)
    ways = np.asarray(dijkstra(graph(n, first, second, rtt), directed=True, indices=marks))
    return from_ways(ways, marks, dimensions)


def draw_marks(n: int, pairs: int, dimensions: int, seed: int) -> Rows:
    """Landmarks: fewer where there are many pairs to search."""
    count = min(n, int(np.clip(BUDGET // max(1, pairs), 4 * (dimensions + 1), 64)))
    return np.sort(np.random.default_rng([seed, 3]).choice(n, count, replace=False))


def from_ways(ways: Floats, marks: Rows, dimensions: int) -> Floats:
    """Coordinates, n × dimensions in ms, from the shortest ways (ms) of every landmark (row) to every node (column)."""
    reached = np.isfinite(ways)
    ways = np.where(reached, ways, ways[reached].max(initial=0.0))  # a start only: callers refuse pieces
    square = ways**2
    among = square[:, marks]
    centred = -0.5 * (among - among.mean(0) - among.mean(1)[:, None] + among.mean())
    values, vectors = np.linalg.eigh(0.5 * (centred + centred.T))
    coordinates = np.zeros((ways.shape[1], dimensions))
    for axis in range(min(dimensions, len(marks))):
        value, vector = values[-1 - axis], vectors[:, -1 - axis]
        if value > 1e-9 * max(values[-1], 1e-300):
            coordinates[:, axis] = -0.5 * (vector @ (square - among.mean(1)[:, None])) / np.sqrt(value)
    return coordinates
