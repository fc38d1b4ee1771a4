"""What a placement charges each node, in two ways.

`uniform`, the default everywhere: a host takes in the distinct left and right tuples of the sub-joins it runs, its own
stream included, whatever the approach. Relays are shown beside it (`Placement.relay_load`), not added.

`arrivals`, the way of the published scripts: every tuple that arrives at a node over a link counts: inputs, results at
the sink, and whatever a relay passes on. A host's own stream is free, which flatters source-based placement, and only
approaches with relays pay for the way.
"""

from __future__ import annotations

import numpy as np

from nova.baselines.placement import Placement
from nova.evaluation.metrics import flows, node_limit, node_load, overloaded
from nova.model.problem import Floats, Problem


def uniform(problem: Problem, placement: Placement) -> Floats:
    """Tuples/s each node takes in as a host."""
    return node_load(flows(problem, placement.plan), len(problem.nodes))


def arrivals(problem: Problem, placement: Placement) -> Floats:
    """Tuples/s that reach each node over links, as host, relay or sink. Results count where their rate is known."""
    flow, joins, n = flows(problem, placement.plan), placement.plan.joins, len(problem.nodes)
    remote_left = np.where(joins.left_node[flow.join] == flow.node, 0.0, flow.left)
    remote_right = np.where(joins.right_node[flow.join] == flow.node, 0.0, flow.right)
    sink = joins.sink[flow.join]
    results = np.where(sink == flow.node, 0.0, np.nan_to_num(joins.output_rate[flow.join], nan=0.0) * flow.share)
    hosts = np.bincount(flow.node, remote_left + remote_right, n)
    return np.asarray(hosts + np.bincount(sink, results, n) + placement.relay_load, dtype=np.float64)


def overloaded_percent(problem: Problem, load: Floats) -> float:
    """Nodes above what they can take, in percent of the nodes with load."""
    busy = load > 0
    over = overloaded(load, node_limit(problem)) & busy
    return 100.0 * float(over.sum()) / float(busy.sum()) if busy.any() else 0.0
