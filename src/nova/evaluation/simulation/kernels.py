"""The inner loops of the simulation, compiled. Times are in seconds since the start of the run.

A *group* is one sub-join on one host: all boxes of it there share the tuples that reach it. Deliveries stand in one
array, group by group, in each group first the left tuples, then the right ones, each in order of event time.
`split[g] = (start of left, start of right, end)`. `boxes` holds one row per replica, sorted by group: left_from,
left_to, right_from, right_to, slice_from, slice_to, key_from, key_to. Keys are places on the key axis;
`edges[at[g]:at[g + 1]]` says where the ranges of heavy keys begin on the axis of group g, and where that of all others.
"""

from __future__ import annotations

import numpy as np

from nova.evaluation.simulation.result import Longs
from nova.jit import inline, kernel
from nova.model.problem import Floats, Ints
from nova.routing.position import GOLDEN


@inline
def window_position(window: int) -> float:
    """Where window number `window` sits in [0, 1)."""
    return (window * GOLDEN) % 1.0


@inline
def kind_of(edges: Floats, first: int, last: int, key: float) -> int:
    """Which of the ranges that begin at rows first … last − 1 of `edges` a key lies in: a heavy one, or the last."""
    kind = 0
    while first + kind + 1 < last and edges[first + kind + 1] <= key:
        kind += 1
    return kind


@inline
def place_of(edges: Floats, first: int, last: int, key: float) -> float:
    """Where a key counts: a heavy one where its range begins."""
    kind = kind_of(edges, first, last, key)
    return key if first + kind == last - 1 else edges[first + kind]


@inline
def wanted(boxes: Floats, first: int, last: int, side: int, position: float, window: float, key: float) -> bool:
    """Whether any replica of rows first … last − 1 takes a tuple of this side, position, window position and key."""
    for k in range(first, last):
        inside = boxes[k, 2 * side] <= position < boxes[k, 2 * side + 1]
        if inside and boxes[k, 4] <= window < boxes[k, 5] and boxes[k, 6] <= key < boxes[k, 7]:
            return True
    return False


@kernel
def deliver(
    first: Longs,
    inputs: Ints,
    window_s: Floats,
    boxes: Floats,
    start: Longs,
    born: Floats,
    position: Floats,
    key: Floats,
    at: Longs,
    edges: Floats,
) -> tuple[Longs, Ints, Longs]:
    """Which tuples go to which group: (tuple of each delivery, group of each delivery, split).

    `inputs[g]` are the left and the right source of group g, `start[s]` the first tuple of source s.
    """
    n = len(first) - 1
    split = np.zeros((n, 3), np.int64)
    total = 0
    for g in range(n):
        split[g, 0] = total
        for side in range(2):
            s = inputs[g, side]
            for t in range(start[s], start[s + 1]):
                window = window_position(int(born[t] / window_s[g]))
                place = place_of(edges, at[g], at[g + 1], key[t])
                if wanted(boxes, first[g], first[g + 1], side, position[t], window, place):
                    total += 1
            split[g, side + 1] = total
    tuple_of = np.empty(total, np.int64)
    group_of = np.empty(total, np.int32)
    done = 0
    for g in range(n):
        for side in range(2):
            s = inputs[g, side]
            for t in range(start[s], start[s + 1]):
                window = window_position(int(born[t] / window_s[g]))
                place = place_of(edges, at[g], at[g + 1], key[t])
                if wanted(boxes, first[g], first[g + 1], side, position[t], window, place):
                    tuple_of[done] = t
                    group_of[done] = g
                    done += 1
    return tuple_of, group_of, split


@kernel
def serve(
    order: Longs, host: Ints, arrival: Floats, service_s: Floats, duration_s: float
) -> tuple[Floats, Longs, Longs, Floats, Longs]:
    """First come, first served: when each delivery is finished, and per node how many arrived and were finished within
    the duration, the busy seconds, and the longest queue. `order` sorts deliveries by arrival."""
    n = len(service_s)
    finish = np.empty(len(arrival))
    free_at = np.zeros(n)
    arrived = np.zeros(n, np.int64)
    served = np.zeros(n, np.int64)
    busy = np.zeros(n)
    for d in order:
        v = host[d]
        begin = max(arrival[d], free_at[v])
        finish[d] = begin + service_s[v]
        free_at[v] = finish[d]
        if arrival[d] <= duration_s:
            arrived[v] += 1
            busy[v] += max(0.0, min(finish[d], duration_s) - min(begin, duration_s))
        if finish[d] <= duration_s:
            served[v] += 1
    return finish, arrived, served, busy, _longest_queue(order, host, arrival, finish, duration_s, n)


@kernel
def _longest_queue(order: Longs, host: Ints, arrival: Floats, finish: Floats, duration_s: float, n: int) -> Longs:
    """Deliveries present at a node, the arriving one included, at the worst arrival within the duration."""
    # Per node, deliveries finish in the order they arrive: a second pointer walks behind the arrivals.
    first = np.zeros(n + 1, np.int64)
    for d in order:
        first[host[d] + 1] += 1
    for v in range(n):
        first[v + 1] += first[v]
    queue = np.empty(len(order), np.int64)
    head = first[:n].copy()
    tail = first[:n].copy()
    longest = np.zeros(n, np.int64)
    for d in order:
        if arrival[d] > duration_s:
            break
        v = host[d]
        queue[tail[v]] = d
        tail[v] += 1
        while finish[queue[head[v]]] < arrival[d]:
            head[v] += 1
        longest[v] = max(longest[v], tail[v] - head[v])
    return longest


@kernel
def close_windows(
    first: Longs,
    join: Ints,
    boxes: Floats,
    split: Longs,
    tuple_of: Longs,
    born: Floats,
    finish: Floats,
    window_s: Floats,
    passed_s: Floats,
    to_sink_s: Floats,
    base: Longs,
    complete: Floats,
) -> None:
    """Fill `complete`: when the last result of each window can be at the sink, for window w of sub-join j at
    `base[j] + w`. `passed_s[g]` is how long after a window's end group g has heard so from both of its sources."""
    for g in range(len(first) - 1):
        j = join[g]
        for w in range(base[j + 1] - base[j]):
            position = window_position(w)
            mine = False
            for k in range(first[g], first[g + 1]):
                mine = mine or boxes[k, 4] <= position < boxes[k, 5]
            if mine:
                at = (w + 1) * window_s[g] + passed_s[g] + to_sink_s[g]
                complete[base[j] + w] = max(complete[base[j] + w], at)
        for d in range(split[g, 0], split[g, 2]):
            w = int(born[tuple_of[d]] / window_s[g])
            if w < base[j + 1] - base[j]:
                complete[base[j] + w] = max(complete[base[j] + w], finish[d] + to_sink_s[g])


@kernel
def match(
    first: Longs,
    boxes: Floats,
    split: Longs,
    tuple_of: Longs,
    born: Floats,
    position: Floats,
    key: Floats,
    arrival: Floats,
    finish: Floats,
    window_s: Floats,
    at: Longs,
    edges: Floats,
    chance: Floats,
    seed: int,
) -> tuple[Floats, Floats, Floats, Ints]:
    """Pairs that match: when both are served, when both had arrived, when the later one was born, the group.
    `chance[at[g] + r]` is the probability that two tuples of group g with keys in range r of its axis match."""
    none = (np.empty(0), np.empty(0), np.empty(0), np.empty(0, np.int32))
    streams = (tuple_of, born, position, key, arrival, finish)
    total = _match(first, boxes, split, streams, window_s, at, edges, chance, seed, False, none)
    found = (np.empty(total), np.empty(total), np.empty(total), np.empty(total, np.int32))
    _match(first, boxes, split, streams, window_s, at, edges, chance, seed, True, found)
    return found


@kernel
def _match(
    first: Longs,
    boxes: Floats,
    split: Longs,
    streams: tuple[Longs, Floats, Floats, Floats, Floats, Floats],
    window_s: Floats,
    at: Longs,
    edges: Floats,
    chance: Floats,
    seed: int,
    fill: bool,
    found: tuple[Floats, Floats, Floats, Ints],
) -> int:
    """One pass over all pairs, jumping from match to match (geometric gaps); the same seed finds the same pairs."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator inside kernels
    tuple_of, born, position, key, arrival, finish = streams
    ready, there, latest, group = found
    total = 0
    for g in range(len(first) - 1):
        lefts = np.empty(split[g, 1] - split[g, 0], np.int64)
        rights = np.empty(split[g, 2] - split[g, 1], np.int64)
        kinds = at[g + 1] - at[g]
        for k in range(first[g], first[g + 1]):
            for kind in range(kinds):
                met, low, high = chance[at[g] + kind], edges[at[g] + kind], boxes[k, 7]
                if kind < kinds - 1:  # a heavy key: all of it is where its range begins
                    if not boxes[k, 6] <= low < high:
                        continue
                    high = edges[at[g] + kind + 1]
                else:  # partners share a key: they are in one range of the others
                    low = max(low, boxes[k, 6])
                    if low >= high:
                        continue
                    met = min(1.0, met * (1.0 - edges[at[g] + kind]) / (high - low))
                if met <= 0.0:
                    continue
                i, r = split[g, 0], split[g, 1]
                while i < split[g, 1] and r < split[g, 2]:
                    w = min(int(born[tuple_of[i]] / window_s[g]), int(born[tuple_of[r]] / window_s[g]))
                    in_slice = boxes[k, 4] <= window_position(w) < boxes[k, 5]
                    m = 0
                    while i < split[g, 1] and int(born[tuple_of[i]] / window_s[g]) == w:
                        a = tuple_of[i]
                        if in_slice and boxes[k, 0] <= position[a] < boxes[k, 1] and low <= key[a] < high:
                            lefts[m] = i
                            m += 1
                        i += 1
                    n = 0
                    while r < split[g, 2] and int(born[tuple_of[r]] / window_s[g]) == w:
                        b = tuple_of[r]
                        if in_slice and boxes[k, 2] <= position[b] < boxes[k, 3] and low <= key[b] < high:
                            rights[n] = r
                            n += 1
                        r += 1
                    pair = _gap(met) - 1
                    while pair < m * n:
                        if fill:
                            x, y = lefts[pair // n], rights[pair % n]
                            ready[total] = max(finish[x], finish[y])
                            there[total] = max(arrival[x], arrival[y])
                            latest[total] = max(born[tuple_of[x]], born[tuple_of[y]])
                            group[total] = g
                        total += 1
                        pair += _gap(met)
    return total


@inline
def _gap(chance: float) -> int:
    """How many pairs further the next match lies."""
    if chance >= 1.0:
        return 1
    gap = np.log(1.0 - np.random.random()) / np.log1p(-chance)  # noqa: NPY002
    return 1 + int(min(gap, 1e18))
