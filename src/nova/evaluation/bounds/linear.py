"""The transportation problem as a linear program, solved to its optimum by HiGHS over a growing set of columns.

Few of the sub-joins × hosts can be part of an optimum. The program starts with the columns of a feasible greedy
solution; its prices then tell which other columns could help, until none can. At every step the prices alone give a
lower bound, which needs no trust in the solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

from nova.model.errors import Infeasible, NovaError
from nova.model.problem import Floats, Ints

TOLERANCE = 1e-7
"""Relative distance of optimum and bound at which the search for columns ends."""
ROUNDS = 100
WIDTH = 20
"""Columns added per sub-join and round, at most."""


@dataclass(frozen=True)
class Shares:
    """Which part of each sub-join runs on which host: one row per part. The parts of a sub-join sum to 1."""

    join: Ints
    node: Ints
    share: Floats

    @staticmethod
    def none() -> Shares:
        """No parts at all."""
        return Shares(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))


@dataclass(frozen=True)
class Linear:
    """The optimum with its proof. Hosts are columns of the cost matrix."""

    cost: float
    bound: float
    """L(prices): a lower bound by itself, equal to `cost` within the tolerance."""
    shares: Shares
    prices: Floats
    """ms per tuple/s for each host."""


def solve(cost: Floats, demand: Floats, room: Floats, tolerance: float = TOLERANCE) -> Linear:
    """Deal `demand` (tuples/s per row) out over `room` (tuples/s per column) at least cost; `cost[j, h]` is what row j
    costs wholly on column h."""
    joins, hosts = cost.shape
    chosen = greedy(cost, demand, room)
    near = min(WIDTH, hosts) - 1
    nearest = np.argpartition(cost, near, axis=1)[:, : near + 1]
    np.put_along_axis(chosen, nearest, True, axis=1)
    best, best_prices = -np.inf, np.zeros(hosts)
    for _ in range(ROUNDS):
        row, column = np.nonzero(chosen)
        n = np.arange(len(row))
        solved: Any = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
            cost[row, column],
            A_ub=csr_array((demand[row], (column, n)), shape=(hosts, len(n))),
            b_ub=room,
            A_eq=csr_array((np.ones(len(n)), (row, n)), shape=(joins, len(n))),
            b_eq=np.ones(joins),
            bounds=(0, None),
            method="highs",
        )
        if solved.status != 0:
            raise NovaError(f"the linear program could not be solved: {solved.message}")
        prices = np.maximum(-solved.ineqlin.marginals, 0.0)
        priced = cost + demand[:, None] * prices
        value = float(priced.min(axis=1).sum() - prices @ room)
        if value > best:
            best, best_prices = value, prices
        if solved.fun - best <= tolerance * max(abs(solved.fun), 1e-12):
            break
        worth = priced - solved.eqlin.marginals[:, None]
        pick = np.argpartition(worth, near, axis=1)[:, : near + 1]
        helps = np.take_along_axis(worth, pick, axis=1) < -1e-10 * max(abs(solved.fun) / joins, 1e-12)
        known = np.take_along_axis(chosen, pick, axis=1)
        if not (helps & ~known).any():
            break
        np.put_along_axis(chosen, pick, known | helps, axis=1)
    used = solved.x > 1e-12
    shares = Shares(row[used].astype(np.int32), column[used].astype(np.int32), solved.x[used])
    return Linear(float(solved.fun), best, shares, best_prices)


def greedy(cost: Floats, demand: Floats, room: Floats) -> npt.NDArray[np.bool_]:
    """The columns of a feasible solution: small demands first, each on its cheapest hosts with room."""
    free, used = room.copy(), np.zeros(cost.shape, dtype=bool)
    for j in np.argsort(demand, kind="stable"):
        rest = demand[j]
        for h in np.argsort(cost[j], kind="stable"):
            if free[h] <= 0:
                continue
            part = min(rest, free[h])
            free[h] -= part
            rest -= part
            used[j, h] = True
            if rest <= 0:
                break
        if rest > 1e-9 * demand[j]:
            raise Infeasible(f"the hosts are short of {demand.sum() - room.sum():,.6g} tuples/s")
    return used
