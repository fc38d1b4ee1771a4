"""How long a tuple stays at a host: service, and waiting for those before it.

A host serves first come, first served, each tuple in 1/μ seconds, where μ (tuples/s) is the smaller of its capacity and
its bandwidth. With input of λ tuples/s it is busy for ρ = λ/μ of the time, and a tuple stays on average

    S(λ) = 1/μ + (c·ρ + b) / (2μ(1 − ρ))

(Pollaczek–Khinchine for constant service). c is the squared coefficient of variation of the times between arrivals: 1
for a Poisson process, 0 for even spacing, more for bursts. b = E[X²]/E[X] − 1 for input in batches of X tuples, 0 for
single tuples. λ includes `busy`, the node's own other load.

Queues near ρ = 1 never settle, so S grows linearly beyond ρ = `KNEE`: a full host is dear, not impossible.

The functions take numbers or numpy arrays, and kernels may call them: one source for placement, controller and
evaluation. Rates are in tuples/s, times in ms.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from nova.jit import shared

Numbers: TypeAlias = Any
"""A float or an array of floats; arrays broadcast."""

KNEE = 0.99
"""Utilisation from which S grows linearly. At 0.99 the queue of Poisson input is 49 tuples long on average, and takes
thousands of services to build up: no run that is watched sees more."""
POISSON = 1.0
"""Squared coefficient of variation of a Poisson process, the default."""


@shared
def waiting_ms(load: Numbers, capacity: Numbers, scv: float = POISSON, batch: Numbers = 0.0) -> Numbers:
    """Mean wait before service at a host that takes in `load` tuples/s; `batch` is E[X²]/E[X] − 1."""
    rho = load / capacity
    below = np.minimum(rho, KNEE)
    idle = 1.0 - below
    steady = (scv * below + batch) / (2.0 * idle)
    beyond = (rho - below) * (scv + batch) / (2.0 * idle * idle)
    return (steady + beyond) * (1000.0 / capacity)


@shared
def sojourn_ms(load: Numbers, capacity: Numbers, scv: float = POISSON, batch: Numbers = 0.0) -> Numbers:
    """S(λ): mean time at a host, service and waiting."""
    return 1000.0 / capacity + waiting_ms(load, capacity, scv, batch)


@shared
def sojourn_slope(load: Numbers, capacity: Numbers, scv: float = POISSON, batch: Numbers = 0.0) -> Numbers:
    """dS/dλ, in ms per tuple/s: what one more tuple/s adds to the time of all others at the host."""
    idle = 1.0 - np.minimum(load / capacity, KNEE)
    return (scv + batch) / (2.0 * idle * idle) * (1000.0 / capacity) / capacity


@shared
def waiting_exceeds(t_ms: Numbers, load: Numbers, capacity: Numbers, scv: float = POISSON) -> Numbers:
    """Share of tuples that wait longer than `t_ms`: ρ·exp(−t·(ρ/W)·(3 − ρ)/2). The share that waits at all is exact;
    the last factor brings the decay near that of constant service, which is quicker than the mean W tells."""
    rho = np.minimum(load / capacity, 1.0)
    mean = np.maximum(waiting_ms(load, capacity, scv, 0.0), 1e-300)
    return rho * np.exp(-t_ms * rho / mean * (1.5 - 0.5 * rho))


@shared
def waiting_quantile(q: float, load: Numbers, capacity: Numbers, scv: float = POISSON) -> Numbers:
    """Wait that the share q of tuples does not exceed, in ms; the inverse of `waiting_exceeds`."""
    rho = np.maximum(np.minimum(load / capacity, 1.0), 1e-300)
    return waiting_ms(load, capacity, scv, 0.0) / (rho * (1.5 - 0.5 * rho)) * np.maximum(np.log(rho / (1.0 - q)), 0.0)


@shared
def drain_ms(window_ms: Numbers, demand: Numbers, capacity: Numbers) -> Numbers:
    """How much longer than a window a host takes for all its tuples, where it gets the whole window of a sub-join of
    `demand` tuples/s: the lateness of a slice's last result. 0 where the host keeps up."""
    return window_ms * np.maximum(demand / capacity - 1.0, 0.0)


@shared
def batch_of_window(window_ms: Numbers, demand: Numbers) -> Numbers:
    """E[X²]/E[X] − 1 where a whole window of a sub-join is one batch of a Poisson number X of tuples: its mean."""
    return demand * window_ms / 1000.0
