"""Generator: tuples at the sources' rates, the same for the same seed, as a Spark data source named `nova_generator`.

Everything about tuple k of a source (its event time, its delay on the way, its value and key) follows from the seed,
the source and k alone, so any stretch of time can be made again after a crash, by any task.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from nova.model.errors import Fault, InvalidInput
from nova.model.problem import Floats
from nova.model.units import DURATION
from nova.routing.xxh64 import hash_longs, hash_strings
from nova.spark.sources.clock import MOST_ROWS, Clock

COLUMNS = "source_id string, event_time timestamp, value double, key bigint"
SCHEMA = pa.schema(
    [
        ("source_id", pa.string()),
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("key", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Pattern:
    """What generated tuples look like; the options of a `generator` input."""

    seed: int = 0
    keys: int = 1
    """Keys are drawn from 0 … keys − 1."""
    skew: float = 0.0
    """Zipf exponent of the keys: 0 draws all alike, 1 the first key as often as 1/k says."""
    disorder_ms: float = 0.0
    """Tuples arrive up to this long after their event time, so out of order."""
    burst_every_ms: float = 0.0
    """Time between the beginnings of bursts; 0: none."""
    burst_ms: float = 1000.0
    """Length of a burst."""
    burst_factor: float = 1.0
    """Rate within a burst, as a multiple of the usual one."""
    length_ms: float = math.inf
    """The stream ends after this much event time."""
    mean: float = 0.0
    swing: float = 1.0
    """Values are mean + swing·sin(2π t/60 s) + noise·N(0, 1)."""
    noise: float = 1.0
    anomaly_every_ms: float = 0.0
    """Time between anomalies of a source; 0: none."""
    anomaly_ms: float = 2000.0
    anomaly_shift: float = 0.0
    """What an anomaly adds to the values."""
    anomaly_sources: str = ""
    """Sources that have anomalies, with commas between; none named: all."""

    def strange(self, source: str) -> bool:
        """Whether a source has anomalies."""
        named = [name.strip() for name in self.anomaly_sources.split(",") if name.strip()]
        return self.anomaly_every_ms > 0 and (not named or source in named)

    @staticmethod
    def of(options: Mapping[str, Any], place: str) -> Pattern:
        """The pattern that a scenario's options describe; times with units, such as `disorder: 200ms`."""
        known: dict[str, Any] = {}
        faults = []
        times = {"disorder", "burst_every", "burst", "length", "anomaly_every", "anomaly"}
        for name, value in options.items():
            try:
                if name in times:
                    known[f"{name}_ms"] = DURATION.parse(value)
                elif name in ("seed", "keys"):
                    known[name] = int(value)
                elif name == "anomaly_sources":
                    known[name] = str(value)
                elif name in Pattern.__dataclass_fields__ and not name.endswith("_ms"):
                    known[name] = float(value)
                else:
                    offered = sorted(times | {n for n in Pattern.__dataclass_fields__ if not n.endswith("_ms")})
                    faults.append(
                        Fault(
                            place,
                            f"no such option of the generator; there are {', '.join(offered)}",
                            field=f"options.{name}",
                        )
                    )
            except ValueError as error:
                faults.append(Fault(place, str(error), field=f"options.{name}", value=value))
        if faults:
            raise InvalidInput(faults)
        return Pattern(**known)


@dataclass(frozen=True)
class Source:
    """One generated source."""

    id: str
    rate: float
    """Tuples/s."""


def tuples_between(source: Source, pattern: Pattern, after_ms: float, until_ms: float, start_ms: int) -> pa.Table:
    """Tuples that arrive in (after_ms, until_ms], both counted from `start_ms` (epoch), in order of their numbers."""
    return arrivals_between(source, pattern, after_ms, until_ms, start_ms)[0]


def arrivals_between(
    source: Source, pattern: Pattern, after_ms: float, until_ms: float, start_ms: int
) -> tuple[pa.Table, Floats]:
    """The same with the time at which each arrives, in ms from the start."""
    first = max(0, math.ceil(_tuples_before(source.rate, pattern, after_ms - pattern.disorder_ms)) - 1)
    last = math.floor(_tuples_before(source.rate, pattern, min(until_ms, pattern.length_ms))) + 1
    k = np.arange(first, max(last, first), dtype=np.int64)
    own = hash_strings([source.id]) ^ np.uint64(pattern.seed)
    due = _due_ms(k, source.rate, pattern, float(_unit(hash_longs(np.zeros(1, np.int64), own))[0]))
    draw = hash_longs(k, hash_longs(own.view(np.int64)))
    arrival = due + _unit(draw) * pattern.disorder_ms
    keep = (arrival > after_ms) & (arrival <= until_ms) & (due < pattern.length_ms)
    k, due, draw, arrival = k[keep], due[keep], draw[keep], arrival[keep]
    event_us = np.round((start_ms + due) * 1000).astype(np.int64)
    made = pa.table(
        [
            pa.repeat(pa.scalar(source.id), len(k)),
            pa.array(event_us, SCHEMA.field("event_time").type),
            pa.array(_values(due, draw, pattern, pattern.strange(source.id))),
            pa.array(_keys(draw, pattern)),
        ],
        schema=SCHEMA,
    )
    return made, arrival


def _tuples_before(rate: float, pattern: Pattern, at_ms: float) -> float:
    """Tuples due before a time, phase aside."""
    if at_ms <= 0:
        return 0.0
    at = at_ms / 1000
    if pattern.burst_every_ms <= 0:
        return rate * at
    every, length = pattern.burst_every_ms / 1000, min(pattern.burst_ms, pattern.burst_every_ms) / 1000
    rounds, rest = divmod(at, every)
    weight = rounds * (every + (pattern.burst_factor - 1) * length) + rest
    return rate * (weight + (pattern.burst_factor - 1) * min(rest, length))


def _due_ms(k: npt.NDArray[np.int64], rate: float, pattern: Pattern, phase: float) -> Floats:
    """Event time of tuple k in ms from the start; the sources' phases differ, so that they do not beat in time."""
    work: Floats = (k.astype(np.float64) + phase) / rate
    if pattern.burst_every_ms <= 0:
        return work * 1000.0
    every, length = pattern.burst_every_ms / 1000, min(pattern.burst_ms, pattern.burst_every_ms) / 1000
    in_burst = pattern.burst_factor * length
    rounds, rest = np.divmod(work, every - length + in_burst)
    inside = rounds * every + np.where(rest < in_burst, rest / pattern.burst_factor, length + rest - in_burst)
    bursty: Floats = inside * 1000
    return bursty


def _unit(h: npt.NDArray[np.uint64]) -> Floats:
    unit: Floats = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


def _values(due_ms: Floats, draw: npt.NDArray[np.uint64], pattern: Pattern, strange: bool) -> Floats:
    a, b = (_unit(hash_longs(draw.view(np.int64), salt)) for salt in (1, 2))
    normal = np.sqrt(-2 * np.log1p(-a)) * np.cos(2 * np.pi * b)
    values = pattern.mean + pattern.swing * np.sin(2 * np.pi * due_ms / 60_000) + pattern.noise * normal
    if strange:
        during = (due_ms % pattern.anomaly_every_ms) >= pattern.anomaly_every_ms - pattern.anomaly_ms
        values += np.where(during, pattern.anomaly_shift, 0.0)
    result: Floats = values
    return result


def _keys(draw: npt.NDArray[np.uint64], pattern: Pattern) -> npt.NDArray[np.int64]:
    place = _unit(hash_longs(draw.view(np.int64), 3))
    if pattern.skew <= 0:
        return (place * pattern.keys).astype(np.int64)
    weights = np.arange(1, pattern.keys + 1, dtype=np.float64) ** -pattern.skew
    shares = np.cumsum(weights) / weights.sum()
    return np.minimum(np.searchsorted(shares, place, "right"), pattern.keys - 1).astype(np.int64)


def generate(sources: Sequence[Source], pattern: Pattern, after_ms: float, until_ms: float, start_ms: int) -> pa.Table:
    """Tuples of several sources in the order of their event times within each source."""
    parts = [tuples_between(source, pattern, after_ms, until_ms, start_ms) for source in sources]
    return pa.concat_tables(parts) if parts else SCHEMA.empty_table()


def spec(
    sources: Sequence[Source],
    pattern: Pattern,
    start_ms: int | None = None,
    partitions: int = 1,
    clock: Clock | None = None,
) -> str:
    """What the data source needs to know, as the text of its option `spec`.

    `start_ms` None: event times are those of the day, from now on. Else the stream begins at `start_ms` and is played
    by `clock`.
    """
    return json.dumps(
        {
            "ids": [source.id for source in sources],
            "rates": [source.rate for source in sources],
            "pattern": asdict(pattern),
            "start_ms": start_ms,
            "partitions": partitions,
            "clock": asdict(clock or Clock()),
        }
    )


@dataclass
class Stretch(InputPartition):
    """A stretch of time of some sources."""

    first: int
    last: int
    """Sources first … last − 1."""
    after_ms: float
    until_ms: float
    start_ms: int


class Generator(DataSource):
    """`spark.readStream.format("nova_generator").option("spec", spec(…))`."""

    @classmethod
    def name(cls) -> str:
        return "nova_generator"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return GeneratorReader(self.options["spec"])


class GeneratorReader(DataSourceStreamReader):
    """Offsets are arrival times in µs since the start. The start is part of the offset, so a restart continues."""

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.sources = [Source(*one) for one in zip(given["ids"], given["rates"], strict=True)]
        self.pattern = Pattern(**given["pattern"])
        self.partitions_wanted = int(given["partitions"])
        self.start_ms: int | None = given["start_ms"]
        self.clock = Clock(**given["clock"])
        self.begun = False

    @property
    def end_us(self) -> float:
        """No tuple arrives later than this."""
        return float(np.ceil((self.pattern.length_ms + self.pattern.disorder_ms) * 1000))

    @property
    def busiest(self) -> float:
        """Tuples/s of all sources, in a burst."""
        factor = self.pattern.burst_factor if self.pattern.burst_every_ms > 0 else 1.0
        return sum(source.rate for source in self.sources) * max(factor, 1.0)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        start = int(time.time() * 1000) if self.start_ms is None else self.start_ms
        return {"start_ms": start, "at_us": 0, "ended": False}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        if not self.begun:  # a live stream has gone on during a stop; any other goes on where it was
            self.clock.start(start["start_ms"] * 1000 + start["at_us"])
            self.begun = True
        due = self.clock.event_us(time.time()) - start["start_ms"] * 1000
        most = start["at_us"] + MOST_ROWS * 1e6 / max(self.busiest, 1e-9)
        at = max(start["at_us"], int(min(due, self.end_us, most)))
        return {"start_ms": start["start_ms"], "at_us": at, "ended": at >= self.end_us}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start["at_us"] == end["at_us"]:
            return []
        cuts = np.linspace(0, len(self.sources), min(self.partitions_wanted, len(self.sources)) + 1).astype(int)
        return [
            Stretch(a, b, start["at_us"] / 1000, end["at_us"] / 1000, start["start_ms"])
            for a, b in pairwise(cuts.tolist())
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretch)
        made = generate(
            self.sources[partition.first : partition.last],
            self.pattern,
            partition.after_ms,
            partition.until_ms,
            partition.start_ms,
        )
        yield from made.combine_chunks().to_batches(max_chunksize=65_536)
