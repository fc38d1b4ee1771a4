"""Small problems by felt latency: hosts and cuts for all sub-joins such that ways, service and waiting cost least.

Every sub-join pays its weighted legs, and the time at the host for the tuples of both its sources, as often as it
counts (its importance). Who joins a host makes all others there wait longer: a place costs its legs and what the total
time at the host grows by. By this cost

1. sub-joins are placed, largest first, whole where any host has room, else cut;
2. each looks again for its best hosts, whole at first, then in any of its cuts, until none moves;
3. some are taken out at once and put back in another order, again and again; a plan that is worse may stand for a while
   at first, less and less later (simulated annealing), which finds what no single move does.

The search for the cheapest hosts goes along the sub-join's hosts in order of legs and service, and stops where these
alone cost more.

A search may start from a placement (`Start`) instead of nothing: what still fits stays where it is, and is only moved
for gain. With few trials that takes milliseconds, which is how a running plan is kept good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nova.jit import kernel
from nova.model.policy import PER_REPLICA
from nova.model.problem import Bools, Floats
from nova.placement.cuts import GRID, SLICE, Cut, most_pieces, table
from nova.placement.kernels import first_few, host_cost, slice_burst, slice_lateness

Longs: TypeAlias = npt.NDArray[np.int64]

ROUNDS = 30
"""Passes over all sub-joins at most, before the exchanges."""
TRIALS, MOST_TRIALS = 1000, 300_000
"""Cuts tried in exchanges, per sub-join and in all: some seconds' work at a thousand hosts."""
TAKEN = 5
"""Sub-joins taken out in one exchange at most."""
REACH = 96
"""Hosts with room, by legs and service, that an exchange looks at; passes over all sub-joins look at every host."""
QUIET = 400
"""Trials per sub-join without any change after which a search ends."""
CLOSE = 1e-3
"""Cost over that of all hosts to oneself, as a share of it, that is not worth a search."""
HEAT = 0.02
"""Loss that an exchange may make at first, as a share of a sub-join's least legs."""
WAITING, SCV, QUANTILE, LARGEST, LEAST, REPLICAS = 0, 1, 2, 3, 4, 5
"""Entries of `rules`: weight of time at hosts, arrival variability, quantile of the wait (0: mean), tuples/s a replica
takes in at most, free tuples/s below which a host is passed over, replicas of a sub-join at most."""


@dataclass(frozen=True)
class Hosts:
    """What placing changes: free tuples/s, results served, tuples/s taken in, and wait by bursts in ms."""

    limit: Floats
    """Tuples/s that each host serves."""
    free: Floats
    spare: Floats
    """Tuples/s beyond `free` that only those may take which else would be sliced."""
    load: Floats
    present: Floats
    burst: Floats

    @staticmethod
    def of(limit: Floats, free: Floats, spare: Floats, busy: Floats) -> Hosts:
        zero = np.zeros(len(limit))
        return Hosts(limit, free, spare, busy.copy(), zero, zero.copy())


@dataclass(frozen=True)
class Start:
    """A placement that the search begins with, and how long it may look for a better one."""

    cut: Longs
    """Of each sub-join, −1 where it has no place yet."""
    where: Longs
    """Hosts of its pieces, one column each."""
    trials: int
    """Cuts tried in exchanges, in all. Only gains are kept: nothing is worse than at the start but what must move."""


def place(
    costs: Floats,
    left: Floats,
    right: Floats,
    importance: Floats,
    window_ms: Floats,
    allowed: Bools,
    cuts: tuple[Cut, ...],
    last: Bools,
    hosts: Hosts,
    rules: Floats,
    seed: int,
    start: Start | None = None,
) -> tuple[Longs, Longs]:
    """The cut of each sub-join (−1: it found no room), and the hosts of its pieces.

    `costs[j, h]` are the weighted legs, `left` and `right` the rates, `importance` says how much each sub-join counts,
    `allowed[j, x]` whether sub-join j may be cut by `cuts[x]`, of which the first is to stay whole; those marked `last`
    only serve what fits in no other way. What has no room at the `start`'s hosts, or may not be cut so, is placed as if
    it had none. Changes `hosts` along.
    """
    joins = len(left)
    floor = costs + rules[WAITING] * 1000.0 / hosts.limit
    order = np.argsort(floor, axis=1, kind="stable").astype(np.int32)
    cut, where = np.full(joins, -1, np.int64), np.full((joins, most_pieces(cuts)), -1, np.int64)
    tried = np.zeros(len(cuts), np.int64)
    tried[last] = 1
    tried[[x for x, one in enumerate(cuts) if one.kind == SLICE]] = 2
    task = (costs, order, left, right, window_ms, allowed, table(cuts), tried, rules, floor, importance)
    count = len(hosts.limit)
    scratch = (np.empty(count, np.int64), np.empty(count))
    world = (
        *(hosts.limit, hosts.free, hosts.spare, hosts.load, hosts.present, hosts.burst),
        np.zeros(count),
        *scratch,
    )
    largest_first = np.argsort(-(left + right), kind="stable")
    heat, trials = 0.0, min(TRIALS * joins, MOST_TRIALS)
    if start is not None:
        trials = start.trials
        _begin(task, world, cut, where, largest_first, start.cut, start.where)
    elif joins and costs.shape[1]:
        heat = HEAT * float((importance * costs.min(axis=1)).mean())
    _descend(task, world, cut, where, largest_first, ROUNDS)
    if trials and not _nothing_to_find(costs, importance, floor, cut, where, rules[WAITING] * world[6].sum()):
        _exchange(task, world, cut, where, trials, heat, seed)
        _descend(task, world, cut, where, largest_first, ROUNDS)
    return cut, where


def _nothing_to_find(
    costs: Floats, importance: Floats, floor: Floats, cut: Longs, where: Longs, at_hosts: float
) -> bool:
    """Whether every sub-join is whole and costs little more than if it had all hosts to itself."""
    if not len(cut) or (cut != 0).any():
        return False
    total = float(importance @ costs[np.arange(len(cut)), where[:, 0]]) + at_hosts
    return total <= float(importance @ floor.min(axis=1)) * (1.0 + CLOSE)


@kernel
def _piece(task, j, x):  # type: ignore[no-untyped-def]
    """Pieces of sub-join j under cut x, and what one takes in and serves, by importance."""
    kind, m, n = task[6][x]
    if kind == GRID:
        return m * n, task[2][j] / m + task[3][j] / n, task[10][j] / (m * n)
    return m, (task[2][j] + task[3][j]) / m, task[10][j] / m


@kernel
def _worth(task, world, j, x, h, amount, share):  # type: ignore[no-untyped-def]
    """What a piece of sub-join j costs on host h besides its legs."""
    rules = task[8]
    limit, _, _, load, present, burst, now, _, _ = world
    own, more = 0.0, 0.0
    if task[6][x, 0] == SLICE:
        demand = task[2][j] + task[3][j]
        own = share * slice_lateness(task[4][j], demand, limit[h])
        more = slice_burst(task[4][j], demand, limit[h], amount)
    after = host_cost(present[h] + share, load[h] + amount, burst[h] + more, limit[h], rules[SCV], rules[QUANTILE])
    return rules[WAITING] * (own + after - now[h])


@kernel
def _charge(task, world, j, x, h, amount, share, sign):  # type: ignore[no-untyped-def]
    """Put a piece on a host (sign 1) or take it off (−1); returns what the host's total time changes by."""
    rules = task[8]
    limit, free, _, load, present, burst, now, _, _ = world
    before = now[h]
    own = 0.0
    if task[6][x, 0] == SLICE:
        demand = task[2][j] + task[3][j]
        own = share * slice_lateness(task[4][j], demand, limit[h])
        burst[h] = max(burst[h] + sign * slice_burst(task[4][j], demand, limit[h], amount), 0.0)
    present[h] = max(present[h] + sign * share, 0.0)
    if present[h] < 1e-9:
        present[h] = 0.0
    load[h] += sign * amount
    free[h] -= sign * amount
    now[h] = host_cost(present[h], load[h], burst[h], limit[h], rules[SCV], rules[QUANTILE])
    return rules[WAITING] * (now[h] - before + sign * own)


@kernel
def _put(task, world, cut, where, j, sign):  # type: ignore[no-untyped-def]
    """Put a sub-join where it is written to be, or take it out; returns the change of the plan's cost."""
    x = cut[j]
    pieces, amount, share = _piece(task, j, x)
    change, legs = 0.0, 0.0
    for i in range(pieces):
        h = where[j, i]
        change += _charge(task, world, j, x, h, amount, share, sign)
        legs += share * task[0][j, h]
    return change + sign * legs * (1.0 + PER_REPLICA * (_distinct(where[j], pieces) - 1))


@kernel
def _begin(task, world, cut, where, sequence, start_cut, start_where):  # type: ignore[no-untyped-def]
    """Put sub-joins where they are at the start, as far as that is allowed and there is room."""
    free, spare, rules = world[1], world[2], task[8]
    for j in sequence:
        x = start_cut[j]
        if x < 0 or not task[5][j, x]:
            continue
        pieces, amount, _ = _piece(task, j, x)
        fits = _distinct(start_where[j], pieces) <= rules[REPLICAS]
        for i in range(pieces):
            h, held = start_where[j, i], amount
            for k in range(pieces):
                held += amount * (k != i and start_where[j, k] == h)
            room = free[h] + spare[h]
            fits = fits and held <= room and room >= rules[LEAST] and held <= rules[LARGEST] * (1.0 + 1e-12)
        if fits:
            cut[j] = x
            where[j] = start_where[j]
            _put(task, world, cut, where, j, 1.0)


@kernel
def _distinct(hosts, pieces):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(pieces):
        new = True
        for k in range(i):
            new = new and hosts[k] != hosts[i]
        count += new
    return count


@kernel
def _choose(task, world, j, x, hosts, values, beyond, reach):  # type: ignore[no-untyped-def]
    """The cheapest hosts for the pieces of sub-join j under cut x, and their cost; ∞ where there is no room. `beyond`:
    the spare room may be used too. `reach`: hosts with room that are looked at, at most."""
    costs, order, rules = task[0], task[1], task[8]
    free, spare, floor = world[1], world[2], task[9]
    pieces, amount, share = _piece(task, j, x)
    least = max(amount, rules[LEAST])
    if amount > rules[LARGEST] * (1.0 + 1e-12):
        return np.inf
    if task[6][x, 0] == GRID:
        if pieces > rules[REPLICAS]:
            return np.inf
        count, looked = 0, 0
        for h in order[j]:
            if (count == pieces and share * floor[j, h] >= values[count - 1]) or looked >= reach:
                break
            if free[h] + beyond * spare[h] < least:
                continue
            looked += 1
            value = share * costs[j, h] + _worth(task, world, j, x, h, amount, share)
            count = first_few(values, count, pieces, value, h, hosts)
        if count < pieces:
            return np.inf
        total, legs = 0.0, 0.0
        for i in range(pieces):
            total += values[i]
            legs += share * costs[j, hosts[i]]
        return total + legs * PER_REPLICA * (pieces - 1)
    # Pieces may share a host: one after the other, each sees those before it. Hosts are priced when their turn in the
    # order comes, and again when they get a piece: nothing else changes what a host costs.
    near, price = world[7], world[8]
    total, legs = 0.0, 0.0
    done, at, priced = 0, 0, 0
    for i in range(pieces):
        best, best_value = -1, np.inf
        for k in range(priced):
            if price[k] < best_value:
                best, best_value = k, price[k]
        while at < len(order[j]) and priced < reach and share * floor[j, order[j, at]] < best_value:
            h = order[j, at]
            at += 1
            if free[h] + beyond * spare[h] < least:
                continue
            near[priced] = h
            price[priced] = share * costs[j, h] + _worth(task, world, j, x, h, amount, share)
            if price[priced] < best_value:
                best, best_value = priced, price[priced]
            priced += 1
        if best < 0:
            break
        h = near[best]
        hosts[i] = h
        total += _charge(task, world, j, x, h, amount, share, 1.0)
        legs += share * costs[j, h]
        done += 1
        held = amount
        for k in range(done):
            held += amount * (hosts[k] == h)
        if free[h] + beyond * spare[h] < least or held > rules[LARGEST] * (1.0 + 1e-12):
            price[best] = np.inf
        else:
            price[best] = share * costs[j, h] + _worth(task, world, j, x, h, amount, share)
    for i in range(done):
        _charge(task, world, j, x, hosts[i], amount, share, -1.0)
    replicas = _distinct(hosts, done)
    if done < pieces or replicas > rules[REPLICAS]:
        return np.inf
    return total + legs * (1.0 + PER_REPLICA * (replicas - 1))


@kernel
def _best(task, world, cut, where, j, level, hosts, kept, values, reach):  # type: ignore[no-untyped-def]
    """Write the cheapest way to place sub-join j, which is taken out, into cut and where; returns its cost (∞: none,
    nothing written). `level` 0: whole or as it was cut, 1: usual cuts too, 2: what is forced too."""
    allowed, cuts, tried = task[5], task[6], task[7]
    was = cut[j]
    best, best_cut = np.inf, -1
    for stage in range(3):  # within the share that may be used; beyond it; in slices
        if stage > 0 and (best_cut >= 0 or level < 2):
            break
        for x in range(len(cuts)):
            if not allowed[j, x] or (tried[x] == 2) != (stage == 2):
                continue
            if x > 0 and x != was and (level == 0 or (level == 1 and tried[x] > 0)):
                continue
            value = _choose(task, world, j, x, hosts, values, 1.0 if stage > 0 else 0.0, reach)
            if value < best:
                best, best_cut = value, x
                kept[:] = hosts
    if best_cut >= 0:
        cut[j] = best_cut
        where[j] = kept
    return best


@kernel
def _descend(task, world, cut, where, sequence, rounds):  # type: ignore[no-untyped-def]
    """Place what has no hosts, then let each sub-join look for better ones, until none finds any."""
    most = where.shape[1]
    hosts, kept, old = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    values = np.empty(most)
    level = 0
    for _ in range(rounds):
        changed = False
        for j in sequence:
            was, paid = cut[j], np.inf
            if was >= 0:
                old[:] = where[j]
                paid = -_put(task, world, cut, where, j, -1.0)
            at = level if was < 0 or task[7][was] == 0 else 2
            cost = _best(task, world, cut, where, j, at, hosts, kept, values, len(task[1][j]))
            if was < 0 and cost == np.inf:
                cost = _best(task, world, cut, where, j, 2, hosts, kept, values, len(task[1][j]))
            if was >= 0 and not cost < paid - 1e-9 * abs(paid):
                cut[j], cost = was, paid
                where[j] = old
            elif cut[j] >= 0:
                changed = True
            if cut[j] >= 0:
                _put(task, world, cut, where, j, 1.0)
        if not changed:
            if level == 1:
                return
            level = 1


@kernel
def _exchange(task, world, cut, where, trials, heat, seed):  # type: ignore[no-untyped-def]
    """Take some sub-joins out and put them back in another order; keep what is cheaper, and losses within the heat."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator inside kernels
    costs, left, right, tried = task[0], task[2], task[3], task[7]
    joins = len(cut)
    placed = np.flatnonzero(cut >= 0)
    if len(placed) < 2 or costs.shape[1] < 2:
        return
    chosen = np.empty(TAKEN + 1, np.int64)
    most = where.shape[1]
    old_cut, old_where = np.empty(TAKEN + 1, np.int64), np.empty((TAKEN + 1, most), np.int64)
    hosts, kept, values = np.zeros(most, np.int64), np.zeros(most, np.int64), np.empty(most)
    taken = np.zeros(joins, np.bool_)
    gained = 0.0
    first_cut, first_where = cut.copy(), where.copy()
    efforts = np.array([1, 1, len(tried)])  # cuts tried at each level
    efforts[1] = (tried == 0).sum()
    step, done, moved = 0, 0, 0
    while done < min(trials, moved + QUIET * joins):
        step += 1
        first = placed[np.random.randint(len(placed))]  # noqa: NPY002
        other = placed[np.random.randint(len(placed))]  # noqa: NPY002
        if tried[cut[other]] > tried[cut[first]]:
            first = other  # what is cut by force wants out of it
        chosen[0] = first
        taken[first] = True
        count, size = 1, 2 + np.random.randint(TAKEN)  # noqa: NPY002
        for _ in range(3 * size):
            if count == size:
                break
            near, near_cost = -1, np.inf  # one of some others whose host would suit the first
            for _ in range(1 if np.random.random() < 0.3 else 8):  # noqa: NPY002
                j = placed[np.random.randint(len(placed))]  # noqa: NPY002
                if not taken[j] and costs[first, where[j, 0]] < near_cost:
                    near, near_cost = j, costs[first, where[j, 0]]
            if near >= 0:
                taken[near] = True
                chosen[count] = near
                count += 1
        change = 0.0
        for i in range(count):
            j = chosen[i]
            old_cut[i] = cut[j]
            old_where[i] = where[j]
            change += _put(task, world, cut, where, j, -1.0)
        turn = np.random.permutation(count)  # noqa: NPY002
        if step % 2 == 0:  # the larger ones first, more or less
            size_of = np.empty(count)
            for i in range(count):
                size_of[i] = -(left[chosen[i]] + right[chosen[i]]) * (0.7 + 0.6 * np.random.random())  # noqa: NPY002
            turn = np.argsort(size_of)
        back = 0
        for i in turn:
            j = chosen[i]
            level = 2 if tried[cut[j]] > 0 else (1 if step % 4 == 0 else 0)
            done += efforts[level]
            if _best(task, world, cut, where, j, level, hosts, kept, values, REACH) == np.inf:
                break
            change += _put(task, world, cut, where, j, 1.0)
            back += 1
        warmth = heat * max(1.0 - done / trials, 0.0)
        if back < count or change > -warmth * np.log(max(np.random.random(), 1e-300)):  # noqa: NPY002
            for i in turn[:back]:
                _put(task, world, cut, where, chosen[i], -1.0)
            for i in range(count):
                j = chosen[i]
                cut[j] = old_cut[i]
                where[j] = old_where[i]
                _put(task, world, cut, where, j, 1.0)
        else:
            gained -= change
            if abs(change) > 1e-6:  # less is rounding
                moved = done
        for i in range(count):
            taken[chosen[i]] = False
    if gained < 0.0:  # all was in vain: as it was
        for j in placed:
            _put(task, world, cut, where, j, -1.0)
        cut[:] = first_cut
        where[:] = first_where
        for j in placed:
            _put(task, world, cut, where, j, 1.0)
