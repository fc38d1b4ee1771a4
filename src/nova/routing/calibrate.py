"""Calibrate: how many tuples/s this machine joins, measured with the code that joins them in a run.

The paper takes capacities that were "benchmarked per node type and operator class in advance". Here an operator class
is a query of a scenario: its window and the usual rates of its sub-joins, which decide how many results a tuple makes.
The machine routes, packs, unpacks and joins tuples of more and more such sub-joins; work is counted in CPU seconds, so
that other work on the machine does not disturb the figure.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from nova.model.errors import Fault, InvalidInput
from nova.model.plausible import MOST_MS
from nova.model.problem import Problem
from nova.model.reading import parse_json
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins
from nova.routing.flow import Flow, cells_for
from nova.routing.packets import MOMENT, Names, pack, results, route
from nova.routing.routes import SideName, compile_routes
from nova.routing.timeline import Epoch, Timeline
from nova.routing.xxh64 import hash_strings

LEAST_S = 0.25
"""CPU seconds that a measurement takes at least: shorter ones are noise."""
MOST_TUPLES = 2_000_000
MOST_RESULTS = 20_000_000
SIDES: tuple[SideName, SideName] = ("left", "right")
VALUE = pa.schema([("value", pa.float64())])


@dataclass(frozen=True)
class Workload:
    """Sub-joins of one kind, all on one host."""

    window_ms: float
    left_rate: float
    right_rate: float
    keys: int = 1
    """Different values of the tuples' join key in a window; 1: every two tuples of a sub-join match."""

    @property
    def span_s(self) -> float:
        """Seconds of event time that are joined: at least one window, at least a second."""
        return max(1.0, self.window_ms / 1000)

    @property
    def results(self) -> float:
        """Results of one sub-join in one window."""
        window_s = self.window_ms / 1000
        return self.left_rate * window_s * self.right_rate * window_s / self.keys


@dataclass(frozen=True)
class Calibration:
    """What one core joins."""

    workload: Workload
    tuples_per_s: float
    """Median of the measurements."""
    low: float
    high: float
    """The smallest and the largest measurement."""
    results_per_tuple: float
    sub_joins: int
    """Sub-joins side by side in a measurement."""
    repeats: int

    @property
    def spread(self) -> float:
        """Distance of the extremes as a share of the median."""
        return (self.high - self.low) / self.tuples_per_s


def workload_of(problem: Problem, joins: SubJoins, query: int, keys: int = 1) -> Workload:
    """The usual sub-join of a query: its window, and the medians of the rates."""
    mine = joins.query == query
    left, right = (float(np.median(rates[mine])) for rates in (joins.left_rate, joins.right_rate))
    if left + right <= 0:
        raise InvalidInput(
            f"the sources of query {problem.queries[query].id!r} send nothing: there is nothing to measure"
        )
    return Workload(problem.queries[query].window_ms, left, right, keys)


def workloads_to_json(works: Mapping[str, Workload]) -> str:
    """Workloads by query, for another machine to measure."""
    return json.dumps([{"query": name, **asdict(work)} for name, work in works.items()])


def workloads_from_json(text: str, file: str) -> dict[str, Workload]:
    """What `workloads_to_json` wrote; anything else is told."""
    found = parse_json(text, file, "workloads")
    try:
        works = {
            str(one["query"]): Workload(
                float(one["window_ms"]), float(one["left_rate"]), float(one["right_rate"]), int(one["keys"])
            )
            for one in found
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInput([Fault(file, f"not what nova calibrate --site sends: {error!r:.80}")]) from None
    wrong = [
        name
        for name, work in works.items()
        if not (0 < work.window_ms < MOST_MS and work.keys > 0 and 0 < work.left_rate + work.right_rate < MOST_RESULTS)
        or min(work.left_rate, work.right_rate) < 0
    ]
    if wrong or not works:
        raise InvalidInput([Fault(file, "windows, rates and keys above 0 expected", value=", ".join(wrong))])
    return works


def calibrate(work: Workload, repeats: int = 7, seed: int = 0) -> Calibration:
    """Measure tuples/s of one core, `repeats` times, after a size has been found that takes long enough."""
    if work.results > MOST_RESULTS:
        raise InvalidInput(
            f"one window of one sub-join has {work.results:,.0f} results: every tuple matches every other one. "
            "Say with --keys how many different keys there are, or take a shorter window"
        )
    per_join = max(1.0, (work.left_rate + work.right_rate) * work.span_s)
    count = 1
    while True:
        seconds, tuples, joined = _measure(work, count, seed)
        enough = seconds >= LEAST_S or 2 * count * per_join > MOST_TUPLES or 2 * joined > MOST_RESULTS
        if enough:
            break
        count *= 2
    rates = []
    for repeat in range(repeats):
        seconds, tuples, joined = _measure(work, count, seed + 1 + repeat)
        rates.append(tuples / max(seconds, 1e-9))
    return Calibration(work, float(np.median(rates)), min(rates), max(rates), joined / max(tuples, 1), count, repeats)


def _measure(work: Workload, count: int, seed: int) -> tuple[float, int, int]:
    """CPU seconds for the tuples of `count` sub-joins, how many tuples that were, and their results."""
    flow = Flow("calibrate", max(1, round(work.window_ms * 1000)), ("key",) if work.keys > 1 else (), *_carried(work))
    rows = np.arange(count, dtype=np.int32)
    zero, nothing = np.zeros(count, np.int32), np.full(count, np.nan)
    rates = np.full(count, work.left_rate), np.full(count, work.right_rate)
    joins = SubJoins(zero, rows, rows + np.int32(count), zero, zero, zero, *rates, nothing)
    open_tuples = float(sum(rate.sum() for rate in rates)) * flow.bucket_us / 1e6
    flow = Flow(flow.query, flow.window_us, flow.on, flow.left, flow.right, cells_for(open_tuples, 1))
    timeline = Timeline((Epoch(0, compile_routes(joins, Replicas.whole(rows, zero), 0, 2 * count, 0)),))
    ids = [f"s{k}" for k in range(2 * count)]
    names = Names(pa.array(ids, pa.string()), pa.array(["here"], pa.string()))
    hashes = np.array(hash_strings(ids), np.uint64)
    dice = np.random.default_rng(seed)
    batches = {side: _tuples(work, count, number, dice) for number, side in enumerate(SIDES)}
    began = time.process_time()
    found: dict[SideName, dict[tuple[int, int], list[bytes]]] = {}
    for side in SIDES:
        source, batch = batches[side]
        packets = pack(route(timeline, flow, side, source, hashes, batch), flow, side, source, batch, False)
        found[side] = defaultdict(list)
        for cell, bucket, body in zip(packets.cell.tolist(), packets.bucket.tolist(), packets.body, strict=True):
            found[side][cell, bucket].append(body)
    left, right = (pa.array(side, pa.binary()) for side in zip(*_pairs(found), strict=True))
    joined = sum(part.num_rows for part in results(flow, timeline, names, left, right))
    return time.process_time() - began, sum(len(source) for source, _ in batches.values()), joined


def _pairs(found: dict[SideName, dict[tuple[int, int], list[bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    for place, lefts in found["left"].items():
        for one in lefts:
            for other in found["right"].get(place, []):
                yield one, other


def _carried(work: Workload) -> tuple[pa.Schema, pa.Schema]:
    schema = VALUE.append(pa.field("key", pa.int64())) if work.keys > 1 else VALUE
    return schema, schema


def _tuples(work: Workload, count: int, side: int, dice: np.random.Generator) -> tuple[np.ndarray, pa.RecordBatch]:
    """Tuples of all sources of a side, spread evenly over the span, and the rows of their sources."""
    each = max(1, round((work.left_rate, work.right_rate)[side] * work.span_s))
    source = np.repeat(np.arange(count, dtype=np.int32) + np.int32(side * count), each)
    n = len(source)
    columns = {
        "time": pa.array(np.sort(dice.integers(0, round(work.span_s * 1e6), n))).cast(MOMENT),
        "value": pa.array(dice.normal(size=n)),
    }
    if work.keys > 1:
        columns["key"] = pa.array(dice.integers(0, work.keys, n))
    return dice.permutation(source), pa.record_batch(columns)
