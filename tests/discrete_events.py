"""A discrete-event simulation of its own, in plain Python: what `nova simulate` and the prediction are held against.

Shares no code with either: one clock, one heap of events, one queue per host. Small plans only.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque

from nova.model.plan import Plan
from nova.model.problem import Problem

GOLDEN = 0.6180339887498949


def results_ms(problem: Problem, plan: Plan, seconds: float, seed: int, burst: float = 1.0) -> list[float]:
    """Latency in ms of every result of `seconds` s: later event to sink. Every pair of a window matches.

    `burst` tuples are born at once on average, a geometric number; 1: single tuples.
    """
    dice = random.Random(seed)
    joins, boxes = plan.joins, plan.replicas
    point = [tuple(row) for row in plan.space.coordinates]
    height = plan.space.heights

    def way(a: int, b: int) -> float:
        straight = sum((x - y) ** 2 for x, y in zip(point[a], point[b], strict=True)) ** 0.5
        return 0.0 if a == b else (straight + height[a] + height[b]) / 1000.0

    events: list[tuple[float, int, str, tuple]] = []
    number = 0

    def plan_event(at: float, kind: str, what: tuple) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, kind, what))

    for source, rate in enumerate(problem.sources.rate):
        at = 0.0
        while True:
            at += dice.expovariate(rate / burst)
            if at >= seconds:
                break
            size = 1
            while dice.random() > 1.0 / burst:
                size += 1
            for _ in range(size):
                plan_event(at, "born", (source, dice.random(), dice.random()))
    line: dict[int, deque] = defaultdict(deque)
    busy: dict[int, bool] = defaultdict(bool)
    there: dict[tuple, list] = defaultdict(list)
    found: list[float] = []
    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "born":
            source, position, key = what
            sent = set()
            for box in range(len(boxes)):
                join, host = int(boxes.join[box]), int(boxes.node[box])
                window = int(now * 1000.0 / problem.queries[joins.query[join]].window_ms)
                if not boxes.slice_from[box] <= (window * GOLDEN) % 1.0 < boxes.slice_to[box]:
                    continue
                if not boxes.key_from[box] <= key < boxes.key_to[box]:
                    continue
                for side, streams, low, high in (
                    ("left", joins.left, boxes.left_from, boxes.left_to),
                    ("right", joins.right, boxes.right_from, boxes.right_to),
                ):
                    wanted = streams[join] == source and low[box] <= position < high[box]
                    if wanted and (join, host, side) not in sent:
                        sent.add((join, host, side))
                        arrives = now + way(int(problem.sources.node[source]), host)
                        plan_event(arrives, "arrives", (host, join, side, now, position, key, window))
        elif kind == "arrives":
            host = what[0]
            line[host].append(what)
            if not busy[host]:
                busy[host] = True
                plan_event(now + 1.0 / problem.nodes.capacity[host], "served", (host,))
        else:
            host = what[0]
            _, join, side, born, position, key, window = line[host].popleft()
            if line[host]:
                plan_event(now + 1.0 / problem.nodes.capacity[host], "served", (host,))
            else:
                busy[host] = False
            other = "right" if side == "left" else "left"
            for partner_born, partner_position, partner_key in there[host, join, other, window]:
                left, right = (position, partner_position) if side == "left" else (partner_position, position)
                for box in range(len(boxes)):
                    if (
                        (boxes.join[box], boxes.node[box]) == (join, host)
                        and boxes.left_from[box] <= left < boxes.left_to[box]
                        and boxes.right_from[box] <= right < boxes.right_to[box]
                        and boxes.key_from[box] <= key < boxes.key_to[box]
                        and boxes.key_from[box] <= partner_key < boxes.key_to[box]
                        and boxes.slice_from[box] <= (window * GOLDEN) % 1.0 < boxes.slice_to[box]
                    ):
                        at_sink = now + way(host, int(joins.sink[join]))
                        found.append(1000.0 * (at_sink - max(born, partner_born)))
            there[host, join, side, window].append((born, position, key))
    return found
