"""The optimal way to deal divisible demands out over hosts: a transportation problem, solved to its optimum.

Successive shortest paths with node prices: sub-joins enter one by one; each takes the cheapest chain of moves that ends
at a host with room. The prices stay dual feasible throughout, so the end is the optimum of the linear program.
Dense in sub-joins × hosts: for problems of some thousand nodes, where an optimum is worth a second.
"""

from __future__ import annotations

import numpy as np

from nova.jit import kernel, vector
from nova.model.problem import Floats, Ints

FAR = 1e300
"""Longer than any way; finite, because vector code assumes finite numbers."""


def transport(cost: Floats, demand: Floats, room: Floats, order: Ints) -> tuple[Floats, Floats]:
    """Tuples/s that each host takes of each sub-join (hosts × sub-joins), and the hosts' prices, in cost per tuple/s.

    `cost[j, h]` is what sub-join j costs wholly on host h. What does not fit stays out; `order` says who enters first.
    """
    if not len(room):
        return np.zeros((0, len(demand))), np.zeros(0)
    unit = cost / demand[:, None]
    flow, price = _paths(unit, demand, room, order.astype(np.int64))
    return flow, price


@vector
def _relax(unit, price, offset, reach, via, join):  # type: ignore[no-untyped-def]
    """Shorten the ways to hosts by going through `join`. Settled hosts have a negative reach and stay as they are."""
    for h in range(len(reach)):
        through = max(unit[h] + price[h] + offset, 0.0)  # rounding must not make it look settled
        shorter = through < reach[h]
        reach[h] = through if shorter else reach[h]
        via[h] = join if shorter else via[h]


@vector
def _nearest(reach):  # type: ignore[no-untyped-def]
    """The unsettled host of least reach; −1 where all are settled."""
    least = FAR
    for h in range(len(reach)):
        value = reach[h] if reach[h] >= 0.0 else FAR
        least = min(least, value)
    if least >= FAR:
        return -1
    for h in range(len(reach)):
        if reach[h] == least:
            return h
    return -1


@kernel
def _paths(unit, demand, room, order):  # type: ignore[no-untyped-def]
    joins, hosts = unit.shape
    flow = np.zeros((hosts, joins))
    free = room.copy()
    price = np.zeros(hosts)
    value = np.zeros(joins)  # dual value of a sub-join: its least unit cost plus price
    reach = np.empty(hosts)
    via_join = np.empty(hosts, np.int64)
    join_distance = np.empty(joins)
    seen = np.empty(joins, np.bool_)
    via_host = np.empty(joins, np.int64)
    path = np.empty(hosts, np.int64)
    path_length = np.empty(hosts)
    for start in order:
        rest = demand[start]
        value[start] = (unit[start] + price).min()
        while rest > 1e-12 * demand[start]:
            seen[:] = False
            seen[start] = True
            join_distance[start] = 0.0
            via_join[:] = start
            for h in range(hosts):
                reach[h] = max(unit[start, h] + price[h] - value[start], 0.0)
            end = -1
            settled = 0
            length = 0.0
            while True:
                nearest = _nearest(reach)
                if nearest < 0:
                    break
                length = float(reach[nearest])
                if free[nearest] > 0.0:
                    end = nearest
                    break
                reach[nearest] = -1.0
                path[settled], path_length[settled] = nearest, length
                settled += 1
                for j in range(joins):
                    if flow[nearest, j] > 0.0 and not seen[j]:
                        seen[j] = True
                        join_distance[j] = length
                        via_host[j] = nearest
                        _relax(unit[j], price, length - value[j], reach, via_join, j)
            if end < 0:
                break  # every host is full: the rest does not fit
            for j in range(joins):
                if seen[j]:
                    value[j] += length - join_distance[j]
            for k in range(settled):
                price[path[k]] += length - path_length[k]
            amount = min(rest, free[end])
            h = end
            while via_join[h] != start:
                j = via_join[h]
                h = via_host[j]
                amount = min(amount, flow[h, j])
            h = end
            free[end] -= amount
            if free[end] < 1e-12 * room[end]:
                free[end] = 0.0
            while True:
                j = via_join[h]
                flow[h, j] += amount
                if j == start:
                    break
                h = via_host[j]
                flow[h, j] -= amount
                if flow[h, j] < 1e-12 * demand[j]:
                    flow[h, j] = 0.0
            rest -= amount
    return flow, price
