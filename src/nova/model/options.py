"""Every knob of a plan, with its unit and where it comes from in the paper; and what a running plan moves for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Objective = Literal["latency", "paper", "network"]
Partition = Literal["auto", "key", "grid", "window"]
Embedding = Literal["stress", "vivaldi", "mds"]

LEG_WEIGHTS: dict[Objective, tuple[float, float, float]] = {
    "latency": (1.0, 1.0, 2.0),
    "paper": (1.0, 1.0, 1.0),
    "network": (1.0, 1.0, 1.0),
}
"""Weights of the legs left→host, right→host, host→sink. `latency` counts source→host→sink for each of the two
sources, so the way to the sink counts twice; `paper` counts every link once (Eq. 1); `network` counts every link once,
and each times the tuples/s on it (`nova.model.prices`)."""
AT_HOST = 1.2
"""Weight of the time at a host beside the legs of both sources: a result waits for the later of its two tuples, which
on the published instances takes a fifth longer than one tuple (simulated mean and 99th percentile were least here)."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to plan. The defaults are what we recommend; the paper's settings are named beside each knob.

    >>> nova.optimize(scenario, nova.Options(seed=7, waiting=0.0)).options.waiting
    0.0
    """

    seed: int = 0
    """Same seed, same plan."""
    objective: Objective = "latency"
    """What a placement costs: see `LEG_WEIGHTS`. The paper's Eq. 1 is `paper`; `network` is Σ tuples/s × ms, the tuples
    under way, which counts no time at hosts: `waiting` is 0 then."""
    partition: Partition = "auto"
    """How a sub-join is split: `key` by ranges of its key where the query has one, else as `grid`, which cuts both
    streams into parts (any join condition); `window` deals out whole windows (no extra traffic, but results come in
    bursts); `auto` takes what is felt soonest, and deals out windows only where nothing else fits."""
    sigma: float | None = None
    """σ in [0, 1]: no part of a stream in a grid exceeds p_max = max(1, σ·0.5·(dr(s)+dr(t))) tuples/s. None: parts
    follow the hosts' free capacity. The paper's experiments use 0.4."""
    bandwidth_budget: float | None = None
    """t_b: no replica takes in more than this many tuples/s (Eq. 4). None: no limit."""
    waiting: float = 1.0
    """Weight of the time at hosts, service and waiting, beside the network's. 0: place by distance alone, as the paper
    does."""
    percentile: float | None = None
    """Place by this percentile of the wait at hosts, in (0, 100), instead of its mean."""
    arrival_scv: float = 1.0
    """Squared coefficient of variation of the times between a source's tuples: 1 for a Poisson process, 0 for even
    spacing, more for bursts. Waiting grows with it."""
    c_min: float = 0.0
    """C_min: hosts with less free capacity than this (tuples/s) are passed over (Eq. 3). The paper's experiments use
    half the median capacity."""
    utilisation: float = 1.0
    """Share of each node's capacity that may be used, in (0, 1]: less keeps headroom. `auto` uses more where predicted
    p99 would rise otherwise, or something had to be sliced, and `nova plan` says so; other partitions keep to it."""
    max_replicas: int | None = None
    """At most this many replicas per sub-join. None: no limit."""
    allow_overload: bool = False
    """Place what does not fit evenly over the nearest hosts, and report it, instead of refusing."""
    embedding: Embedding = "stress"
    """Phase I: the batch stress solver with heights, Vivaldi, or SMACOF for small full matrices."""
    dimensions: int = 3
    """Dimensions of the cost space."""
    heights: bool = True
    """Give each node a height: the part of its latency that every path to it shares (its access link)."""
    neighbours: int = 32
    """m: measured neighbours per node that the embedding uses at most."""

    def __post_init__(self) -> None:
        if self.objective == "network":
            object.__setattr__(self, "waiting", 0.0)

    @property
    def at_host(self) -> float:
        """Weight of the time at a host in the cost of a sub-join: the tuples of both sources stay there."""
        left, right, _ = LEG_WEIGHTS[self.objective]
        return self.waiting * AT_HOST * (left + right)

    def as_dict(self) -> dict[str, Any]:
        """The options as plain values, as `plan.json` keeps them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Stability:
    """When a replica that could stay is moved all the same. What must move (its host is gone or too full) moves.

    >>> nova.optimize(scenario).controller(nova.Stability(effort=0)).state.stability.effort
    0
    """

    jitter_ms: float = 5.0
    """A node that moved by less than this since its sub-joins were last considered makes nobody look again."""
    migration_ms: float = 1.0
    """What a move costs: it has to lower the mean latency of the sub-join's two sources by more than this."""
    hysteresis: float = 0.02
    """… and by more than this share of what the sub-join costs now."""
    effort: int = 6
    """How hard each event looks for replicas that could give way or fill new room; 0 moves only what must move."""

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
