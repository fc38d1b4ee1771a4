"""Optimum: the cheapest placement there is within the capacities. For problems small enough to solve exactly."""

from __future__ import annotations

import numpy as np

from nova.baselines.placement import Placement, finished, straight
from nova.evaluation.bounds.costs import cost_matrix
from nova.evaluation.bounds.exact import integer_optimum
from nova.evaluation.bounds.linear import Shares, solve
from nova.model.errors import Infeasible, InvalidInput
from nova.model.options import LEG_WEIGHTS, Options
from nova.model.plan import Plan
from nova.model.prices import Prices
from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.model.space import CostSpace
from nova.model.subjoins import SubJoins

LARGEST = 10_000_000
"""Sub-joins × hosts up to which the linear program is tried."""


def place(problem: Problem, joins: SubJoins, space: CostSpace, options: Options) -> Placement:
    """The optimum under `options.objective`. Sub-joins are split by windows: as finely as it takes (a linear program),
    or into at most `max_replicas` parts with at most `bandwidth_budget` tuples/s each (an integer program)."""
    if options.partition == "grid" and options.max_replicas != 1:
        raise InvalidInput("the exact optimum splits joins by windows, not grids; max_replicas 1 keeps joins whole")
    room = problem.nodes.room * options.utilisation
    hosts = np.flatnonzero(room > 0)
    short = float(joins.demand.sum() - room[hosts].sum())
    if short > 1e-9 * float(joins.demand.sum()):
        raise Infeasible(f"the hosts are short of {short:,.6g} tuples/s")
    if len(joins) * len(hosts) > LARGEST:
        raise InvalidInput(
            f"{len(joins):,} sub-joins × {len(hosts):,} hosts are too many for the exact optimum (at most {LARGEST:,})"
        )
    spare = np.minimum(room[hosts], float(joins.demand.sum()))
    shares = Shares.none()
    if len(joins):
        cost = cost_matrix(joins, space, hosts, LEG_WEIGHTS[options.objective], Prices.of(problem, joins, options))
        if options.max_replicas is None and options.bandwidth_budget is None:
            shares = solve(cost, joins.demand, spare).shares
        else:
            parts = len(hosts) if options.max_replicas is None else options.max_replicas
            largest = np.inf if options.bandwidth_budget is None else options.bandwidth_budget
            shares = integer_optimum(cost, joins.demand, spare, parts, largest)
    replicas = sliced(Shares(shares.join, hosts[shares.node].astype(np.int32), shares.share))
    plan = Plan(joins, replicas, space, options, "optimum", digest=problem.digest)
    return straight(finished(problem, plan))


def sliced(shares: Shares) -> Replicas:
    """Each sub-join's shares as slices of its windows, one after the other, that end at exactly 1."""
    order = np.lexsort((shares.node, shares.join))
    join, node, share = shares.join[order], shares.node[order], shares.share[order]
    n = len(join)
    if not n:
        return Replicas.whole(join, node)
    first = np.flatnonzero(np.diff(join, prepend=-1))
    last = np.append(first[1:], n) - 1
    group = np.repeat(np.arange(len(first)), last - first + 1)
    running = np.cumsum(share)
    before = (running - share)[first][group]
    end = (running - before) / (running[last] - (running - share)[first])[group]
    end[last] = 1.0
    start = np.empty(n)
    start[1:] = end[:-1]
    start[first] = 0.0
    zero, one = np.zeros(n), np.ones(n)
    return Replicas(join, node, zero, one, zero.copy(), one.copy(), start, end)
