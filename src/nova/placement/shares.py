"""Where all sub-joins divide by key: shares of them move between hosts while that lowers the cost.

A share pays its weighted legs and the time at its host, and makes all others there wait longer, as in `felt`. There a
sub-join divides into equal pieces; here shares are any numbers, so that large hosts fill until one more tuple is dearer
there than on small ones, and no further. Every replica beyond the first costs `PER_REPLICA` of the legs, so parts that
gain little close. A descent: it ends where no move of one share of one sub-join gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nova.jit import kernel
from nova.model.policy import PER_REPLICA, ROUNDING
from nova.model.problem import Floats
from nova.model.waiting import sojourn_ms
from nova.placement.felt import LARGEST, LEAST, QUANTILE, REPLICAS, SCV, WAITING
from nova.placement.kernels import host_cost
from nova.placement.transport import transport

ROUNDS = 60
"""Passes over all sub-joins at most."""
SETTLED = 1e-4
"""Gain of a pass, as a share of the cost, below which the descent ends."""
SPARE = (1.01, 1.1)
"""Room, as a multiple of what sub-joins need, that hosts filled evenly have in all."""
LONGEST_MS = 1e9
"""Longer than any wait."""
HALVINGS = 24
"""Steps of the search for how much to move."""


@dataclass(frozen=True)
class Task:
    """Sub-joins that divide freely, and the hosts."""

    costs: Floats
    """Weighted legs in ms, a row per sub-join, a column per host."""
    demand: Floats
    importance: Floats
    """How much each sub-join counts."""
    least: Floats
    """Share of each sub-join that a part has at least."""
    limit: Floats
    """Tuples/s that each host serves."""
    room: Floats
    """Tuples/s that it may take in of these sub-joins."""
    busy: Floats
    """Tuples/s that its other work takes."""
    rules: Floats
    """As in `felt`."""

    def take(self, room: Floats) -> Floats | None:
        """Shares on hosts that are filled to their `room` and no further, legs and time there cheapest; None where not
        all fit."""
        rules = self.rules
        stay = sojourn_ms(self.busy + room, self.limit, rules[SCV], 0.0)
        price = self.importance[:, None] * (self.costs + rules[WAITING] * stay)
        flow, _ = transport(price, self.demand, room, np.argsort(self.demand, kind="stable").astype(np.int32))
        return self.tidy((flow / self.demand).T)

    def even_rooms(self) -> Iterator[Floats]:
        """Rooms such that one more tuple costs the same time at each host: more and more to spare, as long as there
        is."""
        before, total = -1.0, float(self.demand.sum())
        for spare in SPARE:
            low, high = 0.0, LONGEST_MS
            for _ in range(60):
                price = (low + high) / 2
                low, high = (price, high) if self._room_at(price).sum() < spare * total else (low, price)
            room = self._room_at(high)
            if room.sum() <= before * (1 + 1e-9):
                return
            before = room.sum()
            yield room

    def _room_at(self, price_ms: float) -> Floats:
        """Room up to the load λ at which one more tuple costs `price_ms` in all, its own time and the others' longer
        wait: d(λ·S)/dλ there."""
        turns = np.maximum(price_ms * self.limit / 1000.0, 1.0)  # the price in service times
        load = self.limit * (1.0 - 1.0 / np.sqrt(1.0 + 2.0 * (turns - 1.0) / max(self.rules[SCV], 1e-9)))
        return np.asarray(np.clip(load - self.busy, 0.0, self.room))

    def tidy(self, share: Floats) -> Floats | None:
        """The shares without parts that are too small, which the other parts of the sub-join take over; None where that
        is not within the hosts' room, or in more replicas than there may be."""
        if (share.sum(axis=1) < 1 - 1e-9).any():
            return None
        kept = np.where(share >= self.least[:, None] * (1 - 1e-9), share, 0.0)
        total = kept.sum(axis=1, keepdims=True)
        if not total.all() or (np.count_nonzero(kept, axis=1) > self.rules[REPLICAS]).any():
            return None
        kept /= total
        fits = self.load(kept) <= (self.busy + self.room) * (1 + 1e-9)
        return kept if fits.all() and (kept * self.demand[:, None]).max() <= self.rules[LARGEST] * (1 + 1e-9) else None

    def load(self, share: Floats) -> Floats:
        """Tuples/s that each host takes in, its other work included."""
        return np.asarray(self.busy + self.demand @ share)

    def again(self, share: Floats) -> Floats | None:
        """All sub-joins dealt out anew over hosts that keep their loads, which finds what no single move does."""
        return self.take((self.load(share) - self.busy) * (1 + ROUNDING))

    def improve(self, share: Floats) -> tuple[Floats, float]:
        """Shares (sub-joins × hosts, rows that sum to 1) no dearer than the given ones, and their cost in ms."""
        share = share.copy()
        floor = self.costs + self.rules[WAITING] * 1000.0 / self.limit
        order = np.argsort(floor, axis=1, kind="stable").astype(np.int32)
        joins = (self.costs, self.demand, self.importance, self.least)
        hosts = (self.limit, self.room, self.busy)
        sequence = np.argsort(-self.demand, kind="stable")
        return share, float(_improve(joins, hosts, self.rules, floor, order, sequence, share, ROUNDS))


@kernel
def _at(hosts, rules, h, present, load):  # type: ignore[no-untyped-def]
    """Weighted time at host h, summed over what it serves."""
    return rules[WAITING] * host_cost(present, load, 0.0, hosts[0][h], rules[SCV], rules[QUANTILE])


@kernel
def _added(joins, hosts, rules, world, j, k, part):  # type: ignore[no-untyped-def]
    """What a part of sub-join j costs on host k: its legs, and what the time there grows by. Negative: taken off."""
    costs, demand, importance, _ = joins
    load, present, now = world
    after = _at(hosts, rules, k, present[k] + part * importance[j], load[k] + part * demand[j])
    return part * importance[j] * costs[j, k] + after - now[k]


@kernel
def _put(joins, hosts, rules, world, share, j, k, part):  # type: ignore[no-untyped-def]
    """Add a part of sub-join j to host k, or take it off where it is negative."""
    load, present, now = world
    share[j, k] = max(share[j, k] + part, 0.0)
    load[k] += part * joins[1][j]
    present[k] = max(present[k] + part * joins[2][j], 0.0)
    if present[k] < 1e-12:
        present[k] = 0.0
    now[k] = _at(hosts, rules, k, present[k], load[k])


@kernel
def _recount(joins, hosts, rules, world, share):  # type: ignore[no-untyped-def]
    """Load, results and time of every host anew, without the rounding of many moves; returns the cost of all."""
    costs, demand, importance, _ = joins
    load, present, now = world
    load[:] = hosts[2]
    present[:] = 0.0
    total = 0.0
    for j in range(len(demand)):
        legs, parts = 0.0, 0
        for h in range(len(load)):
            if share[j, h] > 0.0:
                load[h] += share[j, h] * demand[j]
                present[h] += share[j, h] * importance[j]
                legs += share[j, h] * importance[j] * costs[j, h]
                parts += 1
        total += legs * (1.0 + PER_REPLICA * (parts - 1))
    for h in range(len(load)):
        now[h] = _at(hosts, rules, h, present[h], load[h])
        total += now[h]
    return total


@kernel
def _improve(joins, hosts, rules, floor, order, sequence, share, rounds):  # type: ignore[no-untyped-def]
    """Move shares until a pass over all sub-joins gains next to nothing; returns the cost."""
    count = len(hosts[0])
    world = (np.empty(count), np.empty(count), np.empty(count))
    total = _recount(joins, hosts, rules, world, share)
    for _ in range(rounds):
        before = total
        for j in sequence:
            _move(joins, hosts, rules, world, floor, order, share, j)
        total = _recount(joins, hosts, rules, world, share)
        if before - total < SETTLED * total:
            break
    return total


@kernel
def _charge(legs, parts):  # type: ignore[no-untyped-def]
    """What replicas beyond the first cost."""
    return PER_REPLICA * legs * (parts - 1)


@kernel
def _fits(joins, hosts, rules, world, share, j, k, part):  # type: ignore[no-untyped-def]
    """How much of a part of sub-join j host k has room for."""
    demand = joins[1][j]
    free = hosts[2][k] + hosts[1][k] - world[0][k]
    if share[j, k] == 0.0 and free < rules[LEAST]:
        return 0.0
    return max(min(part, min(free, rules[LARGEST] - share[j, k] * demand) / demand), 0.0)


@kernel
def _move(joins, hosts, rules, world, floor, order, share, j):  # type: ignore[no-untyped-def]
    """Move each part of sub-join j, or some of it, to the host where that gains most, if it gains."""
    costs, _, importance, least = joins
    count = share.shape[1]
    for h in range(count):
        if share[j, h] <= 0.0:
            continue
        legs, parts = 0.0, 0
        for k in range(count):
            if share[j, k] > 0.0:
                legs += share[j, k] * importance[j] * costs[j, k]
                parts += 1
        held = share[j, h]
        to, best, much = -1, -1e-9 * legs, 0.0
        for part in (held, held / 4.0, held / 16.0, held / 64.0):
            if part < held and held - part < least[j]:
                continue
            off = _added(joins, hosts, rules, world, j, h, -part)
            for k in order[j]:
                if part * importance[j] * floor[j, k] + off - _charge(legs, parts) >= best:
                    break
                moved = part if k == h else _fits(joins, hosts, rules, world, share, j, k, part)
                if k == h or moved < 0.5 * part or share[j, k] + moved < least[j]:
                    continue
                if moved < held and (held - moved < least[j] or (share[j, k] == 0.0 and parts >= rules[REPLICAS])):
                    continue
                if moved < part:  # only as much as there is room for
                    change = _change(joins, hosts, rules, world, share, j, h, k, moved, legs, parts)
                else:
                    change = off + _added(joins, hosts, rules, world, j, k, part)
                    change += _charged(joins, share, j, h, k, moved, legs, parts)
                if change < best:
                    to, best, much = k, change, moved
        if to < 0:
            continue
        new = share[j, to] == 0.0
        low = max(least[j] - share[j, to], 0.0)
        high = min(_fits(joins, hosts, rules, world, share, j, to, held), held - least[j])
        if low < high and not (new and parts >= rules[REPLICAS]):
            for _ in range(HALVINGS):
                one, other = low + (high - low) / 3.0, high - (high - low) / 3.0
                if _change(joins, hosts, rules, world, share, j, h, to, one, legs, parts) < _change(
                    joins, hosts, rules, world, share, j, h, to, other, legs, parts
                ):
                    high = other
                else:
                    low = one
            middle = (low + high) / 2.0
            if middle > 0.0 and _change(joins, hosts, rules, world, share, j, h, to, middle, legs, parts) < best:
                much = middle
        _put(joins, hosts, rules, world, share, j, h, -much)
        _put(joins, hosts, rules, world, share, j, to, much)
        if much == held:
            share[j, h] = 0.0


@kernel
def _charged(joins, share, j, h, k, part, legs, parts):  # type: ignore[no-untyped-def]
    """What the charge for replicas grows by where a part moves from host h to k."""
    costs, _, importance, _ = joins
    after = legs + part * importance[j] * (costs[j, k] - costs[j, h])
    return _charge(after, parts + (share[j, k] == 0.0) - (part >= share[j, h])) - _charge(legs, parts)


@kernel
def _change(joins, hosts, rules, world, share, j, h, k, part, legs, parts):  # type: ignore[no-untyped-def]
    """What the cost grows by where a part moves from host h to k."""
    both = _added(joins, hosts, rules, world, j, h, -part) + _added(joins, hosts, rules, world, j, k, part)
    return both + _charged(joins, share, j, h, k, part, legs, parts)
