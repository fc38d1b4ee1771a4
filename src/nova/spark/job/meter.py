"""Meter: what a run has done, for the display while it runs and for the report at its end."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from nova.spark.job.selectivity import Selectivity
from nova.spark.sources.clock import Clock

LAG_SPAN_S = 20.0
"""Whether a query falls behind is judged over so long."""
RECENT_S = 5.0
"""Rates on the display look back this far."""
QUANTILES = (0.5, 0.9, 0.99)
"""Of latencies, for those who watch a run from outside."""
STAGES = ("source", "routing", "shuffle", "join", "sink")
"""Where the time from event to sink goes."""


class Counts(Protocol):
    """The counts of a batch, as tasks tally them."""

    tuples: Counter[str]
    dead: Counter[str]
    copies: Counter[int]
    buckets: Counter[int]
    results: Counter[int]
    ages: Counter[int]
    first_time: int | None
    last_time: int | None
    began_s: float | None
    routed_s: float | None
    joining_s: float | None
    joined_s: float | None


@dataclass
class Latencies:
    """Latencies in ms, as a histogram: memory does not grow with the run."""

    counts: Counter[float] = field(default_factory=Counter)

    def add(self, ages: Mapping[int, int], done_s: float, clock: Clock) -> None:
        """Results that were out at `done_s`, by the event time (ms) of their later tuple."""
        if not ages:
            return
        events = np.fromiter(ages, dtype=np.float64)
        waited = np.round((done_s - clock.due_s(events)) * 1000).astype(np.int64)
        for latency, count in zip(waited.tolist(), ages.values(), strict=True):
            self.counts[latency] += count

    def add_ms(self, ms: float, results: int) -> None:
        """Results that all took equally long."""
        self.counts[round(ms)] += results

    @staticmethod
    def merged(parts: Iterable[Latencies]) -> Latencies:
        """All of them together."""
        whole = Latencies()
        for part in parts:
            whole.counts.update(part.counts)
        return whole

    def percentiles(self) -> dict[str, float] | None:
        """Mean, median, 90th, 99th and 99.99th percentile and the largest; None before the first result."""
        if not self.counts:
            return None
        at = {f"p{100 * q:g}": self.quantile(q) for q in (0.5, 0.9, 0.99, 0.9999)}
        return {"mean": self.mean(), **at, "max": float(max(self.counts))}

    def mean(self) -> float:
        """Mean in ms; NaN of nothing."""
        total = sum(value * count for value, count in self.counts.items())
        return float(total / self.counts.total()) if self.counts else float("nan")

    def quantile(self, q: float) -> float:
        """The latency in ms that the share `q` of all do not exceed; NaN of nothing."""
        if not self.counts:
            return float("nan")
        values = np.array(sorted(self.counts))
        weights = np.array([self.counts[v] for v in values.tolist()], dtype=np.float64)
        upto = np.cumsum(weights) / weights.sum()
        return float(values[min(int(np.searchsorted(upto, q)), len(values) - 1)])


@dataclass(frozen=True)
class Lately:
    """What the last few seconds brought."""

    tuples_per_s: float
    results_per_s: float
    latency_ms: dict[str, float] | None
    stages_ms: dict[str, dict[str, float] | None]
    """The same by stage."""
    copies: dict[int, float]
    """Tuples that each node (row) was sent per second of event time."""


@dataclass(frozen=True)
class _Batch:
    done_s: float
    tuples: int
    results: int
    copies: Counter[int]
    took: Mapping[str, Latencies]
    """How long results took, in all (`total`) and by stage."""
    last_time: int | None
    """Latest event time (µs) of the run up to this batch."""


@dataclass
class Meter:
    """Counts of one query. `clock` None: event times have nothing to do with now, so there is no latency."""

    query: str
    clock: Clock | None = None
    started_s: float = field(default_factory=time.time)
    tuples: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    """Tuples that could not be used, by reason."""
    heard: dict[str, float] = field(default_factory=dict)
    """When the latest tuples of each side were worked off (s since 1970)."""
    ahead_s: float | None = None
    """How far the newest event times of a live stream are ahead of the clock (s)."""
    ended: bool = False
    """All input has come: none is missed."""
    copies: Counter[int] = field(default_factory=Counter)
    results: Counter[int] = field(default_factory=Counter)
    merged: Counter[str] = field(default_factory=Counter)
    """Partial aggregates of other hosts that each host (id) has merged on their way to the sink."""
    latencies: Latencies = field(default_factory=Latencies)
    stages: dict[str, Latencies] = field(default_factory=dict)
    """The same by stage; a result's add up to its latency."""
    selectivity: Selectivity | None = None
    """What its filters, join and groups let through, where that is counted."""
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
    _recent: deque[_Batch] = field(default_factory=deque)
    _lags: deque[tuple[float, float]] = field(default_factory=deque)
    """When batches were done, and how far behind the newest of their tuples was then (s)."""
    _seen: int = -1
    _batch: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, number: int, tally: Counts, done_s: float, took: Mapping[str, Latencies] | None = None) -> None:
        """Take in one batch, or what came lately of one that goes on; called in Spark's callback thread. `took`: how
        long its results took, in all (`total`) and by stage, where that was measured one by one."""
        with self._lock:
            self.batches += number != self._batch
            self._batch = number
            self.tuples.update(tally.tuples)
            self.dead.update(tally.dead)
            self.heard |= {side: done_s for side, count in tally.tuples.items() if count}
            came = any(tally.tuples.values())  # while none come, the newest tuple grows old without anybody's fault
            if came and tally.last_time is not None and self.clock is not None and self.clock.runs:
                lag = done_s - float(self.clock.due_s(np.array([tally.last_time / 1000]))[0])
                self.ahead_s = -lag if self.clock == Clock() else None
                self._lags.append((done_s, lag))
                while self._lags[0][0] < done_s - LAG_SPAN_S and len(self._lags) > 2:
                    self._lags.popleft()
            self.copies.update(tally.copies)
            self.results.update(tally.results)
            results = sum(tally.results.values())
            if took is None:
                took = self._took(tally, done_s)
            self.latencies.counts.update(took.get("total", Latencies()).counts)
            for stage in STAGES:
                if stage in took:
                    self.stages.setdefault(stage, Latencies()).counts.update(took[stage].counts)
            if results and self.first_result_s is None:
                self.first_result_s = done_s - self.started_s
            if tally.first_time is not None and tally.last_time is not None:
                known = self.first_time is not None and self.last_time is not None
                self.first_time = min(tally.first_time, self.first_time or 0) if known else tally.first_time
                self.last_time = max(tally.last_time, self.last_time or 0) if known else tally.last_time
            if self.selectivity is not None:
                self.selectivity.span(number, tally.first_time, tally.last_time)
            self._open.setdefault(number, Counter()).update(tally.buckets)
            self._recent.append(_Batch(done_s, sum(tally.tuples.values()), results, tally.copies, took, self.last_time))
            while len(self._recent) > 2 and self._recent[1].done_s < done_s - RECENT_S:
                self._recent.popleft()  # the oldest that stays says when the others began

    def set_open(self, buckets: Mapping[int, Counter[int]]) -> None:
        """Copies by batch and by the end of their bucket, of batches that go on: what lies behind the watermark of
        Spark's report was late."""
        with self._lock:
            self._open |= {number: ends for number, ends in buckets.items() if number > self._seen}

    def _took(self, tally: Counts, done_s: float) -> dict[str, Latencies]:
        """How long the results of a whole batch took: they are out together, so only their sources' part differs."""
        if self.clock is None or not self.clock.runs or not tally.ages:
            return {}
        took = {"total": Latencies()}
        took["total"].add(tally.ages, done_s, self.clock)
        steps = (tally.began_s, tally.routed_s, tally.joining_s, tally.joined_s, done_s)
        if None not in steps:
            began, routed, joining, joined, done = (float(step or 0.0) for step in steps)
            joining = max(joining, routed)  # tasks overlap
            took["source"] = Latencies()
            took["source"].add(tally.ages, began, self.clock)
            results = sum(tally.ages.values())
            ends = (began, routed, joining, max(joined, joining), done)
            for stage, (start, end) in zip(STAGES[1:], pairwise(ends), strict=True):
                took[stage] = Latencies()
                took[stage].add_ms(1000 * max(end - start, 0.0), results)
        return took

    def progress(self, report: Mapping[str, Any]) -> None:
        """Take in Spark's own report of a batch: its watermark tells which tuples were late."""
        number = int(report["batchId"])
        with self._lock:
            if number <= self._seen:
                return
            self._seen = number
            if self.selectivity is not None:
                self.selectivity.note(number, report.get("observedMetrics") or {})
            moment = report.get("eventTime", {}).get("watermark")
            if moment is not None:
                behind = datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1e6
                self.watermark = moment if behind > 0 else None  # 1970: there is none before the second batch
                self.late += sum(n for end, n in self._open.pop(number, Counter()).items() if end <= behind)
            self._open = {n: buckets for n, buckets in self._open.items() if n > number}
            operators = report.get("stateOperators", [])
            self.state |= {
                "packets": sum(int(o["numRowsTotal"]) for o in operators),
                "bytes": sum(int(o["memoryUsedBytes"]) for o in operators),
            }
            if report.get("numInputRows"):
                self.batch_ms.append(int(report["durationMs"]["triggerExecution"]))

    @property
    def lag_s(self) -> float | None:
        """How far behind the newest tuples of the latest batch were when it was done (s)."""
        return self._lags[-1][1] if self._lags else None

    def latency(self) -> tuple[int, float, dict[float, float]]:
        """Results that were timed, their latencies' sum (ms), and quantiles (ms) where there are any."""
        with self._lock:
            counts = self.latencies.counts
            total = float(sum(ms * count for ms, count in counts.items()))
            return counts.total(), total, {q: self.latencies.quantile(q) for q in QUANTILES} if counts else {}

    def falling_behind(self, least_s: float) -> bool:
        """Whether results are more than `least_s` behind, and further than some seconds ago."""
        with self._lock:
            if len(self._lags) < 2:
                return False
            (began, first), (done, last) = self._lags[0], self._lags[-1]
            return last > least_s and last - first > 0.2 * (done - began)

    def lately(self, now_s: float | None = None) -> Lately:
        """The last few seconds. Rates are per second of the day; what hosts get is per second of event time, as in
        plans."""
        with self._lock:
            if not self._recent:
                return Lately(0.0, 0.0, None, {}, {})
            alone = len(self._recent) == 1
            counted = list(self._recent) if alone else list(self._recent)[1:]
            began = self.started_s if alone else self._recent[0].done_s
            since = self.first_time if alone else self._recent[0].last_time
            span = max((now_s or time.time()) - began, 1e-3)
            event_s = ((self.last_time or 0) - (since or 0)) / 1e6
            copies: Counter[int] = Counter()
            for batch in counted:
                copies.update(batch.copies)
            return Lately(
                sum(b.tuples for b in counted) / span,
                sum(b.results for b in counted) / span,
                Latencies.merged(b.took["total"] for b in counted if "total" in b.took).percentiles(),
                {
                    stage: Latencies.merged(b.took[stage] for b in counted if stage in b.took).percentiles()
                    for stage in STAGES
                },
                {node: count / event_s for node, count in copies.items()} if event_s > 0 else {},
            )

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
                "stages_ms": {stage: self.stages[stage].percentiles() for stage in STAGES if stage in self.stages},
                "latency_clock": None if self.clock is None else self.clock.told(),
                "first_result_s": self.first_result_s,
                "late_tuples": self.late,
                "dead_letters": dict(self.dead),
                "watermark": self.watermark,
                "batches": self.batches,
                "batch_ms": {"p50": float(np.median(self.batch_ms)), "p99": float(np.percentile(self.batch_ms, 99))}
                if self.batch_ms
                else None,
                "state": self.state,
                "selectivity": {} if self.selectivity is None else self.selectivity.shares(),
            }
