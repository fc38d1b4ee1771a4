"""Why a plan is as it is: what each stage decided, which hosts a join could have had, who sends what to a node.

Reasons are derived from the finished plan: what a host has left once all is placed, and who took the rest. A search
that went another way through the same capacities would be told the same reasons, so they hold for any optimizer and
are the same on every call. All latencies are in ms, all rates in tuples/s.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nova.costspace.accuracy import measure, tiv
from nova.evaluation.metrics import (
    TOLERANCE,
    Distances,
    Flows,
    Measured,
    evaluate,
    flows,
    node_limit,
    overloaded,
    plan_load,
)
from nova.evaluation.prediction import Felt, Prediction, predict
from nova.evaluation.results import traffic
from nova.evaluation.words import rate
from nova.model.errors import InvalidInput
from nova.model.load import memory_limits, memory_loads
from nova.model.options import LEG_WEIGHTS
from nova.model.plan import Plan
from nova.model.prices import Prices
from nova.model.problem import Floats, Ints, Problem
from nova.model.replicas import Replicas
from nova.model.skew import KeyAxis
from nova.placement.links import link_totals
from nova.placement.median import fermat, virtual_positions
from nova.scenario.faults import listed, suggestion

SHOWN = 12
"""The cheapest candidates of a join that are listed beside those it got; the others are counted by reason."""
AFTER = 3
"""Candidates listed after the dearest one that it got."""
NAMED = 3
"""Sub-joins named as those that fill a host; the rest is counted."""

Verdict = Literal["chosen", "no host", "not allowed", "below C_min", "full", "too small", "further", "passed over"]
Cut = Literal["whole", "window", "key", "grid", "boxes"]


@dataclass(frozen=True)
class Stage:
    """What one stage decided, as a sentence and as figures."""

    name: str
    said: str
    figures: dict[str, Any]


@dataclass(frozen=True)
class Part:
    """The share of a sub-join that one host got."""

    node: str
    share: float
    """Of the sub-join's results."""
    left_rate: float
    right_rate: float
    replicas: int
    cost_ms: float
    service_ms: float
    """Time that the host takes for a tuple."""
    waiting_ms: float
    """Predicted mean time in line there; infinite where the queue never settles."""


@dataclass(frozen=True)
class Candidate:
    """A node that a sub-join could have run on, in the order of what it would cost there."""

    rank: int
    """1 is the cheapest of all nodes."""
    node: str
    cost_ms: float
    """Under the plan's objective; from measured latencies where there are any."""
    estimated_ms: float
    """The same from the cost space alone."""
    measured: bool
    """Whether all three of its links were measured."""
    room: float
    """Tuples/s it may take in at most."""
    free: float
    """Of that, what other sub-joins leave."""
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class JoinExplained:
    """One sub-join: what it needs, where it would sit, how it was cut, and who could have hosted it."""

    query: str
    left: str
    right: str
    left_node: str
    right_node: str
    sink: str
    left_rate: float
    right_rate: float
    demand: float
    virtual_position: tuple[float, ...]
    ideal_cost_ms: float
    """What it would cost on a node without height at the virtual position: a floor for any host."""
    cost_ms: float
    """What it costs where it runs, weighted by shares."""
    felt: Felt
    """Predicted latency of its results, event to sink."""
    cut: Cut
    why: str
    traffic: float
    """Tuples/s sent to its hosts; above the demand where parts of a stream go to several."""
    parts: tuple[Part, ...]
    candidates: tuple[Candidate, ...]
    turned_down: dict[str, int]
    """Nodes that would have cost less than the dearest host it got, counted by reason."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Hosted:
    """A sub-join on a node, and where its input comes from."""

    query: str
    left: str
    right: str
    share: float
    left_rate: float
    left_node: str
    left_ms: float
    right_rate: float
    right_node: str
    right_ms: float
    sink: str
    sink_ms: float


@dataclass(frozen=True)
class Sent:
    """What a source on a node sends, and where to."""

    source: str
    rate: float
    to: str
    tuples: float
    ms: float


@dataclass(frozen=True)
class NodeExplained:
    """One node: what it hosts, how full it is, and what its own sources send."""

    node: str
    hosts: bool
    capacity: float
    bandwidth: float
    load: float
    utilisation: float
    free: float
    overloaded: bool
    service_ms: float
    """Time that it takes for a tuple."""
    waiting_ms: float
    """Predicted mean time in line, over the results of its joins; 0 where it hosts none."""
    said: str
    hosted: tuple[Hosted, ...]
    sources: tuple[Sent, ...]
    sink_of: tuple[str, ...]
    results: float
    """Results/s that it gets as a sink."""
    flooded: bool
    """Whether results and joins together are more than it can take."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Explainer:
    """Answers questions about one plan. What all answers need is worked out once."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem, plan
        self.flow: Flows = flows(problem, plan)
        self.load = plan_load(problem, plan, self.flow) + problem.nodes.other_load
        self.limit = node_limit(problem)
        self.room = problem.nodes.usable(plan.options.utilisation) + problem.nodes.other_load
        self.measured = None if problem.latency is None else Measured(problem.latency, len(problem.nodes), plan.space)
        self.reach: Distances = plan.space if self.measured is None else self.measured

    # ---- all of it ----------------------------------------------------------------------------------------------

    def stages(self) -> list[Stage]:
        """What each stage decided, in the order of Algorithm 1."""
        more = [self._bounds()] if self.problem.bound else []
        more += [self._merged()] if len(self.plan.merges) else []
        return [self._embedded(), self._resolved(), self._placed(), self._assigned(), *more, self._felt()]

    def _embedded(self) -> Stage:
        space, problem, options = self.plan.space, self.problem, self.plan.options
        tall = bool(space.heights.any())
        shape = f"{space.dimensions} dimensions{' and heights' if tall else ''}"
        figures: dict[str, Any] = {"nodes": len(space), "dimensions": space.dimensions, "heights": tall}
        latency = problem.latency
        if problem.nodes.coordinates is not None:
            said = f"The scenario gives coordinates in {shape}; nothing was embedded."
        else:
            pairs = 0 if latency is None else len(latency)
            how = f"by {options.embedding} from {pairs:,} measured pairs"
            said = f"{len(space):,} nodes were embedded in {shape} {how}."
        if latency is not None:
            told = measure(space, latency.first, latency.second, latency.rtt_ms, "none")
            share = tiv(len(space), latency.first, latency.second, latency.rtt_ms, options.seed)
            figures |= {
                "pairs": told.heldout_pairs,
                "median_relative_error": told.median_relative_error,
                "p90_relative_error": told.p90_relative_error,
                "mae_ms": told.mae_ms,
                "tiv_share": share,
            }
            said += (
                f" Over all measured pairs it is off by {told.median_relative_error:.1%} at the median and"
                f" {told.p90_relative_error:.1%} at the 90th percentile."
            )
        return Stage("Phase I: cost space", said, figures)

    def _resolved(self) -> Stage:
        joins = self.plan.joins
        per_query = np.bincount(joins.query, minlength=len(self.problem.queries))
        counts = {q.id: int(n) for q, n in zip(self.problem.queries, per_query, strict=True)}
        demand = joins.demand
        said = f"{len(joins):,} sub-joins of {listed(f'{name} ({n:,})' for name, n in counts.items())}"
        if len(joins):
            said += f" need {rate(demand.sum())} tuples/s: {rate(demand.min())} to {rate(demand.max())} each."
        return Stage("Phase II: sub-joins", said, {"sub_joins": counts, "demand": float(demand.sum())})

    def _placed(self) -> Stage:
        joins, objective = self.plan.joins, self.plan.options.objective
        ideal = self._ideal(np.arange(len(joins), dtype=np.int32))
        estimated = self._cost(self.flow.join, self.flow.node, self.plan.space)
        if self._prices is not None:
            estimated = estimated - self._prices.beside(self.flow.join, self.flow.node)  # told by themselves
        total, floor = float(self.flow.share @ estimated), float(ideal.sum())
        over = f"{total / floor - 1:.1%} above it" if floor > 0 else "no more"
        unit = "tuples/s × ms" if objective == "network" else "ms"
        said = (
            f"At their virtual positions the sub-joins would cost {floor:,.1f} {unit} in all (objective {objective});"
            f" on their hosts they cost {total:,.1f} {unit}, {over}, both in the cost space."
        )
        if self.problem.metrics:
            figures = evaluate(self.problem, self.plan)
            told = ", ".join(
                f"{metric.name} {figures.metrics[metric.name]:,.6g} units/s"
                + (f" (weighs {metric.weight * figures.metrics[metric.name]:,.1f} ms)" if metric.weight else "")
                for metric in self.problem.metrics
            )
            said += f" Besides: {told}."
        return Stage("Phase II: virtual positions", said, {"ideal_cost_ms": floor, "cost_ms": total})

    def _bounds(self) -> Stage:
        """What else than room limits where joins run, and how near the plan comes to it."""
        problem, joins, replicas = self.problem, self.plan.joins, self.plan.replicas
        said, figures = [], {}
        for number, query in enumerate(problem.queries):
            allowed = problem.allowed(number)
            if allowed is not None:
                hosts = int((allowed & problem.nodes.hosts).sum())
                said.append(f"{query.id} requires {' and '.join(map(str, query.requires))}: {hosts:,} hosts.")
            if query.apart is not None:
                said.append(f"{query.id} keeps replicas of one sub-join apart by {query.apart}.")
        if problem.links:
            sent = link_totals(problem, joins, replicas, self.plan.merges)
            for link, carried in zip(problem.links, sent.tolist(), strict=True):
                said.append(f"Link {link} carries {rate(carried)} of {rate(link.budget)} tuples/s.")
                figures[f"link {link}"] = carried
        held, memory = memory_loads(problem, joins, replicas), memory_limits(problem)
        if held.any():
            node = int(np.argmax(held / memory))
            name, full = problem.nodes.ids[node].as_py(), held[node] / memory[node]
            said.append(f"Open windows take {held.sum() / 1e6:,.1f} MB; the fullest host is {name}, {full:.0%}.")
            figures["memory_mb"] = float(held.sum()) / 1e6
        return Stage("Bounds", " ".join(said) or "None but room; metrics count besides.", figures)

    def _merged(self) -> Stage:
        """Where partial aggregates meet on their way to the sink, and what that is good for."""
        found = traffic(self.problem, self.plan, self.reach).merges
        return Stage("Merges", " ".join(one.said() for one in found), {one.query: one.as_dict() for one in found})

    def _assigned(self) -> Stage:
        options, nodes = self.plan.options, self.problem.nodes
        cuts = Counter(self._cuts.tolist())
        hosts = np.unique(self.flow.node)
        below = int((nodes.hosts & (self.room < options.c_min)).sum())
        over = int(overloaded(self.load, self.limit).sum())
        split = ", ".join(f"{n:,} {_CUT_WORDS[cut]}" for cut, n in sorted(cuts.items(), reverse=True))
        room = float(self.room[self.room >= options.c_min].sum())
        traffic, demand = float(self.flow.load.sum()), float(self.plan.joins.demand.sum())
        said = (
            f"{split}: {len(self.plan.replicas):,} replicas on {len(hosts):,} hosts. They take in"
            f" {rate(traffic)} tuples/s, {rate(traffic - demand)} of them because parts of streams go to several hosts,"
            f" and all hosts have {'room without limit' if np.isinf(room) else f'room for {rate(room)}'}."
        )
        for count, what in (
            (int((~nodes.hosts).sum()), "may not host"),
            (below, f"can take less than C_min = {rate(options.c_min)}"),
        ):
            said += f" {count:,} node{'s' if count > 1 else ''} {what}." if count else ""
        said += f" {over:,} are overloaded." if over else " None is overloaded."
        return Stage(
            "Phase III: parts and hosts",
            said,
            {
                "cuts": {name: cuts.get(name, 0) for name in _CUT_WORDS},
                "replicas": len(self.plan.replicas),
                "hosts": len(hosts),
                "tuples_in": traffic,
                "room": room,
                "may_not_host": int((~nodes.hosts).sum()),
                "below_c_min": below,
                "overloaded": over,
                "partition": options.partition,
                "sigma": options.sigma,
                "c_min": options.c_min,
                "utilisation": options.utilisation,
                "bandwidth_budget": options.bandwidth_budget,
            },
        )

    @cached_property
    def prediction(self) -> Prediction:
        """Felt latency, by measured ways where there are any."""
        return predict(self.problem, self.plan, self.reach)

    def _felt(self) -> Stage:
        felt = self.prediction.felt
        said = f"From event to sink {_parts(felt)}"
        if math.isfinite(felt.p99_ms):
            said += f" Half of the results come within {felt.p50_ms:,.0f} ms, 99 % within {felt.p99_ms:,.0f} ms."
        said = " ".join([said, *(f"{note[0].upper()}{note[1:]}." for note in self.prediction.notes(self.problem))])
        return Stage("What it feels like", said, felt.as_dict())

    # ---- one join -----------------------------------------------------------------------------------------------

    def joins(self, left: str, right: str) -> list[JoinExplained]:
        """The sub-joins of two sources, one per query that joins them. Errors name what is close."""
        ids, joins = self.problem.sources.ids, self.plan.joins
        lefts = self._find_source(left, joins.left, "left")
        rights = self._find_source(right, joins.right, "right")
        rows = np.flatnonzero(np.isin(joins.left, lefts) & np.isin(joins.right, rights))
        if not len(rows):
            partners = np.unique(joins.right[np.isin(joins.left, lefts)])
            names = listed(ids.take(pa.array(partners)).to_pylist())
            raise InvalidInput(f"no query joins {left!r} with {right!r}; {left!r} joins {names}")
        return [self._join(int(row)) for row in rows]

    def _find_source(self, name: str, used: Ints, side: str) -> npt.NDArray[np.intp]:
        """Rows of the sources of that name that stand on one side of some sub-join."""
        ids = self.problem.sources.ids
        rows = np.flatnonzero(pc.equal(ids, pa.scalar(name)).to_numpy(zero_copy_only=False))
        mine = rows[np.isin(rows, used)]
        if len(mine):
            return mine
        known = ids.take(pa.array(np.unique(used))).to_pylist()
        if len(rows):
            raise InvalidInput(f"source {name!r} is on the {side} side of no sub-join; there are {listed(known)}")
        raise InvalidInput(f"no source {name!r} on the {side} side{_close(name, known)}")

    def _join(self, row: int) -> JoinExplained:
        problem, plan, joins = self.problem, self.plan, self.plan.joins
        nodes, sources = problem.nodes.ids, problem.sources.ids
        one = np.array([row], dtype=np.int32)
        mine = np.flatnonzero(self.flow.join == row)
        parts_at = self.flow.node[mine]
        part_cost = self._cost(np.full(len(mine), row, np.int32), parts_at, self.reach)
        order = np.lexsort((parts_at, part_cost))
        parts = tuple(
            Part(
                node=nodes[int(parts_at[i])].as_py(),
                share=float(self.flow.share[mine[i]]),
                left_rate=float(self.flow.left[mine[i]]),
                right_rate=float(self.flow.right[mine[i]]),
                replicas=int(self.flow.replicas[mine[i]]),
                cost_ms=float(part_cost[i]),
                service_ms=float(self.prediction.service[mine[i]]),
                waiting_ms=float(self.prediction.waiting[mine[i]]),
            )
            for i in order
        )
        cut: Cut = self._cuts[row]
        candidates, turned_down, costs = self._candidates(row, mine)
        return JoinExplained(
            query=problem.queries[int(joins.query[row])].id,
            left=sources[int(joins.left[row])].as_py(),
            right=sources[int(joins.right[row])].as_py(),
            left_node=nodes[int(joins.left_node[row])].as_py(),
            right_node=nodes[int(joins.right_node[row])].as_py(),
            sink=nodes[int(joins.sink[row])].as_py(),
            left_rate=float(joins.left_rate[row]),
            right_rate=float(joins.right_rate[row]),
            demand=float(joins.demand[row]),
            virtual_position=tuple(
                float(x) for x in virtual_positions(joins.take(one), plan.space, plan.options.objective)[0]
            ),
            ideal_cost_ms=float(self._ideal(one)[0]),
            cost_ms=float(self.flow.share[mine] @ part_cost),
            felt=self.prediction.over(mine),
            cut=cut,
            why=self._why(row, cut, mine, costs),
            traffic=float(self.flow.load[mine].sum()),
            parts=parts,
            candidates=candidates,
            turned_down=turned_down,
        )

    def _why(self, row: int, cut: Cut, mine: npt.NDArray[np.intp], costs: Floats) -> str:
        """Why the sub-join was cut as it was, from the room its hosts and all others have without it."""
        joins, options = self.plan.joins, self.plan.options
        demand = float(joins.demand[row])
        ids = self.problem.nodes.ids
        free = self._free_without(row)
        if cut == "whole":
            if not len(mine):
                return "It was not placed."
            host = int(self.flow.node[mine[0]])
            return f"{ids[host].as_py()} had room for all of its {rate(demand)} tuples/s ({rate(free[host])} free)."
        boxes = self.plan.replicas.take(self.plan.replicas.join == row)
        zero = np.zeros(len(boxes), np.int32)
        cells = {
            side: int(_distinct(zero, getattr(boxes, f"{side}_from"), getattr(boxes, f"{side}_to"), 1)[0])
            for side in ("left", "right", "slice")
        }
        able = np.flatnonzero((free >= demand * (1 - TOLERANCE)) & (free >= options.c_min) & self.problem.nodes.hosts)
        if len(able):
            nearest = int(able[np.argmin(costs[able])])
            worst = float(costs[self.flow.node[mine]].max())
            name, able_to = ids[nearest].as_py(), f"has room for all of its {rate(demand)} tuples/s"
            if costs[nearest] >= worst - 1e-9:
                why = f"{name} is the best host that {able_to}, but lies further away ({costs[nearest]:,.1f} ms)"
            elif options.waiting and np.isfinite(self.room[nearest]):
                full = (self.room[nearest] - free[nearest] + demand) / self.room[nearest]
                why = f"{name} {able_to}, but would be {full:.0%} full: tuples would wait there"
            else:
                why = f"{name} {able_to} and lies nearer, but was found later, when others had been placed"
        else:
            most = float(free[self.problem.nodes.hosts].max(initial=0.0))
            why = f"No host has room for all of its {rate(demand)} tuples/s (the most is {rate(most)})"
        if options.bandwidth_budget is not None and demand > options.bandwidth_budget:
            why = f"No replica may take in more than t_b = {rate(options.bandwidth_budget)} tuples/s"
        if cut == "window":
            return f"{why}; whole windows go to {cells['slice']} slices, which sends no tuple twice."
        traffic = float(self.flow.load[mine].sum())
        alone = self._alone(row, boxes)
        if cut == "key":
            return f"{why}; its keys go to {len(boxes)} ranges{alone}, which sends no tuple twice."
        shape = f"{cells['left']} × {cells['right']} parts" if cut == "grid" else f"{len(boxes)} boxes{alone}"
        rule = ""
        if options.sigma is not None:
            largest = max(1.0, options.sigma * 0.5 * demand)
            rule = f" (made of pieces of at most {rate(largest)} tuples/s, σ = {options.sigma:g})"
        return f"{why}; its streams were cut into {shape}{rule}, which sends {rate(traffic)} tuples/s to its hosts."

    def _alone(self, row: int, boxes: Replicas) -> str:
        """Heavy keys that have boxes of their own, in words."""
        axis = KeyAxis.of(self.problem.queries[int(self.plan.joins.query[row])])
        said = []
        for value, low, high in zip(axis.values, axis.edges, axis.edges[1:], strict=False):
            mine = (boxes.key_from <= low) & (low < boxes.key_to)
            if (boxes.key_from[mine] == low).all() and (boxes.key_to[mine] == high).all():
                said.append(f"{value!r}, {high - low:.0%} of its tuples, has {mine.sum()}")
        return f" (key {'; key '.join(said)})" if said else ""

    def _candidates(self, row: int, mine: npt.NDArray[np.intp]) -> tuple[tuple[Candidate, ...], dict[str, int], Floats]:
        """The nodes in the order of what the sub-join would cost there, each with its verdict."""
        problem, joins = self.problem, self.plan.joins
        n = len(problem.nodes)
        every = np.arange(n, dtype=np.int32)
        rows = np.full(n, row, np.int32)
        costs = self._cost(rows, every, self.reach)
        estimated = costs if self.measured is None else self._cost(rows, every, self.plan.space)
        known = np.ones(n, bool)
        if self.measured is not None:
            for end in (joins.left_node[row], joins.right_node[row], joins.sink[row]):
                known &= self.measured.known(every, np.full(n, end))
        free = self._free_without(row)
        order = np.lexsort((every, costs))
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(1, n + 1)
        chosen = self.flow.node[mine]
        last = int(rank[chosen].max(initial=0))
        verdicts = self._verdicts(row, order, chosen, free, last)
        first = np.arange(1, min(SHOWN, last) + 1)
        after = np.arange(last + 1, min(last + AFTER, n) + 1)
        shown = np.unique(np.concatenate([first, rank[chosen], after])) - 1
        listing = tuple(
            Candidate(
                rank=int(i) + 1,
                node=problem.nodes.ids[int(order[i])].as_py(),
                cost_ms=float(costs[order[i]]),
                estimated_ms=float(estimated[order[i]]),
                measured=bool(known[order[i]]),
                room=float(self.room[order[i]]),
                free=float(free[order[i]]),
                verdict=verdicts[i],
                reason=self._reason(row, int(order[i]), verdicts[i], float(free[order[i]]), mine),
            )
            for i in shown
        )
        counted = Counter(verdict for verdict in verdicts[:last] if verdict != "chosen")
        return listing, dict(counted), costs

    def _verdicts(
        self, row: int, order: npt.NDArray[np.intp], chosen: Ints, free: Floats, last: int
    ) -> npt.NDArray[np.object_]:
        """One verdict per node, in the given order."""
        options = self.plan.options
        room = self.room[order]
        left = free[order]
        need = self._least_part(row, chosen)
        verdict = np.full(len(order), "passed over", dtype=object)
        verdict[np.arange(len(order)) >= last] = "further"
        early = np.arange(len(order)) < last
        verdict[early & (left < need * (1 - TOLERANCE))] = "too small"
        taken = np.subtract(room, left, out=np.zeros(len(room)), where=np.isfinite(room))
        taken = taken > TOLERANCE * np.maximum(room, 1.0)
        used_up = (left <= TOLERANCE * np.maximum(room, 1.0)) | (left < options.c_min)
        verdict[early & taken & used_up] = "full"
        verdict[early & (room < options.c_min)] = "below C_min"
        allowed = self.problem.allowed(int(self.plan.joins.query[row]))
        if allowed is not None:
            verdict[~allowed[order]] = "not allowed"
        verdict[~self.problem.nodes.hosts[order]] = "no host"
        verdict[np.isin(order, chosen)] = "chosen"
        return verdict

    def _least_part(self, row: int, chosen: Ints) -> float:
        """Tuples/s a host must have had free to serve: all of a join that runs whole, the smallest part of others."""
        if len(chosen) <= 1:
            return float(self.plan.joins.demand[row])
        return float(self.flow.load[self.flow.join == row].min())

    def _reason(self, row: int, node: int, verdict: Verdict, free: float, mine: npt.NDArray[np.intp]) -> str:
        room, options = float(self.room[node]), self.plan.options
        match verdict:
            case "chosen":
                part = mine[self.flow.node[mine] == node][0]
                return f"takes {rate(self.flow.load[part])} tuples/s, {self.flow.share[part]:.0%} of the results"
            case "not allowed":
                query = self.problem.queries[int(self.plan.joins.query[row])]
                return f"the query requires {' and '.join(map(str, query.requires))}"
            case "no host":
                return "no join may run here"
            case "below C_min":
                return f"takes {rate(room)} tuples/s at most, C_min is {rate(options.c_min)}"
            case "full":
                short = f", below C_min = {rate(options.c_min)}" if free > TOLERANCE * room else ""
                return f"{rate(max(free, 0.0))} of {rate(room)} left{short}; taken by {self._takers(node, row)}"
            case "too small":
                need = self._least_part(row, self.flow.node[mine])
                by = f"; {self._takers(node, row)} took the rest" if room - free > TOLERANCE * max(room, 1.0) else ""
                return f"{rate(free)} of {rate(room)} free, {rate(need)} needed{by}"
            case "further":
                return "the hosts above suffice"
            case "passed over":
                return f"{rate(free)} of {rate(room)} free; the search found no use for it"

    def _takers(self, node: int, but: int) -> str:
        """The sub-joins that fill a node, largest first."""
        rows = np.flatnonzero((self.flow.node == node) & (self.flow.join != but))
        rows = rows[np.argsort(-self.flow.load[rows], kind="stable")]
        named = ", ".join(f"{self._pair(int(self.flow.join[r]))} ({rate(self.flow.load[r])})" for r in rows[:NAMED])
        return named + (f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else "")

    def _pair(self, join: int) -> str:
        ids, joins = self.problem.sources.ids, self.plan.joins
        return f"{ids[int(joins.left[join])].as_py()} ⋈ {ids[int(joins.right[join])].as_py()}"

    def _free_without(self, row: int) -> Floats:
        """Tuples/s each node has left when this sub-join is taken out."""
        free = self.room - self.load
        mine = np.flatnonzero(self.flow.join == row)
        np.add.at(free, self.flow.node[mine], self.flow.load[mine])
        return free

    def _cost(self, rows: Ints, nodes: Ints, distances: Distances) -> Floats:
        """What sub-joins cost on nodes under the plan's objective, in ms."""
        joins = self.plan.joins
        ends = (joins.left_node, joins.right_node, joins.sink)
        lengths = np.stack([distances.between(nodes, end[rows]) for end in ends])
        if self._prices is not None:
            return self._prices.cost(rows, nodes, lengths)
        total: Floats = np.tensordot(np.array(LEG_WEIGHTS[self.plan.options.objective]), lengths, axes=1)
        return total

    @cached_property
    def _prices(self) -> Prices | None:
        return Prices.of(self.problem, self.plan.joins, self.plan.options)

    def _ideal(self, rows: Ints) -> Floats:
        """What sub-joins would cost at their virtual positions in the cost space, in ms."""
        joins, space = self.plan.joins.take(rows), self.plan.space
        total: Floats = np.zeros(len(rows))
        ends = (joins.left_node, joins.right_node, joins.sink)
        weights = np.repeat(np.array(LEG_WEIGHTS[self.plan.options.objective])[:, None], len(rows), axis=1)
        if self._prices is None or self.plan.options.objective != "network":
            at = virtual_positions(joins, space, self.plan.options.objective)
        else:  # each sub-join pulls by its own rates
            weights, place = self._prices.legs[:, rows], space.coordinates
            a, b, c = (place[end][:, None] for end in ends)
            pull = [(float(x), float(y), float(z)) for x, y, z in weights.T]
            each = [fermat(a[k], b[k], c[k], pull[k]) for k in range(len(rows))]
            at = np.concatenate(each) if each else np.empty((0, place.shape[1]))
        for weight, end in zip(weights, ends, strict=True):
            total += weight * (np.linalg.norm(at - space.coordinates[end], axis=1) + space.heights[end])
        return total

    @cached_property
    def _cuts(self) -> npt.NDArray[np.object_]:
        """How each sub-join was cut."""
        boxes, n = self.plan.replicas, len(self.plan.joins)
        count = np.bincount(boxes.join, minlength=n)
        cells = {
            side: _distinct(boxes.join, getattr(boxes, f"{side}_from"), getattr(boxes, f"{side}_to"), n)
            for side in ("left", "right", "slice", "key")
        }
        cut = np.full(n, "boxes", dtype=object)
        streams = cells["left"] * cells["right"]
        cut[(cells["slice"] * cells["key"] == 1) & (streams == count)] = "grid"
        cut[(streams * cells["key"] == 1) & (cells["slice"] == count)] = "window"
        cut[(streams * cells["slice"] == 1) & (cells["key"] == count)] = "key"
        cut[count <= 1] = "whole"
        return cut

    # ---- one node -----------------------------------------------------------------------------------------------

    def node(self, name: str) -> NodeExplained:
        """What a node hosts and why it is as full as it is. An unknown name is answered with close ones."""
        problem, joins, flow = self.problem, self.plan.joins, self.flow
        ids, sources = problem.nodes.ids, problem.sources.ids
        row = pc.index(ids, pa.scalar(name)).as_py()
        if row < 0:
            raise InvalidInput(f"no node {name!r}{_close(name, ids.to_pylist())}")
        mine = np.flatnonzero(flow.node == row)
        mine = mine[np.argsort(-flow.load[mine], kind="stable")]
        here = np.full(len(mine), row, np.int32)
        of = flow.join[mine]
        ways = [self.reach.between(here, end[of]) for end in (joins.left_node, joins.right_node, joins.sink)]
        hosted = tuple(
            Hosted(
                query=problem.queries[int(joins.query[j])].id,
                left=sources[int(joins.left[j])].as_py(),
                right=sources[int(joins.right[j])].as_py(),
                share=float(flow.share[f]),
                left_rate=float(flow.left[f]),
                left_node=ids[int(joins.left_node[j])].as_py(),
                left_ms=float(ways[0][i]),
                right_rate=float(flow.right[f]),
                right_node=ids[int(joins.right_node[j])].as_py(),
                right_ms=float(ways[1][i]),
                sink=ids[int(joins.sink[j])].as_py(),
                sink_ms=float(ways[2][i]),
            )
            for i, (f, j) in enumerate(zip(mine.tolist(), of.tolist(), strict=True))
        )
        limit, load = float(self.limit[row]), float(self.load[row])
        sink = next((one for one in traffic(problem, self.plan).sinks if one.sink == name), None)
        return NodeExplained(
            node=name,
            hosts=bool(problem.nodes.hosts[row]),
            capacity=float(problem.nodes.capacity[row]),
            bandwidth=float(problem.nodes.bandwidth[row]),
            load=load,
            utilisation=load / limit if limit > 0 else (float("inf") if load > 0 else 0.0),
            free=max(float(self.room[row]) - load, 0.0),
            overloaded=bool(overloaded(self.load[[row]], self.limit[[row]])[0]),
            service_ms=1000.0 / limit if limit > 0 else float("inf"),
            waiting_ms=self.prediction.over(mine).waiting_ms if len(mine) else 0.0,
            said=self._said(row, len(mine)),
            hosted=hosted,
            sources=self._sent(row),
            sink_of=tuple(q.id for q in problem.queries if q.sink == row),
            results=0.0 if sink is None else sink.results,
            flooded=sink is not None and sink.overloaded,
        )

    def _said(self, row: int, hosted: int) -> str:
        """One sentence on why the node is as full as it is."""
        room, load, options = float(self.room[row]), float(self.load[row]), self.plan.options
        if hosted and overloaded(self.load[[row]], self.limit[[row]])[0]:
            return f"Overloaded: {rate(load)} tuples/s reach it, it can take {rate(self.limit[row])}."
        if hosted:
            left = max(room - load, 0.0)
            if left < options.c_min:
                return f"{rate(left)} of {rate(room)} tuples/s are left, below C_min = {rate(options.c_min)}: closed."
            if np.isinf(room):
                return f"{rate(load)} tuples/s reach it; it takes any number."
            return f"{rate(left)} of {rate(room)} tuples/s are left."
        if not self.problem.nodes.hosts[row]:
            return "No join may run here."
        if room < options.c_min:
            return f"It takes {rate(room)} tuples/s at most, below C_min = {rate(options.c_min)}: it was passed over."
        smallest = float(self.plan.joins.demand.min(initial=np.inf))
        if room < smallest:
            return f"It has room for {rate(room)} tuples/s, less than the smallest sub-join needs ({rate(smallest)})."
        return "Every sub-join found room on hosts where it costs less."

    def _sent(self, row: int) -> tuple[Sent, ...]:
        """What the sources on a node send to which hosts, the tuples of all sub-joins together."""
        problem, joins, flow = self.problem, self.plan.joins, self.flow
        sent: dict[tuple[int, int], float] = {}
        for source_of, node_of, tuples in (
            (joins.left, joins.left_node, flow.left),
            (joins.right, joins.right_node, flow.right),
        ):
            for f in np.flatnonzero(node_of[flow.join] == row):
                key = int(source_of[flow.join[f]]), int(flow.node[f])
                sent[key] = sent.get(key, 0.0) + float(tuples[f])
        here = np.array([row], dtype=np.int32)
        return tuple(
            Sent(
                source=problem.sources.ids[source].as_py(),
                rate=float(problem.sources.rate[source]),
                to=problem.nodes.ids[host].as_py(),
                tuples=tuples,
                ms=float(self.reach.between(here, np.array([host], dtype=np.int32))[0]),
            )
            for (source, host), tuples in sorted(sent.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        )


_CUT_WORDS: dict[str, str] = {
    "whole": "whole",
    "window": "cut by windows",
    "key": "cut by keys",
    "grid": "cut into a grid",
    "boxes": "cut into boxes",
}


def _distinct(join: Ints, start: Floats, end: Floats, joins: int) -> npt.NDArray[np.intp]:
    """How many different intervals the boxes of each sub-join have."""
    order = np.lexsort((end, start, join))
    join, start, end = join[order], start[order], end[order]
    new = np.ones(len(join), bool)
    new[1:] = (join[1:] != join[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    return np.bincount(join[new], minlength=joins)


def _close(name: str, known: list[str]) -> str:
    """Names that were perhaps meant, or else some that there are."""
    return suggestion(name, known) or f"; there are {listed(known)}"


def _parts(felt: Felt) -> str:
    """The mean and what it is made of, as a sentence."""
    if not math.isfinite(felt.mean_ms):
        return (
            f"results take {felt.network_ms:,.0f} ms of network and {felt.service_ms:,.0f} ms of service on average,"
            " and wait without end."
        )
    return (
        f"results take {felt.mean_ms:,.0f} ms on average: {felt.network_ms:,.0f} network,"
        f" {felt.service_ms:,.0f} service, {felt.waiting_ms:,.0f} waiting."
    )
