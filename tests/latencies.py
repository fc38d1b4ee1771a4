"""Measured latencies for tests of the cost space: small, by hand, or from the shared data."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nova.model.problem import Floats, Latency


def of_matrix(matrix: Floats) -> Latency:
    """The measured pairs of a square matrix: zeros and NaN are missing, two directions are averaged."""
    both = np.stack([matrix, matrix.T])
    both = np.where(both > 0, both, np.nan)
    measured = np.isfinite(both)
    mean = np.where(measured, both, 0.0).sum(0) / np.maximum(1, measured.sum(0))
    first, second = np.nonzero(np.triu(mean > 0, 1))
    return Latency(first.astype(np.int32), second.astype(np.int32), mean[first, second])


def of_pairs(pairs: Sequence[tuple[int, int, float]]) -> Latency:
    first, second, rtt = zip(*pairs, strict=True)
    return Latency(np.array(first, np.int32), np.array(second, np.int32), np.array(rtt, np.float64))


def ripe_atlas(shared: Path) -> tuple[int, Latency]:
    """RIPE Atlas without its two dead anchors: (nodes, latency)."""
    with gzip.open(shared / "data/latency/ripe-atlas-723.csv.gz", "rt") as file:
        rows = [row[1:] for row in csv.reader(file)][1:]
    matrix = np.array(rows, dtype=np.float64)
    np.fill_diagonal(matrix, 0.0)
    alive = (matrix > 0).any(axis=1)
    return int(alive.sum()), of_matrix(matrix[np.ix_(alive, alive)])


def planetlab(shared: Path) -> tuple[int, Latency]:
    """PlanetLab, slot 1: (nodes, latency)."""
    matrix = np.load(shared / "data/latency/planetlab-490-18slots.npz")["rtt_ms"][0].astype(np.float64)
    return len(matrix), of_matrix(matrix)


def shuffled(latency: Latency, seed: int) -> Latency:
    """The same measurements in another order."""
    order = np.random.default_rng(seed).permutation(len(latency))
    return Latency(latency.first[order], latency.second[order], latency.rtt_ms[order])
