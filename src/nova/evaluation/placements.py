"""Placements: where every join runs, as one table for people and programs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nova.evaluation.metrics import Distances, Measured, flows
from nova.model.plan import Plan
from nova.model.problem import Problem

COLUMNS = ("query", "left", "right", "host", "share", "tuples_per_s", "way_ms")


def placements(problem: Problem, plan: Plan) -> pa.Table:
    """One row per sub-join and host, sub-joins in order, the host with the largest share first.

    `share` is the part of the sub-join's results that the host computes, `tuples_per_s` what reaches it for that, and
    `way_ms` the way of these tuples, source to host to sink, in the mean: measured where it was measured, else by the
    cost space.
    """
    flow, joins = flows(problem, plan), plan.joins
    distance: Distances = plan.space
    if problem.latency is not None:
        distance = Measured(problem.latency, len(problem.nodes), plan.space)
    left = distance.between(joins.left_node[flow.join], flow.node)
    right = distance.between(joins.right_node[flow.join], flow.node)
    tuples = np.maximum(flow.load, 1e-300)
    onward = plan.merges.onward(distance.between, joins.query[flow.join], flow.node, joins.sink[flow.join])
    way = (left * flow.left + right * flow.right) / tuples + onward
    order = pa.array(np.lexsort((-flow.share, flow.join)))
    queries = pa.array([query.id for query in problem.queries], pa.string())
    columns = {
        "query": queries.take(pa.array(joins.query[flow.join])),
        "left": problem.sources.ids.take(pa.array(joins.left[flow.join])),
        "right": problem.sources.ids.take(pa.array(joins.right[flow.join])),
        "host": problem.nodes.ids.take(pa.array(flow.node)),
        "share": flow.share,
        "tuples_per_s": flow.load,
        "way_ms": way,
    }
    return pa.table(columns).take(order)
