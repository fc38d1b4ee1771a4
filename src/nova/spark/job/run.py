"""Run: a scenario's queries under a plan, from start to stop."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova.controller.codec import event_to_json
from nova.controller.events import SelectivityMeasured
from nova.model.errors import Fault, InvalidInput, NovaError
from nova.model.load import node_loads
from nova.model.merges import merge_loads
from nova.model.operators import join_name
from nova.model.plan import Plan
from nova.model.problem import Floats, Problem
from nova.query import aliases_of
from nova.routing import Routes
from nova.scenario import Scenario
from nova.spark.dead_letters import UNKNOWN_SOURCE
from nova.spark.emulate import Emulation, Epochs
from nova.spark.job import health
from nova.spark.job.around import AtHosts, AtSink, before, handed_over, keys_of
from nova.spark.job.folder import RunFolder
from nova.spark.job.job import Job, NewPlan, routes_of
from nova.spark.job.listener import Listener
from nova.spark.job.merging import Merging
from nova.spark.job.meter import Meter
from nova.spark.job.schedule import Schedule
from nova.spark.job.selectivity import Selectivity, selectivity_of
from nova.spark.job.sinks import HandOver, open_sink
from nova.spark.job.tally import Tally
from nova.spark.job.unmatched import Unmatched
from nova.spark.replan.handover import read_plan
from nova.spark.replan.newcomers import NOBODY, Newcomers
from nova.spark.replan.watch import Watch
from nova.spark.sources.inputs import Input, agree, at_end, feeds_of, flow_of, open_inputs, shared_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONFIG = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.enabled": "false",  # not for streams with state; off it is not considered in each batch
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # results do not wait for the watermark
    "spark.sql.streaming.minBatchesToRetain": "20",
}
"""Settings of the session that suit small, frequent batches."""
POLL_S = 0.1
SLOW_START = "Python worker failed to connect back"
"""What Spark says when a Python process has not started within ten seconds, which a very busy machine may need: the
query is started again, and goes on from its checkpoint."""
SLOW_STARTS = 10
"""So often, then it is given up."""
FIRST_TUPLE_S = 60.0
"""The duration of a run counts from its first tuple, or from here where none comes."""


@dataclass(frozen=True)
class Settings:
    """How to run."""

    folder: Path
    """The run's own folder: checkpoint, plans, results. The same folder again continues the run."""
    until_end: bool = False
    """Stop at the end of the input."""
    duration_s: float | None = None
    every_ms: int = 0
    """Time between batches; 0: as fast as possible."""
    lateness_ms: int = 10_000
    """Tuples up to this far behind the latest event time of their stream are never dropped."""
    format: str = "parquet"
    target: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    speed: float | None = None
    """Replay files at this multiple of the speed they were recorded at."""
    watch: Path | None = None
    """A growing file of events that drive the run."""
    give_up_s: float | None = None
    """A site goes on without another that has not been heard of for so long; None: it waits."""
    emulate: bool = False
    """Follow all tuples through hosts and links of the scenario's size; see `nova.spark.emulate`."""


@dataclass
class Running:
    """One query that runs, in whatever mode."""

    meter: Meter
    query: StreamingQuery
    schedule: Schedule
    last: dict[str, Any] | None = None
    """Spark's report of the latest batch."""

    def note(self, report: dict[str, Any]) -> None:
        """Take in Spark's report of a batch."""
        self.last = report
        self.meter.progress(report)

    def look_after(self) -> None:
        """What is to be done now and then while it runs."""

    def known_until_s(self) -> float:
        """The moment (s since 1970) up to which it is known what has come: what a batch at work reads is not, yet."""
        return time.time()

    def ended(self) -> bool:
        """Whether all input that there will ever be has been worked off."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop in order."""
        raise NotImplementedError

    def finish(self) -> None:
        """What is to be done at the end of the input, once it has stopped."""


@dataclass
class BatchRunning(Running):
    """One query that runs batch by batch."""

    job: Job = field(kw_only=True)
    at_sink: AtSink | None = None
    """What is left to do with joined rows, where the query asks for more."""

    def known_until_s(self) -> float:
        return self.job.at_work_s or time.time()

    def ended(self) -> bool:
        """Whether all input that there will ever be has been worked off."""
        if not self.query.isActive:
            return self.query.exception() is None
        if self.last is None:
            return self.job.gate.at_end()
        return all(at_end(source) for source in self.last["sources"])

    def stop(self) -> None:
        self.job.gate.stop(self.query)

    def finish(self) -> None:
        if self.at_sink is not None:
            self.at_sink.end(self.job.spark)


class Run:
    """A scenario under a plan. `start`, then `wait`, then `report`."""

    MODE: ClassVar[str] = "batch"

    def __init__(self, spark: SparkSession, scenario: Scenario, plan: Plan, settings: Settings) -> None:
        self.spark, self.scenario, self.plan, self.settings = spark, scenario, plan, settings
        self.folder = RunFolder(settings.folder)
        self.running: list[Running] = []
        self.rejected: dict[str, str] = {}
        self.began = time.time()
        self.stopped = threading.Event()
        self.watch: Watch | None = None
        self._listener = Listener(self._note)
        self._current = RunFolder.FIRST, plan
        """The newest plan that all queries have taken up, by name."""
        self._slow_starts = 0
        self._inputs: dict[str, Input] = {}
        self._trees: dict[str, list[tuple[int, str, str]]] = {}
        """By plan: query, host, and the host that merges its partial aggregates."""
        self._waiting: list[int] = []
        """Queries that start once others, whose results they read, have ended."""
        made = any(query.makes is not None for query in scenario.problem.queries)
        if settings.emulate and (made or any(query.pipeline.single for query in scenario.problem.queries)):
            raise InvalidInput("--emulate follows joins of two streams")
        longest_s = max(query.window_ms for query in scenario.problem.queries) / 1000
        self.emulation = (
            None
            if not settings.emulate
            else Emulation(scenario.problem, self._plan, settings.lateness_ms / 1000 + longest_s)
        )

    @property
    def problem(self) -> Problem:
        return self.scenario.problem

    def start(self) -> None:
        """Start all queries."""
        self.folder.lock()
        try:
            self._take_over()
            self._begin()
        except BaseException:
            self.folder.unlock()
            raise

    def _take_over(self) -> None:
        """Make the run's folder, or go on with what an earlier run left there."""
        self.folder.open(self.scenario.digest, self.plan, self.problem)
        if self.settings.watch is not None:
            self.watch = Watch(self.settings.watch, self.folder, self.problem)
            self.watch.catch_up()
            self.watch.poll()
        elif self.folder.watched.exists():
            raise InvalidInput(
                [
                    Fault(
                        str(self.folder.path),
                        "events drove this run: go on with --watch EVENTS, or start afresh with --fresh",
                    )
                ]
            )

    def _begin(self) -> None:
        """Open the inputs and start the queries."""
        for key, value in CONFIG.items():
            self.spark.conf.set(key, value)
        self._inputs = open_inputs(self.spark, feeds_of(self.scenario), self.folder, self.settings.speed)
        self.began = time.time()
        self.spark.streams.addListener(self._listener)
        self._waiting = list(range(len(self.problem.queries)))
        self._start_more()

    def _start_more(self) -> None:
        """Start the queries whose input is there. One that reads what others make begins with them, or, where the run
        ends with its input, once they have ended: then all that it will ever read lies there."""
        for number in list(self._waiting):
            query = self.problem.queries[number]
            read = {self.problem.born(row) for row in (query.left, query.right)}
            makers = {one.id for one in self.problem.queries if one.makes in read}
            ready = {
                one.meter.query
                for one in self.running
                if not self.settings.until_end or (one.ended() and one.query.exception() is None)
            }
            if makers <= ready:
                self.running.append(self._start(number))
                self._waiting.remove(number)

    def _start(self, number: int, meter: Meter | None = None) -> Running:
        """Start a query; `meter` is that of one that is started again."""
        inputs = self._inputs
        query, pipeline = self.problem.queries[number], self.problem.queries[number].pipeline
        names = [self.problem.streams[self.problem.born(row)] for row in (query.left, query.right)]
        left, right = (inputs[name] for name in names)
        place = f"{self.scenario.path}: query {query.id}"
        sides = agree(
            before(left.frame, pipeline.left, place, "left"),
            before(right.frame, pipeline.right, place, "right"),
            keys_of(pipeline),
        )
        partitions = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 2)
        flow = flow_of(self.problem, number, sides, partitions).keeping(pipeline.keeps)
        meter = meter or Meter(query.id, shared_clock(left, right), self.began, dead=self.folder.buried(*names))
        if pipeline.sql:
            meter.selectivity = meter.selectivity or selectivity_of(self.problem, number)

        letters = self.folder.letters(query.id)

        def after(batch: int, tally: Tally, done_s: float) -> None:
            letters.put(batch, tally.letters)
            meter.batch(batch, tally, done_s)
            if self.emulation is not None:
                self.emulation.batch(number, tally, Epochs.of(job.schedule.entries()))

        def merges() -> dict[str, str]:
            return self._merges(job.schedule.entries()[-1].plan, number)

        s = self.settings
        sink = open_sink(s.format, s.target, s.options, flow, self.folder.path)
        if query.makes is not None:
            made = self.folder.made(query.id)
            sink = HandOver(made, lambda: job.come_us())
            inputs[self.problem.streams[query.makes]] = handed_over(
                self.spark, made, flow, pipeline, shared_clock(left, right)
            )
        unmatched = Unmatched(flow, pipeline, self.folder.job(query.id) / "unmatched") if pipeline.keeps else None
        at_sink: AtSink | None = None
        if pipeline.sql:
            groups, counted = self.folder.job(query.id) / "groups", meter.selectivity
            at_sink = AtSink(sink, pipeline, groups, flow.bucket_us, lambda: job.watermark_us(), counted, unmatched)
            sink = at_sink
            if pipeline.group is not None and pipeline.group.merge:
                sink = Merging(sink, pipeline.group, merges, meter.merged)
            sink = AtHosts(sink, flow, pipeline, counted, None if unmatched is None else unmatched.joined)
        lateness_ms = s.lateness_ms + math.ceil(pipeline.lateness_ms)
        job = Job(
            self.spark,
            self.problem,
            number,
            flow,
            sink,
            self.folder.job(query.id),
            lateness_ms,
            lambda known: self._new_plans(known, number),
            after,
            watched=s.emulate,
        )
        if unmatched is not None:
            job.lone = unmatched.lone
        self.folder.remember(query.id, flow, lateness_ms)
        job.begin(self.folder.FIRST, self.plan)
        once = s.until_end and left.at_hand and right.at_hand
        started = job.start(sides.left, sides.right, once=once, every_ms=s.every_ms)
        return BatchRunning(meter, started, job.schedule, job=job, at_sink=at_sink)

    def _merges(self, name: str, query: int) -> dict[str, str]:
        """By host, the one to which its partial aggregates of a query go first, in a plan of the run."""
        if name not in self._trees:
            plan, switch = read_plan(self.folder, name, self.problem)
            ids, merges = switch.newcomers.added_to(self.problem).nodes.ids.to_pylist(), plan.merges
            rows = zip(merges.query.tolist(), merges.node.tolist(), merges.to.tolist(), strict=True)
            self._trees[name] = [(of, ids[node], ids[to]) for of, node, to in rows]
        return {node: to for of, node, to in self._trees[name] if of == query}

    def _plan(self, name: str) -> Plan:
        return read_plan(self.folder, name, self.problem)[0]

    def _new_plans(self, known: list[str], query: int) -> list[NewPlan]:
        """Plans handed in since, in order. One that does not fit the scenario is set aside and told about."""
        found: list[NewPlan] = []
        for name in self.folder.plan_names():
            if name in known or name <= known[-1] or name in self.rejected:
                continue
            try:
                plan, switch = read_plan(self.folder, name, self.problem)
                if switch.newcomers and self.emulation is not None:
                    raise NovaError("--emulate knows the nodes and sources of the scenario only")
            except NovaError as error:
                self.rejected[name] = str(error)
                continue
            routes = routes_of(switch.newcomers.added_to(self.problem), plan, query)
            found.append(NewPlan(name, routes, switch.from_ms, switch.newcomers))
        return found

    def warnings(self) -> dict[str, str]:
        """What is wrong with the input just now, by a name that stays while it lasts."""
        told: dict[str, str] = {}
        queries = {query.id: query for query in self.problem.queries}
        for one in self.running:
            query = queries[one.meter.query]
            streams = {
                side: (self.problem.streams[row], float(self.problem.sources.rate[self.problem.sources_of(row)].sum()))
                for side, row in (("left", query.left), ("right", query.right))
            }
            one.meter.ended = one.meter.ended or (self.settings.until_end and one.ended())
            told |= health.warnings(one.meter, streams, one.known_until_s())
        return told

    def wait(self, observe: Callable[[Run], None] | None = None) -> None:
        """Run until stopped, the time is over, or the input has ended; then stop in order."""
        end, ended = None, False
        try:
            while not self.stopped.wait(POLL_S):
                heard = any(one.meter.heard for one in self.running) or time.time() > self.began + FIRST_TUPLE_S
                if self.settings.duration_s is not None and end is None and heard:
                    end = time.time() + self.settings.duration_s
                self._collect()
                if self.watch is not None:
                    self._tell_shares(self.watch)
                    self.watch.poll()
                self._start_more()
                for one in self.running:
                    one.look_after()
                if observe is not None:
                    observe(self)
                if end is not None and time.time() >= end:
                    break
                if self.settings.until_end and not self._waiting and all(one.ended() for one in self.running):
                    ended = True
                    break
                if not self._waiting and not any(one.query.isActive for one in self.running):
                    self._collect()  # one may have failed since
                    if not any(one.query.isActive for one in self.running):  # the last may have ended just now
                        ended = self.settings.until_end and all(one.ended() for one in self.running)
                        break
        finally:
            self._stop()
        if ended:
            for one in self.running:
                one.finish()
        self.folder.put_measured(event_to_json(event) for event in self.measured())

    def stop(self) -> None:
        """Ask a waiting run to stop; from any thread or a signal handler."""
        self.stopped.set()

    def _note(self, report: dict[str, Any]) -> None:
        """A report of Spark on one batch of some query; called in a thread of its own."""
        for one in list(self.running):
            if report["id"] == one.query.id:
                one.note(report)

    def _collect(self) -> None:
        """Raise what made a query fail."""
        numbers = {query.id: number for number, query in enumerate(self.problem.queries)}
        for place, one in enumerate(self.running):
            failure = one.query.exception()
            if failure is not None and SLOW_START in str(failure) and self._slow_starts < SLOW_STARTS:
                self._slow_starts += 1
                self.running[place] = self._start(numbers[one.meter.query], one.meter)
            elif failure is not None:
                raise NovaError(f"query {one.meter.query!r} failed: {reason(str(failure))}")

    def _stop(self) -> None:
        for one in self.running:
            one.stop()
            for report in one.query.recentProgress:  # the listener may lag behind
                one.note(json.loads(report.json))
        self.spark.streams.removeListener(self._listener)
        if self.emulation is not None:
            self.emulation.finish()
        self.folder.unlock()

    def measured(self) -> list[SelectivityMeasured]:
        """What the run has measured of each query, as events."""
        found: dict[str, dict[str, float]] = {}
        for whole, counted in self._counted():
            found.setdefault(whole.query, {}).update(whole.named(counted.shares()))
        return [SelectivityMeasured(query=query, selectivity=shares) for query, shares in found.items() if shares]

    def _counted(self) -> list[tuple[PartOf, Selectivity]]:
        """What is counted of each join, with the query that it is the whole or a part of."""
        reader = {stream: one.id for one in self.problem.queries for stream in (one.left, one.right)}
        makes = {one.id: one.makes for one in self.problem.queries}
        pipelines = {one.id: one.pipeline for one in self.problem.queries}
        found = []
        for one in self.running:
            whole = one.meter.query
            while (made := makes[whole]) is not None:  # one of several joins: what it reads counts as the query's
                streams = [made, *(row for row, derived in self.problem.derived.items() if derived.base == made)]
                whole = next(reader[row] for row in streams if row in reader)
            if one.meter.selectivity is not None:
                order = pipelines[whole].order
                joins = 0 if order is None else len(aliases_of(order)) - 1
                number = joins if one.meter.query == whole else int(one.meter.query.removeprefix(f"{whole}."))
                found.append((PartOf(whole, number), one.meter.selectivity))
        return found

    def _tell_shares(self, watch: Watch) -> None:
        """Append to the events what was measured and is far from what the plan goes by."""
        for whole, counted in self._counted():
            far = whole.named(counted.far(whole.own(watch.planned(whole.query))))
            if far and watch.tell(SelectivityMeasured(query=whole.query, selectivity=far)):
                counted.tell()

    def report(self) -> dict[str, Any]:
        """What the run did, as plain values."""
        seconds = max(time.time() - self.began, 1e-3)
        queries = [one.meter.report(seconds) for one in self.running]
        made = {query.id for query in self.problem.queries if query.makes is not None}
        whole = [q for q in queries if q["query"] not in made]
        latency = [q["latency_ms"] for q in whole]
        dead: Counter[str] = sum((one.meter.dead for one in self.running), Counter())
        return {
            "scenario": str(self.scenario.path),
            "approach": self.plan.approach,
            "mode": self.MODE,
            "folder": str(self.folder.path),
            "seconds": seconds,
            "tuples": sum(sum(q["tuples"].values()) for q in queries),
            "results": sum(q["results"] for q in whole),
            "tuples_per_s": sum(q["tuples_per_s"] for q in queries),
            "results_per_s": sum(q["results_per_s"] for q in whole),
            "latency_ms": latency[0] if len(latency) == 1 else None,
            "watermark": min((q["watermark"] for q in queries if q["watermark"]), default=None),
            "late_tuples": sum(q["late_tuples"] for q in queries),
            "unknown_tuples": dead[UNKNOWN_SOURCE],
            "dead_letters": dict(dead),
            "warnings": list(self.warnings().values()),
            "queries": queries,
            "hosts": self.hosts(),
            "epochs": {one.meter.query: [entry.__dict__ for entry in one.schedule.entries()] for one in self.running},
            "rejected_plans": [f"{name}: {why}" for name, why in self.rejected.items()],
            "events": None
            if self.watch is None
            else {
                "handled": self.watch.handled,
                "refused": self.watch.refused,
                "waiting": [
                    f"{w.query}: {w.left} ⋈ {w.right}: {w.reason}" for w in self.watch.controller.waiting_list()
                ],
            },
            "emulation": None if self.emulation is None else self.emulation.compared(self.plan),
        }

    def _latest(self) -> tuple[str, Newcomers]:
        """Name of the newest plan that all queries have taken up, and all newcomers that any of them knows."""
        schedules = [one.schedule for one in self.running]
        name = min((schedule.entries()[-1].plan for schedule in schedules), default=RunFolder.FIRST)
        return name, max(
            (schedule.newcomers() for schedule in schedules),
            default=NOBODY,
            key=lambda new: (len(new.nodes), len(new.sources)),
        )

    def hosts(self) -> list[dict[str, Any]]:
        """Per host: what it was charged, what the newest plan says, and its capacity, in tuples per second of event
        time; results that it made, and partial aggregates of others that it merged."""
        name, newcomers = self._latest()
        if self._current[0] != name:
            self._current = name, self._plan(name)
        plan = self._current[1]
        problem = newcomers.added_to(self.problem)
        nodes = len(problem.nodes)
        planned = node_loads(plan.joins, plan.replicas, nodes)
        rates = problem.sources.rate.copy()  # but events may have changed those that the plan has
        rates[plan.joins.left], rates[plan.joins.right] = plan.joins.left_rate, plan.joins.right_rate
        copies, recent, results, expected, merged, partials = (np.zeros(nodes) for _ in range(6))
        merges = any(one.meter.merged for one in self.running)
        row_of = {name: row for row, name in enumerate(problem.nodes.ids.to_pylist())} if merges else {}
        for one in self.running:
            for node, rate in one.meter.lately().copies.items():
                recent[node] += rate
            for node, count in one.meter.copies.items():
                copies[node] += count / max(one.meter.event_s, 1e-3)
            for node, count in one.meter.results.items():
                results[node] += count
            for name, count in one.meter.merged.items():
                partials[row_of[name]] += count
                merged[row_of[name]] += count / max(one.meter.event_s, 1e-3)
            expected += planned_copies(rates, one.schedule.timeline().epochs[-1].routes, nodes)
        # The plan charges a tuple once per sub-join; the job sends it once per meeting. Their ratio is the plan's.
        charge = np.divide(planned, expected, out=np.ones(nodes), where=expected > 0)
        charged, recent = copies * charge + merged, recent * charge
        planned += merge_loads(problem, plan.joins, plan.replicas, plan.merges)
        capacity = problem.nodes.capacity
        rows = np.flatnonzero((charged > 0) | (planned > 0))
        return [
            {
                "node": problem.nodes.ids[int(i)].as_py(),
                "row": int(i),
                "tuples_per_s": charged[i],
                "recent_tuples_per_s": recent[i],
                "planned_tuples_per_s": planned[i],
                "capacity": capacity[i],
                "utilisation": charged[i] / capacity[i] if capacity[i] > 0 else None,
                "planned_utilisation": planned[i] / capacity[i] if capacity[i] > 0 else None,
                "results": int(results[i]),
                "merged": int(partials[i]),
            }
            for i in rows
        ]


@dataclass(frozen=True)
class PartOf:
    """A join as a part of a query's text."""

    query: str
    number: int
    """Which of several joins it is, from 1; 0: it is the only one."""

    def named(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Shares of the join by the names that the query has for them."""
        return {self._name if name == "join" else name: share for name, share in shares.items()}

    def own(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Shares of the query by the names that the join has for them."""
        return {"join" if name == self._name else name: share for name, share in shares.items()}

    @property
    def _name(self) -> str:
        return join_name(self.number) if self.number else "join"


def planned_copies(rates: Floats, routes: Routes, nodes: int) -> Floats:
    """Tuples/s that the routes send to each node; `rates` are those of the sources."""
    sent = np.zeros(nodes)
    for side in (routes.left, routes.right):
        source = np.repeat(np.arange(len(side.start) - 1), np.diff(side.start))
        part = (side.share_to - side.share_from) * (side.slice_to - side.slice_from) * side.key_part
        rate = rates[source] * part
        sent += np.bincount(routes.node[side.meeting], weights=rate, minlength=len(sent))
    return sent


WRAPPED = "thrown from the Python worker:"
"""How Spark ends a line that only says that what happened stands further down."""


FULL = "No space left on device"


def reason(text: str) -> str:
    """What happened, out of the text of a Spark error: its line that says so, without the name of Nova's own error."""
    if FULL in text:
        return "the disk is full: make room, and start the same command again; it goes on where it was"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.rstrip().endswith(WRAPPED)]
    told = [line for line in lines if line.startswith(("nova.model.errors", "Caused by", "pyspark.errors"))]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit|Interrupt)(:|$)", line)]
    return re.sub(r"^nova\.model\.errors\.\w+: ", "", (told or raised[-1:] or lines or [text])[0])


__all__ = ["Run", "Settings", "CONFIG", "reason"]
