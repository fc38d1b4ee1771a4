"""Health: what about a run's input somebody should know while it runs.

Nothing comes in, far more or less comes in than the plan was made for, clocks are off, or the input outruns Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova.spark.job.meter import Meter

SILENT_S = 15.0
"""A stream of which nothing has come for so long is worth a word."""
ENOUGH_S = 10.0
"""Seconds of event time after which rates can be judged."""
FAR = 2.0
"""A rate that is so many times the planned one, or less than its inverse, is far from it."""
AHEAD_S = 2.0
BEHIND_S = 60.0
"""Event times of live tuples that lie further than this ahead of the clock, or behind it, are the clock's fault."""
LAG_S = 5.0
"""Results that are further behind and still falling back: the input outruns Spark."""


def warnings(meter: Meter, streams: Mapping[str, tuple[str, float]], until_s: float) -> dict[str, str]:
    """What is wrong with a query's input, by a name that stays while it lasts. `streams`: by side, the stream's name
    and its planned tuples/s; `until_s`: up to when (s since 1970) it is known what has come."""
    told = {}
    dead = meter.dead.total()
    bad = f" ({dead:,} that cannot be used have come, see dead-letters)" if dead else ""
    for side, (stream, planned) in streams.items():
        last = meter.heard.get(side)
        silent = until_s - (last or meter.started_s)
        if silent >= SILENT_S and not meter.ended:
            never = "yet" if last is None else f"for {silent:.0f} s"
            told[f"silent {side}"] = f"no tuple of stream {stream} has come {never}{bad}: is its `input` right?"
            continue
        if meter.event_s < ENOUGH_S or planned <= 0:
            continue
        measured = meter.tuples[side] / meter.event_s
        if not planned / FAR <= measured <= planned * FAR:
            told[f"rate {side}"] = (
                f"stream {stream} brings {measured:,.1f} tuples/s where the plan was made for {planned:,.1f}: correct "
                "the rates and plan again"
            )
    ahead = meter.ahead_s
    if ahead is not None and ahead > AHEAD_S:
        told["ahead"] = f"event times are up to {ahead:,.0f} s ahead of this machine's clock"
    if ahead is not None and ahead < -BEHIND_S and not meter.falling_behind(LAG_S):
        told["behind"] = f"the newest event times are {-ahead:,.0f} s behind this machine's clock"
    if meter.falling_behind(LAG_S):
        told["overload"] = (
            f"the input outruns Spark: results are {meter.lag_s or 0:,.0f} s behind and falling back; tuples wait "
            "where they come from, none is lost"
        )
    return {f"{meter.query}: {name}": f"{meter.query}: {text}" for name, text in told.items()}
