"""What is wrong with a ping: the first reason that applies, or none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from nova.spark.dead_letters import NOT_PARSED
from nova.spark.ingest.measurements.lines import BLANK, HEADER
from nova.spark.ingest.measurements.read import PROBE_ERROR

Zeros = Literal["missing", "floored"]

REASONS: dict[str, str] = {
    NOT_PARSED: "the record cannot be read: wrong number of fields, broken JSON, no results in it",
    PROBE_ERROR: "the probe reports an error instead of a result",
    "node_missing": "one end of the pair is not named",
    "node_unknown": "one end of the pair is not in the table of nodes",
    "self_pair": "a node measured itself",
    "time_missing": "no time, in a file that has times",
    "time_unreadable": "the time is neither ISO 8601 nor a number since the epoch",
    "time_out_of_range": "the time lies before --since or after --until",
    "rtt_unreadable": "the RTT is not a number",
    "rtt_not_finite": "the RTT is NaN or infinite",
    "rtt_negative": "the RTT is below zero",
    "rtt_zero": "the RTT is zero, which stands for missing here (--zeros missing)",
    "rtt_absurd": "the RTT lies above --max-rtt",
}
"""Why a row is quarantined, in the order of testing."""


@dataclass(frozen=True)
class Rules:
    """What counts as a sane ping."""

    zeros: Zeros = "missing"
    """An RTT of 0 is a gap that somebody filled, or a value below the clock's resolution that was cut off."""
    floor_ms: float = 0.5
    """What a floored zero becomes: the middle of what a clock of whole milliseconds cuts to zero."""
    max_rtt_ms: float = 60_000.0
    since: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    until: datetime | None = None
    """None: a day from now, as no clock is that far ahead."""
    unit_ms: float = 1.0
    """ms of one of the units that RTTs are in."""

    def range_us(self) -> tuple[int, int]:
        """The times that count, in µs since the epoch."""
        until = self.until or datetime.now(UTC) + timedelta(days=1)
        return round(self.since.timestamp() * 1e6), round(until.timestamp() * 1e6)


def judge(raw: DataFrame, rules: Rules, nodes: DataFrame | None = None) -> tuple[DataFrame, Observation]:
    """`raw` with a column `reason`: null for a good ping. Ids become those of `nodes` (columns `alias`, `id`), and
    zeros that stand for a floored value are raised to the floor.

    The observation counts, once the table was used, every row that was judged: see `tally`. Filters on the table stay
    behind the observation, so every row is parsed once, not once for the filter and once for its values.
    """
    known: Column = f.lit(True)
    if nodes is not None:
        for end in ("from", "to"):
            names = nodes.select(f.col("alias").alias(f"{end}_alias"), f.col("id").alias(f"{end}_known"))
            raw = raw.join(f.broadcast(names), f.col(f"{end}_id") == f.col(f"{end}_alias"), "left").drop(f"{end}_alias")
        known = f.col("from_known").isNotNull() & f.col("to_known").isNotNull()
        known_ids = [f.coalesce(f"{end}_known", f"{end}_id").alias(f"{end}_id") for end in ("from", "to")]
        others = [name for name in raw.columns if name not in ("from_id", "to_id", "from_known", "to_known")]
        raw = raw.select(*others, *known_ids, known.alias("known"))
        known = f.col("known")
    since, until = rules.range_us()
    if rules.unit_ms != 1.0:
        raw = raw.withColumn("rtt", f.col("rtt") * rules.unit_ms)
    rtt = f.col("rtt")
    infinite = f.abs(rtt) == f.lit(float("inf"))
    tests: list[tuple[str, Column]] = [
        ("node_missing", f.col("from_id").isNull() | f.col("to_id").isNull()),
        ("node_unknown", ~known),
        ("self_pair", f.col("from_id") == f.col("to_id")),
        ("time_missing", f.col("timed") & f.col("time").isNull() & f.col("time_blank")),
        ("time_unreadable", f.col("timed") & f.col("time").isNull()),
        ("time_out_of_range", f.col("timed") & ~f.col("time").between(since, until)),
        ("rtt_unreadable", ~f.col("lost") & rtt.isNull()),
        ("rtt_not_finite", ~f.col("lost") & (f.isnan(rtt) | infinite)),
        ("rtt_negative", ~f.col("lost") & (rtt < 0)),
        ("rtt_zero", ~f.col("lost") & (rtt == 0) & f.lit(rules.zeros == "missing")),
        ("rtt_absurd", ~f.col("lost") & (rtt > rules.max_rtt_ms)),
    ]
    reason = f.when(f.col("noticed").isNotNull(), f.col("noticed"))
    for name, failed in tests:
        reason = reason.when(failed, name)
    judged = raw.withColumn("reason", reason)
    floored = f.lit(False)
    if rules.zeros == "floored":
        floored = ~f.col("lost") & (rtt == 0) & f.col("reason").isNull()
    raised = f.when(f.col("floored"), rules.floor_ms).otherwise(rtt)
    seen = Observation()
    return judged.withColumn("floored", floored).withColumn("rtt", raised).observe(seen, *tally()), seen


def tally() -> list[Column]:
    """Aggregates that count what `judge` saw: `rows`, `floored`, `header`, `blank`. Few, as they are not compiled."""
    noticed = f.coalesce("noticed", f.lit(""))
    return [
        f.count_if(~noticed.isin(HEADER, BLANK)).alias("rows"),
        f.count_if("floored").alias("floored"),
        *(f.count_if(noticed == name).alias(name) for name in (HEADER, BLANK)),
    ]
