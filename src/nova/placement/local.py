"""Local search for unsplit sub-joins: shifts, swaps and ejections, each accepted only if the plan gets cheaper."""

from __future__ import annotations

import numpy as np

from nova.jit import kernel
from nova.model.problem import Floats, Ints

ROUNDS = 30


def improve(cost: Floats, demand: Floats, free: Floats, host: Ints) -> Ints:
    """Better hosts for whole sub-joins (`host[j]` is a column of `cost`, −1 where j is not placed whole). Changes
    `free` along; never takes more than a host has."""
    better = host.astype(np.int64)
    _improve(cost, demand, free, better, ROUNDS)
    return better.astype(np.int32)


@kernel
def _refuge(j, cost, demand, free, host):  # type: ignore[no-untyped-def]
    """Cheapest other host that could take sub-join j right now."""
    best = -1
    for h in range(cost.shape[1]):
        if h != host[j] and free[h] >= demand[j] and (best < 0 or cost[j, h] < cost[j, best]):
            best = h
    return best


@kernel
def _improve(cost, demand, free, host, rounds):  # type: ignore[no-untyped-def]
    joins = len(host)
    refuge = np.empty(joins, np.int64)
    for _ in range(rounds):
        changed = False
        for j in range(joins):
            if host[j] < 0:
                continue
            to = _refuge(j, cost, demand, free, host)
            if to >= 0 and cost[j, to] < cost[j, host[j]] - 1e-9:
                free[host[j]] += demand[j]
                free[to] -= demand[j]
                host[j] = to
                changed = True
        for j in range(joins):
            refuge[j] = _refuge(j, cost, demand, free, host) if host[j] >= 0 else -1
        for j in range(joins):
            here = host[j]
            if here < 0:
                continue
            gain, partner, partner_to = 1e-9, -1, -1
            for k in range(joins):
                there = host[k]
                if there < 0 or there == here or free[there] + demand[k] < demand[j]:
                    continue
                saved = cost[j, here] - cost[j, there] + cost[k, there]
                to = refuge[k]
                if to >= 0 and to != here and free[to] >= demand[k] and saved - cost[k, to] > gain:
                    gain, partner, partner_to = saved - cost[k, to], k, to
                if free[here] + demand[j] >= demand[k] and saved - cost[k, here] > gain:
                    gain, partner, partner_to = saved - cost[k, here], k, here
            if partner >= 0:
                there = host[partner]
                free[there] += demand[partner]
                free[partner_to] -= demand[partner]
                free[here] += demand[j]
                free[there] -= demand[j]
                host[partner], host[j] = partner_to, there
                refuge[j] = _refuge(j, cost, demand, free, host)
                refuge[partner] = _refuge(partner, cost, demand, free, host)
                changed = True
        if not changed:
            return


def place_whole(cost: Floats, demand: Floats, free: Floats, order: Ints, c_min: float) -> Ints:
    """The cheapest host with room for each sub-join of `order`, one after the other; −1 where none has. Changes
    `free` along."""
    host = np.full(len(demand), -1, dtype=np.int64)
    _place_whole(cost, demand, free, order.astype(np.int64), host, c_min)
    return host.astype(np.int32)


@kernel
def _place_whole(cost, demand, free, order, host, c_min):  # type: ignore[no-untyped-def]
    for j in order:
        need = max(demand[j], c_min)
        best = -1
        for h in range(cost.shape[1]):
            if free[h] >= need and (best < 0 or cost[j, h] < cost[j, best]):
                best = h
        if best >= 0:
            host[j] = best
            free[best] -= demand[j]
