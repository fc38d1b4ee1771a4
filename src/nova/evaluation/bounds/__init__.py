"""Lower bounds of what any plan within the nodes' capacities can cost: the other end of the gap.

The cost of a plan is Σ over sub-joins Σ over replicas share · (w_l d(l, h) + w_r d(r, h) + w_s d(h, sink)), with the
weights of the chosen objective (`nova.model.options.LEG_WEIGHTS`) and `share` the part of the sub-join's results that
the replica computes. The bound is the optimum, or a bound of the optimum, of the transportation problem

    min Σ x_jh c_jh   with  Σ_h x_jh = 1,  Σ_j x_jh (a_j + b_j) ≤ room_h,  x ≥ 0,

where a_j and b_j are the tuples/s of the sub-join's two inputs. Dealing out whole windows reaches it exactly: a slice
with share x takes x·(a + b) tuples/s. Every other plan is above it. Take any boxes [p] × [q] × [z] of a sub-join on a
host, and x = the volume of their union. The left tuples that reach the host are those under the union's shadow on the
(left, window) plane; the shadow's area is at least the volume, as the right side is at most 1 wide. So the host takes
in at least x·a left and x·b right tuples/s: grids only add load (the broadcast), never save any. Hence the shares of
any plan that respects capacities satisfy the constraints above, and cost what the plan costs.

Beyond the size that the linear program can be solved at, prices λ ≥ 0 per host give, for whatever λ,

    L(λ) = Σ_j min_h (c_jh + (a_j + b_j) λ_h) − Σ_h λ_h room_h  ≤  optimum,

so a poor search for prices makes the bound low, never wrong. The inner minimum is exact over all hosts, or itself
bounded from below (`boxes`).

Where time at hosts counts (`Options.waiting`), the cost has that, too, and so has the bound (`felt`). Where legs weigh
by their tuples/s (objective `network`) or metrics count, c_jh is that cost (`nova.model.prices`): both grow with the
tuples that go to a host, of which there are at least x·a and x·b.

Where joins read each other's results, the ways between them are split over both (`chains`), and the bound is one of
plans that cut no such join.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal

import numpy as np

from nova.evaluation.bounds import felt, sampled
from nova.evaluation.bounds.boxes import boxes, cheapest
from nova.evaluation.bounds.chains import DENSE, anywhere, split
from nova.evaluation.bounds.costs import LegWeights, cost_blocks, cost_matrix
from nova.evaluation.bounds.linear import Shares, solve
from nova.evaluation.bounds.prices import dense_prices, space_prices
from nova.evaluation.metrics import Distances
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.plan import Plan
from nova.model.policy import alone, key_ranges, may_slice
from nova.model.prices import Prices
from nova.model.problem import Bools, Floats, Problem
from nova.model.rates import counts
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins
from nova.model.ways import Chained
from nova.placement.skew import Parts

Kind = Literal["lp", "lagrangian", "unconstrained", "felt", "sampled", "chained", "anywhere"]

EXACT = 1_500_000
"""Sub-joins × hosts up to which the linear program is solved to its optimum."""
FORBIDDEN = 100.0
"""Times the dearest host: what a host costs that a query may not use, where its joins read each other's results."""
ROUNDS = 10
"""How often ways between joins are split by new prices of hosts, at most."""


@dataclass(frozen=True)
class Bound:
    """A lower bound with what proves it."""

    value: float
    """No plan within the capacities costs less, in ms under the objective."""
    kind: Kind
    """`lp`: the optimum itself; `lagrangian`: below it by what the prices miss; `unconstrained`: the nodes cannot take
    the load at all, so this is what plans cost at least that overload nodes at will; `felt`: time at hosts counts;
    `sampled`: the same with prices from a sample, and estimated from some of the hosts where there are many;
    `chained`: joins read each other's results; `anywhere`: the same, as if hosts were everywhere and had room for
    all."""
    prices: Floats
    """λ per node, in ms per tuple/s; zero where there is room to spare, and for nodes that cannot host."""
    shares: Shares | None
    """The optimum's shares per sub-join and host; None unless `lp`."""
    attained: float | None
    """What these shares cost: the optimum, above `value` by the solver's tolerance at most."""
    seconds: float = field(compare=False, default=0.0)
    certainty: float = 1.0
    """Probability that this is a bound: 1 where it is proven, less where some of the hosts stand for all."""


def bound(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options = Options(),
    distances: Distances | None = None,
    exact: int = EXACT,
    guide: Plan | None = None,
) -> Bound:
    """A lower bound of the cost of any plan under `options.objective` that loads no node above its capacity and
    bandwidth (times `options.utilisation`, where time at hosts does not count).

    Costs follow `distances` (default: the cost space). Options that only forbid plans (σ, C_min, replicas) are left
    out, which keeps the bound valid. A `guide`, a plan made by these options, gives prices where there are too many
    sub-joins and hosts, and tells whether `auto` deals out windows: where it need not, the bound is one of plans that
    do not.
    """
    start = perf_counter()
    if (joins.makes >= 0).any():
        return _chained(problem, joins, space, options, distances)
    legs, priced = LEG_WEIGHTS[options.objective], Prices.of(problem, joins, options)
    if priced is not None and distances is None:
        distances = space  # every pair is priced: boxes of the cost space know legs that weigh alike only
    if options.waiting > 0 and len(joins):
        return _felt(problem, joins, space, options, distances, exact, guide)
    room = problem.nodes.room * options.utilisation
    total = float(joins.demand.sum())
    hosts = np.flatnonzero(room > 0)
    prices = np.zeros(len(problem.nodes))
    if not len(joins):
        return Bound(0.0, "lp", prices, Shares.none(), 0.0)
    if float(room[hosts].sum()) < total * (1 - 1e-12):
        value = _unconstrained(problem, joins, space, legs, distances, priced)
        return Bound(value, "unconstrained", prices, None, None, perf_counter() - start)
    # more room than all sub-joins need is as good as exactly that: keeps infinite capacities out of the arithmetic
    spare = np.minimum(room[hosts], total)
    if len(joins) * len(hosts) <= exact:
        cost = cost_matrix(joins, space if distances is None else distances, hosts, legs, priced)
        solution = solve(cost, joins.demand, spare)
        prices[hosts] = solution.prices
        shares = Shares(solution.shares.join, hosts[solution.shares.node].astype(np.int32), solution.shares.share)
        return Bound(solution.bound, "lp", prices, shares, solution.cost, perf_counter() - start)
    if distances is None:
        value, prices[hosts] = space_prices(space, joins, hosts, spare, legs, options.seed)
    else:
        value, prices[hosts] = dense_prices(distances, joins, hosts, spare, legs, priced)
    return Bound(value, "lagrangian", prices, None, None, perf_counter() - start)


def _felt(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    options: Options,
    distances: Distances | None,
    exact: int,
    guide: Plan | None,
) -> Bound:
    """The bound with time at hosts; never below the one without. Heavy keys that may have hosts of their own count by
    themselves: their results weigh more than their tuples."""
    start = perf_counter()
    parts = Parts.of(problem, joins, options)
    if parts is not None and len(parts.joins) * np.count_nonzero(problem.nodes.room > 0) <= exact:
        problem, joins = parts.problem, parts.joins
    nodes, legs, priced = problem.nodes, LEG_WEIGHTS[options.objective], Prices.of(problem, joins, options)
    counted, hosts = counts(problem, joins, options), np.flatnonzero(nodes.room > 0)
    fits = float(nodes.room[hosts].sum()) >= float(joins.demand.sum()) * (1 - 1e-12)
    few = len(joins) * len(hosts) <= exact
    quantile = 0.0 if options.percentile is None else options.percentile / 100.0
    rules = (_divisible(problem, joins, options, guide), counted, options.at_host, options.arrival_scv, quantile)
    reach: Distances = space if distances is None else distances
    if not fits or not few:
        plain = bound(problem, joins, space, replace(options, waiting=0.0, utilisation=1.0), distances, exact)
        plain = replace(plain, value=plain.value * float(counted.min()), shares=None, attained=None)
        if not fits or priced is not None:
            return plain
        task = felt.Task.of(joins, (nodes.room, nodes.limit, nodes.other_load), *rules)
        value, certainty = sampled.estimate(task, joins, reach, legs, options.seed)
        if value <= plain.value:
            return replace(plain, seconds=perf_counter() - start)
        return Bound(value, "sampled", plain.prices, None, None, perf_counter() - start, certainty)
    prices = np.zeros(len(nodes))
    room, limit = np.minimum(nodes.room[hosts], float(joins.demand.sum())), nodes.limit[hosts]
    task = felt.Task.of(joins, (room, limit, nodes.other_load[hosts]), *rules)
    cost = cost_matrix(joins, reach, hosts, legs, priced)
    served = counted[:, None] * (cost + options.at_host * 1000.0 / limit)
    settled = solve(served, joins.demand, room)
    prices[hosts] = settled.prices
    value, _ = task.ascend(cost, (served + joins.demand[:, None] * settled.prices).min(axis=1))
    return Bound(max(value, settled.bound), "felt", prices, None, None, perf_counter() - start)


def _divisible(problem: Problem, joins: SubJoins, options: Options, guide: Plan | None) -> Bools:
    """Which sub-joins divide at no extra load: by key (where heavy keys have hosts of their own, as if they did), or by
    windows. `auto` deals out windows only where nothing else
    fits, so not where its own plan, the `guide`, has none."""
    keyed = np.array([key_ranges(query.key) >= 2 or alone(query) > 0 for query in problem.queries])
    keyed &= options.partition in ("auto", "key")
    windows = np.array([may_slice(query.window_ms, options) for query in problem.queries])
    if options.partition == "auto" and guide is not None:
        windows &= bool((guide.replicas.slice_to - guide.replicas.slice_from < 1).any())
    divisible: Bools = (keyed | windows)[joins.query]
    return divisible


def _chained(
    problem: Problem, joins: SubJoins, space: CostSpace, options: Options, distances: Distances | None
) -> Bound:
    """The bound where joins read each other's results."""
    start = perf_counter()
    nodes, chained = problem.nodes, Chained.of(problem, joins, options)
    reach: Distances = space if distances is None else distances
    weight = options.at_host
    room, total = nodes.room * (1.0 if weight else options.utilisation), float(joins.demand.sum())
    hosts, prices = np.flatnonzero(room > 0), np.zeros(len(nodes))
    fits = float(room[hosts].sum()) >= total * (1 - 1e-12)
    if not fits:
        hosts = np.arange(len(nodes))
    if len(chained.ways) * len(hosts) ** 2 > DENSE:
        served = weight * 1000.0 * len(joins) / float(nodes.limit[hosts].max())
        return Bound(anywhere(chained, space) + served, "anywhere", prices, None, None, perf_counter() - start)
    own, demand = chained.own_costs(reach.between, hosts), joins.demand
    dear = FORBIDDEN * float(own.max(initial=1.0))
    for query in range(len(problem.queries)):
        allowed = problem.allowed(query)
        if allowed is not None:
            own[np.ix_(joins.query == query, ~allowed[hosts])] = dear
    if not fits:
        value = float(split(chained, own, reach.between, hosts, np.zeros(own.shape)).min(axis=1).sum())
        return Bound(value, "unconstrained", prices, None, None, perf_counter() - start)
    spare, stay = np.minimum(room[hosts], total), weight * 1000.0 / nodes.limit[hosts]
    best, mine = -np.inf, np.zeros(len(hosts))
    for _ in range(ROUNDS):
        cost = split(chained, own, reach.between, hosts, demand[:, None] * mine + stay)
        least = cost.min(axis=1)
        solution = solve(cost + stay - (least + stay.min())[:, None], demand, spare)
        value = solution.bound + float(least.sum() + stay.min() * len(joins))
        mine = solution.prices
        if value <= best * (1 + 1e-5):
            break
        best, prices[hosts] = value, mine
    if weight:
        quantile = 0.0 if options.percentile is None else options.percentile / 100.0
        limit, busy = nodes.limit[hosts], nodes.other_load[hosts]
        shifted = cost - least[:, None]
        begin = (shifted + stay + demand[:, None] * mine).min(axis=1)
        every, alike = np.ones(len(joins), np.bool_), np.ones(len(joins))
        rules = (every, alike, weight, options.arrival_scv, quantile)
        value, _ = felt.Task.of(joins, (spare, limit, busy), *rules).ascend(shifted, begin)
        best = max(best, value + float(least.sum()))
    return Bound(best, "chained", prices, None, None, perf_counter() - start)


def lower_bound(problem: Problem, plan: Plan) -> Bound:
    """The bound that a plan's cost is held against, in the form that `nova.evaluation.metrics.evaluate` takes."""
    return bound(problem, plan.joins, plan.space, plan.options, guide=plan)


def _unconstrained(
    problem: Problem,
    joins: SubJoins,
    space: CostSpace,
    legs: LegWeights,
    distances: Distances | None,
    priced: Prices | None,
) -> float:
    """Every sub-join wherever it costs least, the sink included: what even overloading plans cannot beat."""
    every = np.arange(len(problem.nodes))
    if distances is not None:
        return float(sum(block.min(axis=1).sum() for _, block in cost_blocks(joins, distances, every, legs, priced)))
    least, _ = cheapest(boxes(space, every), space, joins, legs, np.zeros(len(every)), np.zeros(len(joins), np.int64))
    return float(least.sum())


__all__ = ["Bound", "EXACT", "Kind", "Shares", "bound", "lower_bound"]
