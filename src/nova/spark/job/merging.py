"""Merging: partial aggregates on their way to the sink, put together at hosts where the plan says so.

It happens batch by batch and keeps nothing, so plans may change between batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nova.model.operators import Grouping
from nova.spark.job.around import START, aggregated
from nova.spark.job.sinks import Sink
from nova.spark.job.tasks import ArrowMap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


@dataclass
class Merging:
    """A sink for partial aggregates as they leave their hosts, that hands them on as they reach the sink."""

    inner: Sink
    group: Grouping
    to: Callable[[], Mapping[str, str]]
    """By host, the one to which its partial aggregates go first, in the plan that the latest batch goes by."""
    merged: Counter[str] = field(default_factory=Counter)
    """Partial aggregates of others that each host has merged."""

    def attach(self, pairs: DataFrame, matcher: ArrowMap | None) -> DataFrame:
        return self.inner.attach(pairs, matcher)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Merge along the ways to the sink, and count at each host what it got."""
        whole, counts = frame, []
        for level in levels(self.to()):
            whole, count = merged_once(whole, self.group, level)
            counts.append(count)
        self.inner.write(whole, batch)
        for count in counts:
            self.merged.update({host: int(partials) for host, partials in count.get.items() if partials})


def levels(to: Mapping[str, str]) -> list[dict[str, str]]:
    """The ways from hosts to others that merge, those farthest from the sink first: who sends at once."""

    def hosts_before_sink(host: str) -> int:
        return 1 + hosts_before_sink(to[host]) if host in to else 0

    depth = {host: hosts_before_sink(host) for host in to}
    return [
        {host: to[host] for host in to if depth[host] == level}
        for level in range(max(depth.values(), default=0), 0, -1)
    ]


def merged_once(made: DataFrame, grouping: Grouping, to: Mapping[str, str]) -> tuple[DataFrame, Observation]:
    """Partial aggregates after some hosts have sent theirs to others, which merge them with what they have; and how
    many partials each of these got, once the frame has been worked out."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    ways = F.create_map(*(F.lit(name) for way in to.items() for name in way))
    then = F.try_element_at(ways, F.col("node"))
    count = Observation()
    got = [F.count_if(then == F.lit(host)).alias(host) for host in sorted(set(to.values()))]
    sent = made.observe(count, *got).withColumn("node", F.coalesce(then, F.col("node")))
    return merged(sent, grouping), count


def merged(partials: DataFrame, grouping: Grouping) -> DataFrame:
    """One partial aggregate for each node, window and keys, of the types that they had."""
    from pyspark.sql import functions as F

    names = ["node", START, *(name for name, _ in grouping.keys)]
    whole = aggregated(partials, names, grouping.merge)
    kinds = {one.name: one.dataType for one in partials.schema}
    wider = [one.name for one in whole.schema if one.dataType.simpleString() != kinds[one.name].simpleString()]
    return whole.withColumns({name: F.col(name).cast(kinds[name]) for name in wider}).select(*partials.columns)
