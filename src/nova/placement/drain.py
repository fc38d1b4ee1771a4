"""Where something must be sliced: all sub-joins in one transportation problem that prices drain times.

A host that gets whole windows of a sub-join of D tuples/s and serves μ is (D/μ − 1) windows behind when one ends.
Placing one sub-join after the other fills hosts with the large ones and leaves to the rest what is small everywhere.
Here large sub-joins get the hosts that keep up with them, and small ones the small hosts: every part pays its legs, its
service and w·d·(1 + d/2W) for a drain time of d at windows of W, dearer the longer, since one drain time may meet the
next one's. Most sub-joins come out whole, the others in two or three parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.policy import PER_REPLICA
from nova.model.problem import Bools, Floats
from nova.model.waiting import KNEE, drain_ms, sojourn_ms, waiting_quantile
from nova.placement.transport import transport

LEVELS = (0.93, 0.97, 1.0)
"""Shares of the hosts that may be used, in turn, until all fits: fuller, their queues are longer than drain times."""


@dataclass(frozen=True)
class Task:
    """Sub-joins to be placed on hosts, and what time there is worth."""

    costs: Floats
    """Weighted legs in ms, a row per sub-join, a column per host."""
    demand: Floats
    windows: Floats
    """In ms."""
    limit: Floats
    """Tuples/s that each host serves, and what of them its other work takes."""
    busy: Floats
    weight: float
    """Of time at hosts, beside the legs."""
    scv: float
    quantile: float
    """Of the wait, or 0: its mean."""

    def divide(self, room: Floats, freely: Bools) -> Floats:
        """Tuples/s of each sub-join (columns) on each host (rows); those marked `freely` divide without bursts."""
        windows, demand = self.windows[:, None], self.demand[:, None]
        late = np.where(freely[:, None], 0.0, drain_ms(windows, demand, self.limit))
        price = self.costs + self.weight * (1000.0 / self.limit + late * (1.0 + 0.5 * late / windows))
        return transport(price, self.demand, room, np.argsort(self.demand, kind="stable").astype(np.int32))[0]

    def cost(
        self,
        join: npt.NDArray[np.integer],
        slot: npt.NDArray[np.integer],
        share: Floats,
        amount: Floats,
        sliced: Bools,
    ) -> float:
        """What a placement costs in ms: `share` of the results and `amount` tuples/s of a sub-join on a host, by whole
        windows where `sliced`. Windows of one sub-join come evenly spread, those of several meet: then one waits for
        half of the other's drain time, and for as much longer as the host has little time to catch up."""
        hosts = len(self.limit)
        late = np.where(sliced, drain_ms(self.windows[join], self.demand[join], self.limit[slot]), 0.0)
        load = self.busy + np.bincount(slot, amount, hosts)
        burst = np.minimum(amount / self.limit[slot], 1.0) * 0.5 * late
        idle = 1.0 - np.minimum(load / self.limit, KNEE)
        met = (np.bincount(slot, burst, hosts)[slot] - burst) / idle[slot]
        if self.quantile > 0:
            stay = 1000.0 / self.limit + waiting_quantile(self.quantile, load, self.limit, self.scv)
        else:
            stay = sojourn_ms(load, self.limit, self.scv, 0.0)
        parts = np.bincount(join, minlength=len(self.demand))[join]
        legs = share * self.costs[join, slot] * (1.0 + PER_REPLICA * (parts - 1))
        return float(legs.sum() + self.weight * (share * (stay[slot] + late + met)).sum())
