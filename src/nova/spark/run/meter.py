"""Meter: what a run has done, for the display while it runs and for the report at its end."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import numpy as np

from nova.problem import Floats

RECENT_S = 5.0
"""Rates on the display look back this far."""


class Counts(Protocol):
    """The counts of a batch, as tasks tally them."""

    tuples: Counter[str]
    strangers: Counter[str]
    copies: Counter[int]
    buckets: Counter[int]
    results: Counter[int]
    ages: Counter[int]
    first_time: int | None
    last_time: int | None


@dataclass(frozen=True)
class Clock:
    """When an event should have reached us: the same moment for live data, a shifted and stretched one for replays."""

    event_us: int = 0
    wall_s: float = 0.0
    speed: float = 1.0

    def due_s(self, event_ms: Floats) -> Floats:
        """Wall time (s since 1970) of event times (ms since 1970)."""
        due: Floats = self.wall_s + (event_ms / 1000 - self.event_us / 1e6) / self.speed
        return due


@dataclass
class Latencies:
    """Event-to-sink latencies in ms, as a histogram: memory does not grow with the run."""

    counts: Counter[int] = field(default_factory=Counter)

    def add(self, ages: Mapping[int, int], done_s: float, clock: Clock) -> None:
        """Results that were out at `done_s`, by the event time (ms) of their later tuple."""
        if not ages:
            return
        events = np.fromiter(ages, dtype=np.float64)
        waited = np.round((done_s - clock.due_s(events)) * 1000).astype(np.int64)
        for latency, count in zip(waited.tolist(), ages.values(), strict=True):
            self.counts[latency] += count

    def percentiles(self) -> dict[str, float] | None:
        """Mean, median, 90th and 99th percentile and the largest; None before the first result."""
        if not self.counts:
            return None
        values = np.array(sorted(self.counts))
        weights = np.array([self.counts[v] for v in values.tolist()], dtype=np.float64)
        upto = np.cumsum(weights) / weights.sum()
        at = {f"p{round(q * 100)}": float(values[min(int(np.searchsorted(upto, q)), len(values) - 1)])
              for q in (0.5, 0.9, 0.99)}
        return {"mean": float(values @ weights / weights.sum()), **at, "max": float(values[-1])}


@dataclass
class Meter:
    """Counts of one query. `clock` None: event times have nothing to do with now, so there is no latency."""

    query: str
    clock: Clock | None = None
    started_s: float = field(default_factory=time.time)
    tuples: Counter[str] = field(default_factory=Counter)
    strangers: int = 0
    copies: Counter[int] = field(default_factory=Counter)
    results: Counter[int] = field(default_factory=Counter)
    latencies: Latencies = field(default_factory=Latencies)
    late: int = 0
    first_time: int | None = None
    last_time: int | None = None
    batches: int = 0
    first_result_s: float | None = None
    """Seconds from the start to the first result."""
    watermark: str | None = None
    state: dict[str, int] = field(default_factory=dict)
    batch_ms: list[int] = field(default_factory=list)
    _open: dict[int, Counter[int]] = field(default_factory=dict)
    _recent: deque[tuple[float, int, int, Counter[int]]] = field(default_factory=deque)
    _seen: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, number: int, tally: Counts, done_s: float) -> None:
        """Take in one batch; called in Spark's callback thread."""
        with self._lock:
            self.batches += 1
            self.tuples.update(tally.tuples)
            self.strangers += sum(tally.strangers.values())
            self.copies.update(tally.copies)
            self.results.update(tally.results)
            results = sum(tally.results.values())
            if self.clock is not None:
                self.latencies.add(tally.ages, done_s, self.clock)
            if results and self.first_result_s is None:
                self.first_result_s = done_s - self.started_s
            if tally.first_time is not None and tally.last_time is not None:
                self.first_time = min(tally.first_time, self.first_time or tally.first_time)
                self.last_time = max(tally.last_time, self.last_time or tally.last_time)
            self._open[number] = tally.buckets
            self._recent.append((done_s, sum(tally.tuples.values()), results, tally.copies))
            while self._recent and self._recent[0][0] < done_s - RECENT_S:
                self._recent.popleft()

    def progress(self, report: Mapping[str, Any]) -> None:
        """Take in Spark's own report of a batch: its watermark tells which tuples were late."""
        number = int(report["batchId"])
        with self._lock:
            if number <= self._seen:
                return
            self._seen = number
            moment = report.get("eventTime", {}).get("watermark")
            if moment is not None:
                self.watermark = moment
                behind = datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1e6
                self.late += sum(n for end, n in self._open.pop(number, Counter()).items() if end <= behind)
            self._open = {n: buckets for n, buckets in self._open.items() if n > number}
            operators = report.get("stateOperators", [])
            self.state = {
                "packets": sum(int(o["numRowsTotal"]) for o in operators),
                "bytes": sum(int(o["memoryUsedBytes"]) for o in operators),
            }
            if report.get("numInputRows"):
                self.batch_ms.append(int(report["durationMs"]["triggerExecution"]))

    def rates(self, now_s: float | None = None) -> tuple[float, float]:
        """Tuples in and results out per second, over the last seconds."""
        with self._lock:
            if not self._recent:
                return 0.0, 0.0
            span = max((now_s or time.time()) - max(self._recent[0][0] - 1.0, self.started_s), 1e-3)
            return sum(r[1] for r in self._recent) / span, sum(r[2] for r in self._recent) / span

    @property
    def event_s(self) -> float:
        """Seconds of event time that the tuples span: what rates of sources and loads of hosts are counted in."""
        if self.first_time is None or self.last_time is None:
            return 0.0
        return (self.last_time - self.first_time) / 1e6

    def report(self, seconds: float) -> dict[str, Any]:
        """Everything as plain values; rates per second of the run."""
        with self._lock:
            tuples, results = sum(self.tuples.values()), sum(self.results.values())
            return {
                "query": self.query,
                "tuples": dict(self.tuples),
                "event_seconds": self.event_s,
                "tuples_per_s": tuples / seconds,
                "results": results,
                "results_per_s": results / seconds,
                "latency_ms": self.latencies.percentiles(),
                "first_result_s": self.first_result_s,
                "late_tuples": self.late,
                "unknown_tuples": self.strangers,
                "watermark": self.watermark,
                "batches": self.batches,
                "batch_ms": {"p50": float(np.median(self.batch_ms)), "p99": float(np.percentile(self.batch_ms, 99))}
                if self.batch_ms else None,
                "state": self.state,
            }
