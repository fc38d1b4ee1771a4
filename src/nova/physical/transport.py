"""The optimal way to deal divisible demands out over hosts: a transportation problem, solved to its optimum.

Successive shortest paths with node prices: sub-joins enter one by one; each takes the cheapest chain of moves that ends
at a host with room. The prices stay dual feasible throughout, so the end is the optimum of the linear program.
Dense in sub-joins × hosts: for problems of some thousand nodes, where an optimum is worth a second.
"""

from __future__ import annotations

import numpy as np

from nova.jit import kernel
from nova.problem import Floats, Ints


def transport(cost: Floats, demand: Floats, room: Floats, order: Ints) -> tuple[Floats, Floats]:
    """Tuples/s that each host takes of each sub-join (hosts × sub-joins), and the hosts' prices, in cost per tuple/s.

    `cost[j, h]` is what sub-join j costs wholly on host h. What does not fit stays out; `order` says who enters first.
    """
    unit = cost / demand[:, None]
    flow, price = _paths(unit, demand, room, order.astype(np.int64))
    return flow, price


@kernel
def _paths(unit, demand, room, order):  # type: ignore[no-untyped-def]
    joins, hosts = unit.shape
    flow = np.zeros((hosts, joins))
    free = room.copy()
    price = np.zeros(hosts)
    value = np.zeros(joins)  # dual value of a sub-join: its least unit cost plus price
    distance = np.empty(hosts)
    settled = np.empty(hosts, np.bool_)
    via_join = np.empty(hosts, np.int64)
    join_distance = np.empty(joins)
    seen = np.empty(joins, np.bool_)
    via_host = np.empty(joins, np.int64)
    path = np.empty(hosts, np.int64)
    for start in order:
        rest = demand[start]
        value[start] = (unit[start] + price).min()
        while rest > 1e-12 * demand[start]:
            seen[:] = False
            settled[:] = False
            seen[start] = True
            join_distance[start] = 0.0
            for h in range(hosts):
                distance[h] = max(unit[start, h] + price[h] - value[start], 0.0)
                via_join[h] = start
            end = -1
            settled_count = 0
            while True:
                nearest, least = -1, np.inf
                for h in range(hosts):
                    if not settled[h] and distance[h] < least:
                        nearest, least = h, distance[h]
                if nearest < 0:
                    break
                settled[nearest] = True
                path[settled_count] = nearest
                settled_count += 1
                if free[nearest] > 0.0:
                    end = nearest
                    break
                for j in range(joins):
                    if flow[nearest, j] > 0.0 and not seen[j]:
                        seen[j] = True
                        join_distance[j] = least
                        via_host[j] = nearest
                        offset = least - value[j]
                        for h in range(hosts):
                            through = unit[j, h] + price[h] + offset
                            if not settled[h] and through < distance[h]:
                                distance[h] = through
                                via_join[h] = j
            if end < 0:
                break  # every host is full: the rest does not fit
            length = distance[end]
            for j in range(joins):
                if seen[j]:
                    value[j] += length - join_distance[j]
            for k in range(settled_count):
                h = path[k]
                price[h] += length - distance[h]
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
