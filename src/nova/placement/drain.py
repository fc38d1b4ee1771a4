"""Where something must be sliced: all sub-joins in one transportation problem that prices drain times.

A host that gets whole windows of a sub-join of D tuples/s and serves μ is (D/μ − 1) windows behind when one ends.
Placing one sub-join after the other fills hosts with the large ones and leaves to the rest what is small everywhere.
Here large sub-joins get the hosts that keep up with them, and small ones the small hosts: every part pays its legs, its
service and w·d·(1 + d/2W) for a drain time of d at windows of W, dearer the longer, since one drain time may meet the
next one's. Most sub-joins come out whole, the others in two or three parts.

Where all divide by key nothing bursts, and the time at a host is convex in its load: there hosts are filled to where
one more tuple costs the same time everywhere, with a little room to spare so that ways stay short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nova.model.policy import PER_REPLICA
from nova.model.problem import Bools, Floats
from nova.model.waiting import KNEE, drain_ms, sojourn_ms, waiting_quantile
from nova.placement.transport import transport

LEVELS = (0.93, 0.97, 1.0)
"""Shares of the hosts that may be used, in turn, until all fits: fuller, their queues are longer than drain times."""
SPARE = (1.01, 1.03, 1.06, 1.1, 1.2, 1.4, 1.8)
"""Room, as a multiple of what sub-joins need, that hosts filled evenly have in all; the cheapest plan counts."""
LONGEST_MS = 1e9
"""Longer than any wait."""


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

    def even_rooms(self, usable: Floats) -> Iterator[Floats]:
        """Rooms of the hosts, up to what is `usable`, such that one more tuple costs the same time at each of them:
        more and more to spare, as long as there is."""
        before = -1.0
        for spare in SPARE:
            low, high = 0.0, LONGEST_MS
            for _ in range(60):
                price = (low + high) / 2
                low, high = (
                    (price, high) if self._room_at(price, usable).sum() < spare * self.demand.sum() else (low, price)
                )
            room = self._room_at(high, usable)
            if room.sum() <= before * (1 + 1e-9):
                return
            before = room.sum()
            yield room

    def _room_at(self, price_ms: float, usable: Floats) -> Floats:
        """Room up to the load λ at which one more tuple costs `price_ms` in all, its own time and the others' longer
        wait: d(λ·S)/dλ there."""
        turns = np.maximum(price_ms * self.limit / 1000.0, 1.0)  # the price in service times
        load = self.limit * (1.0 - 1.0 / np.sqrt(1.0 + 2.0 * (turns - 1.0) / max(self.scv, 1e-9)))
        return np.clip(load - self.busy, 0.0, usable)

    def balance(self, usable: Floats) -> Floats | None:
        """The same for sub-joins that all divide without bursts: the cheapest on hosts that are filled evenly; None
        where not all fit."""
        best, best_cost = None, np.inf
        order = np.argsort(self.demand, kind="stable").astype(np.int32)
        for room in self.even_rooms(usable):
            stay = sojourn_ms(self.busy + room, self.limit, self.scv, 0.0)
            flow, _ = transport(self.costs + self.weight * stay, self.demand, room, order)
            if flow.sum() < self.demand.sum() * (1 - 1e-9):
                continue
            slot, join = np.nonzero(flow)
            amount = flow[slot, join]
            cost = self.cost(join, slot, amount / self.demand[join], amount, np.zeros(len(join), np.bool_))
            if cost < best_cost:
                best, best_cost = flow, cost
        return best

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
