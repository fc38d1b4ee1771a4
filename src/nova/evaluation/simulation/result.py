"""What a simulation tells: counts, latencies, and how they went over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from nova.model.problem import Floats, Ints

Arrivals = Literal["poisson", "regular", "bursty"]
"""How sources emit: at random, evenly spaced, or in bursts that come at random."""
Longs: TypeAlias = npt.NDArray[np.int64]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
STEPS = 100
"""Points in time at which the backlog is read."""


@dataclass(frozen=True)
class Timeline:
    """The run in steps of equal length; counts are of the step, the backlog is the one at its end."""

    end_s: Floats
    arrived: Longs
    served: Longs
    backlog: Longs
    tuple_p99_ms: Floats
    """99th percentile of the event-to-sink latency of the tuples emitted in this step; NaN where none was."""

    def rows(self) -> list[dict[str, float]]:
        """One record per step."""
        columns = {name: getattr(self, name).tolist() for name in self.__dataclass_fields__}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @staticmethod
    def of(born: Floats, arrival: Floats, finish: Floats, latency_ms: Floats, duration_s: float) -> Timeline:
        """Read a run's deliveries at `STEPS` points in time."""
        edges = np.linspace(0.0, duration_s, STEPS + 1)
        arrived = np.histogram(arrival, edges)[0]
        served = np.histogram(finish, edges)[0]
        step = np.minimum((born / duration_s * STEPS).astype(np.int64), STEPS - 1)
        order = np.argsort(step, kind="stable")
        parts = np.split(latency_ms[order], np.searchsorted(step[order], np.arange(1, STEPS)))
        p99 = np.array([percentile(part, 99.0) for part in parts])
        return Timeline(edges[1:], arrived, served, np.cumsum(arrived - served), p99)


@dataclass(frozen=True)
class SimulationResult:
    """What came of `duration_s` seconds. One *delivery* is one tuple sent to one host for one sub-join."""

    approach: str
    duration_s: float
    seed: int
    arrivals: Arrivals
    emitted: int
    """Tuples born at the sources."""
    delivered: int
    """Deliveries sent: each emitted tuple times the hosts (per sub-join) that need it."""
    served: int
    """Deliveries that a node had finished when the clock stopped."""
    backlog: int
    """Deliveries that had arrived and were not finished."""
    in_flight: int
    """Deliveries still on the way."""
    results: float
    """Results at the sink when the clock stopped."""
    tuple_ms: Floats
    """Event-to-sink latency of each delivery: to its host, through the queue, to the sink."""
    result_ms: Floats
    """Latency of results (a random sample where there are very many), from the later of the two events to the sink."""
    result_network_ms: Floats
    """The part of each result's latency that is network: until both tuples are at the host, and on to the sink."""
    result_service_ms: Floats
    """The part that is service at the host; what is left is waiting."""
    window_ms: Floats
    """From the end of a window to its last possible result at the sink, per window and sub-join."""
    source: Ints
    """Source of each delivery, in the order of `tuple_ms`."""
    node: Ints
    """Host of each delivery."""
    node_arrived: Longs
    node_served: Longs
    node_peak_backlog: Longs
    """Longest queue seen at each node while the clock ran, in deliveries."""
    utilisation: Floats
    """Share of the duration each node was busy, in [0, 1]."""
    offered: Floats
    """Arrived tuples/s per tuple/s of capacity; above 1 a backlog grows as long as it lasts."""
    timeline: Timeline

    @property
    def node_backlog(self) -> Longs:
        return self.node_arrived - self.node_served

    @property
    def served_per_s(self) -> float:
        return self.served / self.duration_s

    @property
    def results_per_s(self) -> float:
        return self.results / self.duration_s

    @property
    def result_parts(self) -> dict[str, float]:
        """Mean network, service and waiting of results, in ms; they sum to the mean latency. NaN without results."""
        if not len(self.result_ms):
            return dict.fromkeys(("network", "service", "waiting"), float("nan"))
        total, network, service = (
            float(part.mean()) for part in (self.result_ms, self.result_network_ms, self.result_service_ms)
        )
        return {"network": network, "service": service, "waiting": total - network - service}

    def summary(self) -> dict[str, Any]:
        """The figures as plain values; latencies in ms."""
        used = self.node_arrived > 0
        return {
            "approach": self.approach,
            "duration_s": self.duration_s,
            "seed": self.seed,
            "arrivals": self.arrivals,
            "tuples": {
                "emitted": self.emitted,
                "delivered": self.delivered,
                "served": self.served,
                "backlog": self.backlog,
                "in_flight": self.in_flight,
            },
            "throughput": {"tuples_per_s": self.served_per_s, "results_per_s": self.results_per_s},
            "latency_ms": {
                "tuple": percentiles(self.tuple_ms),
                "result": percentiles(self.result_ms),
                "window": percentiles(self.window_ms),
            },
            "result_parts_ms": self.result_parts,
            "nodes": {
                "used": int(used.sum()),
                "saturated": int((self.offered[used] > 1.0).sum()),
                "max_utilisation": float(self.utilisation.max(initial=0.0)),
                "peak_backlog": int(self.node_peak_backlog.max(initial=0)),
            },
        }


def percentile(values: Floats, q: float) -> float:
    """The q-th percentile as a value that occurred (so that it may be infinite); NaN of nothing."""
    return float(np.percentile(values, q, method="inverted_cdf")) if len(values) else float("nan")


def percentiles(values: Floats) -> dict[str, float]:
    """Mean, the percentiles of `PERCENTILES` and the maximum; NaN of nothing."""
    figures = {"mean": float(values.mean()) if len(values) else float("nan")}
    figures |= {f"p{q:g}": percentile(values, q) for q in PERCENTILES}
    return figures | {"max": float(values.max()) if len(values) else float("nan")}
