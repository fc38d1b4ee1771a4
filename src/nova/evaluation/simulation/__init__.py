"""Queueing simulation: what a plan does to tuples over time, not only on average.

The metrics of a plan are averages: they know a node's load, not that it comes in bursts. Here every tuple lives:

1. Sources emit tuples at their rates, as a Poisson process or evenly spaced. A tuple has a position in its stream, in
   [0, 1), that never changes, so a share of a stream is always the same tuples; window number w sits at
   frac(w · 0.6180339887), so a slice of the windows is evenly spread over time.
2. A tuple is sent to each host once per sub-join that has a replica there wanting it. The way takes d(source, host)
   ms, where d is the distance that plans are charged for: the cost space's, which estimates RTTs, or a measured
   matrix's. We charge d once per leg, as the paper and `nova evaluate` do, so that all figures compare.
3. A node serves tuples first come, first served, each for 1/capacity seconds (Lindley's recursion over the sorted
   arrivals of each node). Nodes start empty.
4. Two tuples of one window that meet in a replica give a result as soon as both are served; it takes d(host, sink) to
   the sink. Where the scenario states output rates, pairs match at random at that rate. A window of a sub-join is
   complete when each of its replicas has seen the window's end and served its last tuple.

Latencies are from event to sink and cover every tuple emitted, also those still queued when the clock stops (they are
served as if emission had ended there): otherwise an overloaded plan would look fast by never finishing its work.
Throughput and backlog are read when the clock stops.
"""

from nova.evaluation.simulation.model import simulate
from nova.evaluation.simulation.result import Arrivals, SimulationResult, Timeline, percentiles

__all__ = ["Arrivals", "SimulationResult", "Timeline", "percentiles", "simulate"]
