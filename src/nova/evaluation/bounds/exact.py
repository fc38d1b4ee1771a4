"""The exact optimum of small problems whose joins stay whole or in few parts, by integer programming (HiGHS)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack

from nova.evaluation.bounds.linear import Shares
from nova.model.errors import Infeasible, InvalidInput, NovaError
from nova.model.problem import Floats

LARGEST = 50_000
"""Sub-joins × hosts up to which the integer program is tried."""


def integer_optimum(
    cost: Floats, demand: Floats, room: Floats, parts: int, largest: float = np.inf, seconds: float = 600.0
) -> Shares:
    """The cheapest way to run each row on at most `parts` columns within their room; with one part rows stay whole.

    No part takes in more than `largest` tuples/s. Proves its optimum within 10⁻⁶ or raises.
    """
    joins, hosts = cost.shape
    if joins * hosts > LARGEST:
        raise InvalidInput(
            f"{joins:,} sub-joins × {hosts:,} hosts are too many for the exact optimum (at most {LARGEST:,}); "
            "leave max_replicas open to solve the linear program instead"
        )
    n = joins * hosts
    row, column = np.divmod(np.arange(n), hosts)
    pick = csr_array((np.ones(n), (row, np.arange(n))), shape=(joins, n))
    take = csr_array((demand[row], (column, np.arange(n))), shape=(hosts, n))
    most = np.minimum(1.0, largest / demand)[row]
    if parts == 1:  # whole or not at all: one binary per pair
        objective, integrality = cost.ravel(), np.ones(n)
        constraints = [LinearConstraint(pick, 1, 1), LinearConstraint(take, -np.inf, room)]
        limits = Bounds(0, np.where(most < 1, 0.0, 1.0))
    else:  # a share and a switch per pair
        objective, integrality = np.concatenate([cost.ravel(), np.zeros(n)]), np.repeat([0, 1], n)
        nothing, eye = csr_array((joins, n)), csr_array((np.ones(n), (np.arange(n), np.arange(n))), shape=(n, n))
        constraints = [
            LinearConstraint(hstack([pick, nothing]), 1, 1),
            LinearConstraint(hstack([take, csr_array((hosts, n))]), -np.inf, room),
            LinearConstraint(hstack([eye, -eye]), -np.inf, 0),
            LinearConstraint(hstack([nothing, pick]), 1, parts),
        ]
        limits = Bounds(0, np.concatenate([most, np.ones(n)]))
    solved = milp(
        objective,
        constraints=constraints,
        integrality=integrality,
        bounds=limits,
        options={"mip_rel_gap": 1e-7, "time_limit": seconds},
    )
    if solved.status == 2:
        word = "whole" if parts == 1 else f"in at most {parts} parts"
        raise Infeasible(f"no placement fits the capacities with every sub-join {word}")
    if solved.status != 0:
        raise NovaError(f"the exact optimum was not found within {seconds:g} s: {solved.message}")
    share = solved.x[:n]
    used = share > 1e-9
    return Shares(row[used].astype(np.int32), column[used].astype(np.int32), share[used])
