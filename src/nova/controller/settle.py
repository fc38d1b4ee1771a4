"""Settling: what lost its host in a step gets another; then what could be better near the change is looked at."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nova.controller import improve as mending
from nova.controller import place as hosts
from nova.controller.apply import Step
from nova.controller.layout import LARGEST, NONE, RUNNING, SPARE_TOP, WAITING
from nova.controller.ledger import RESERVE, put, take_off
from nova.controller.state import Rows
from nova.model.policy import FAR, PART, SLIVER, SPREAD
from nova.model.problem import Floats
from nova.placement import grid as partition

WHOLE = np.array([0.0, 1.0, 0.0, 1.0])
"""Both streams of a sub-join, in a box."""
SILENT = 1e-9
"""Tuples/s that a stream counts for at least where it is divided by."""
GRID_TRIES = 4
"""Waiting grid joins that are tried again although a smaller one did not fit."""
DEPTH = 1
"""How many times room that a move left behind is looked at in turn."""
PULLS = 2
"""Nodes per event whose new room is offered to others."""
MOVES = 2
"""Replicas that one such node may take over."""
TRIES = 4
"""Replicas per event that may try to oust another."""


class Settling:
    """Finds hosts for what a step changed."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.controller, self.state, self.names = step.controller, step.state, step.names

    def run(self, events: int) -> None:
        """Settle a step of so many events."""
        step, effort = self.step, self.controller.stability.effort
        placed = self._place(step.dirty)
        if placed and effort:
            self._oust(placed, TRIES * events)
        if step.shaken:
            self._reconsider()
        if (step.opened or step.retry) and self.controller.waiting:
            self._retry_waiting()
        if step.opened:
            self._welcome_back()
            if effort:
                self._fill_room(PULLS * events)

    def _place(self, dirty: dict[int, str]) -> list[int]:
        """Hosts for sub-joins of which some share has none: grids first, since they need hosts with more room, the
        largest first; then slices, the smallest first, among them what finds no room as a grid. What does not fit
        waits. Returns those that run."""
        if not dirty:
            return []
        state, reasons = self.state, self.step.reasons
        rows = np.array([join for join in dirty if state.joins["state"][join] != NONE], np.int64)
        if not len(rows):
            return []
        for row in rows.tolist():
            reasons.setdefault(row, dirty[row])
        demand = self._demand(rows)
        sliced = state.queries["sliced"][state.joins["query"][rows]] | self._dealt_out(rows)
        grids = rows[~sliced][np.argsort(-demand[~sliced], kind="stable")]
        self._place_grids(grids)
        sliced |= (state.joins["state"][rows] == WAITING) & state.queries["may_slice"][state.joins["query"][rows]]
        slices = rows[sliced][np.argsort(demand[sliced], kind="stable")]
        done = 0
        while done < len(slices):
            self._spare()
            done = int(hosts.settle(state.handle, slices, done, PART))
            if done < len(slices):
                state.grow_replicas()
        fits = state.joins["state"][rows] != WAITING
        for row in rows[~fits].tolist():
            if not (state.options.allow_overload and self._overload(row)):
                reasons[row] = f"does not fit: {reasons[row]}"
            self.controller.wait(row, float(self._demand(np.array([row]))[0]))
        return [int(row) for row in rows[fits]]

    def _dealt_out(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which sub-joins run as slices of their windows, so that the lost ones can be placed alone."""
        first = self.state.joins["first"][rows]
        boxes = self.state.replicas["box"][np.maximum(first, 0)]
        return np.asarray((first >= 0) & (boxes[:, :4] == WHOLE).all(axis=1))

    def _demand(self, joins: Rows) -> Floats:
        rate, table = self.state.sources["rate"], self.state.joins
        demand: Floats = rate[table["left"][joins]] + rate[table["right"][joins]]
        return demand

    def _spare(self, rows: int = 3 * RESERVE) -> None:
        """See that there are rows to work with."""
        while self.state.counts[SPARE_TOP] < rows + RESERVE:
            self.state.grow_replicas()

    def _place_grids(self, rows: Rows) -> None:
        """Sub-joins whose windows are not dealt out: whole on one host where one takes them, else cut into boxes.
        Replaces all they have; what fits neither way waits."""
        done = 0
        while done < len(rows):
            self._spare()
            done = int(hosts.place_whole(self.state.handle, rows, done))
        for row in rows[self.state.joins["state"][rows] == WAITING].tolist():
            self._cut(row)

    def _cut(self, row: int) -> None:
        """Boxes for a sub-join that no host takes whole, as long as hosts near enough can take them."""
        state = self.state
        options, (left, right) = state.options, self._rates(row)
        part = None if options.sigma is None else partition.p_max(options.sigma, left, right)
        least = max(options.c_min, SLIVER * min(left, right))
        for most in FAR[:1] if state.queries["may_slice"][state.joins["query"][row]] else FAR:
            there, free, legs = hosts.near(state.handle, row, most, least)
            room = np.minimum(free, state.limits[LARGEST])
            boxes = None
            if len(there):
                boxes = partition.split(left, right, room, legs, state.weights, part, options.max_replicas)
            if boxes is not None:
                self._spare(len(boxes.host))
                shares = np.column_stack([boxes.left_from, boxes.left_to, boxes.right_from, boxes.right_to])
                for host, box in zip(there[boxes.host].tolist(), shares.tolist(), strict=True):
                    put(state.handle, row, host, *box, 0.0, 1.0)
                state.joins["state"][row] = RUNNING
                return
            if len(there) < most:
                return

    def _rates(self, row: int) -> tuple[float, float]:
        """Left and right tuples/s of a sub-join. A stream that is silent now still has to be cut somehow."""
        join, rate = self.state.joins.rows[row], self.state.sources["rate"]
        return max(float(rate[join["left"]]), SILENT), max(float(rate[join["right"]]), SILENT)

    def _overload(self, row: int) -> bool:
        """What fits nowhere goes evenly to the nearest hosts, as many as it would need if they were free."""
        state = self.state
        self._spare()
        there = hosts.near(state.handle, row, SPREAD, 0.0)[0]
        if not len(there):
            return False
        median = float(np.median(state.nodes["room"][there]))
        count = int(np.clip(np.ceil(float(self._demand(np.array([row]))[0]) / max(median, SILENT)), 1, len(there)))
        cuts = [*(np.arange(count) / count).tolist(), 1.0]
        sliced = bool(state.queries["may_slice"][state.joins["query"][row]])
        for host, low, high in zip(there.tolist(), cuts, cuts[1:], strict=False):
            box = (0.0, 1.0, 0.0, 1.0, low, high) if sliced else (low, high, 0.0, 1.0, 0.0, 1.0)
            put(state.handle, row, host, *box)
        state.joins["state"][row] = RUNNING
        return True

    def _oust(self, joins: list[int], tries: int) -> None:
        """Sub-joins that had to go far may make room for themselves where it hurts less."""
        rows = np.array(joins)
        done = 0
        while done < len(rows):
            self._spare()
            done, tries = mending.oust_for(self.state.handle, rows, done, tries, self.controller.stability.effort)

    def _reconsider(self) -> None:
        """Sub-joins whose costs changed look for better hosts, the smallest first."""
        state, step = self.state, self.step
        rows = np.array([join for join in step.shaken if state.joins["state"][join] == RUNNING], np.int64)
        rows = rows[np.argsort(self._demand(rows), kind="stable")]
        for row in rows.tolist():
            step.reasons.setdefault(row, step.shaken[row])
        done = 0
        while done < len(rows):
            self._spare()
            done, left = mending.reconsider(state.handle, rows, done, self.controller.stability.effort)
            for node in left.tolist():
                step.opened.setdefault(node, "left by a better placed replica")

    def _retry_waiting(self) -> None:
        """Waiting sub-joins, the smallest first, until one does not fit; grids may fit where a smaller one did not."""
        controller, state = self.controller, self.state
        misses = 0
        tried: dict[int, float] = {}
        while controller.queue and misses <= GRID_TRIES:
            demand, row = heapq.heappop(controller.queue)
            if controller.waiting.get(row) != demand:
                continue  # gone, or waiting under another demand
            now = float(self._demand(np.array([row]))[0])
            if now != demand:
                controller.wait(row, now)
                continue
            del controller.waiting[row]
            take_off(state.handle, row)  # where overload is allowed, it runs
            if not self._place({row: "there is room again"}):
                tried[row] = controller.waiting.pop(row)
                misses += GRID_TRIES + 1 if state.queries["may_slice"][state.joins["query"][row]] else 1
        for row, demand in tried.items():
            controller.wait(row, demand)

    def _welcome_back(self) -> None:
        """Those return to new room that were ousted from there."""
        state, step = self.state, self.step
        for node, reason in step.opened.items():
            rows = self.controller.homes.get(node)
            if rows and state.nodes["slot"][node] >= 0:
                for row in rows:
                    why = f"back on {self.names.nodes[node]}: {reason}"
                    step.reasons.setdefault(int(state.replicas["join"][row]), why)
                self._spare()
                mending.go_home(state.handle, np.array(sorted(rows)), node)

    def _fill_room(self, budget: int) -> None:
        """Those move to new room that gain most, and to the room that they left in turn."""
        state, effort = self.state, self.controller.stability.effort
        queue = [(node, 0) for node in self.step.opened if state.nodes["slot"][node] >= 0]
        for node, depth in itertools.islice(_growing(queue), budget):
            self._spare()
            left = mending.pull(state.handle, node, effort, MOVES, PART)
            if depth < DEPTH:
                queue += [(other, depth + 1) for other in left.tolist()]


def _growing(queue: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The entries of a list that may grow meanwhile."""
    at = 0
    while at < len(queue):
        yield queue[at]
        at += 1
