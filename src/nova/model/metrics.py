"""Metrics beside latency: what tuples cost on hosts and between nodes in energy, money, carbon or anything else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Metric:
    """A named metric, in units of its own per tuple."""

    name: str
    weight: float = 0.0
    """ms of the objective that one unit per second is worth; 0: only reported."""
    host: Floats | None = None
    """Units for each tuple that a node takes in as a host; None: none anywhere."""
    group: npt.NDArray[np.int32] | None = None
    """Row of `between` for each node; −1: nothing is counted there. None: ways are free."""
    between: Floats | None = None
    """Units for each tuple that travels from a node of one group to one of another."""

    def way(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> Floats:
        """Units for each tuple from nodes `a` to nodes `b`, pair by pair."""
        a, b = np.broadcast_arrays(a, b)
        if self.group is None or self.between is None:
            return np.zeros(a.shape)
        x, y = self.group[a], self.group[b]
        units: Floats = np.where((x < 0) | (y < 0) | (a == b), 0.0, self.between[x, y])
        return units

    def at(self, nodes: npt.NDArray[np.integer]) -> Floats:
        """Units for each tuple that hosts take in."""
        return np.zeros(nodes.shape) if self.host is None else self.host[nodes]

    def of_rows(self, rows: npt.NDArray[np.integer]) -> Metric:
        """The metric of these nodes, numbered anew; those beyond its own count nothing."""
        host, group = self.host, self.group
        if host is not None:
            host = np.append(host, 0.0)[np.minimum(rows, len(host))]
        if group is not None:
            group = np.append(group, np.int32(-1))[np.minimum(rows, len(group))].astype(np.int32)
        return replace(self, host=host, group=group)
