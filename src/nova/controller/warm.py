"""Warm: compile every kernel of the controller, so that nobody's first event waits for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.controller.controller import Controller
from nova.controller.events import CapacityChanged, LatencyMeasured, NodeAdded, NodeMoved, NodeRemoved, RateChanged
from nova.model.options import Options, Partition
from nova.model.problem import Latency, Problem
from nova.optimizer import optimize
from nova.synthetic import draw

NETWORKS: tuple[tuple[Partition, int], ...] = (("window", 400), ("grid", 400), ("auto", 4000), ("auto", 40))
"""Partition and nodes: enough to take the way of large problems, and few enough for whole plans at each step."""
ROUNDS = 12


def warm(seed: int = 0) -> None:
    """Lead drawn networks through events that take every way. Compiled kernels stay on disk: the first time takes about
    a minute, all others a few seconds."""
    for partition, nodes in NETWORKS:
        problem = draw(nodes, seed=seed)
        if partition == "grid":
            problem = replace(problem, latency=_in_a_row(problem))
        options = Options(partition=partition)
        controller = Controller.from_plan(problem, optimize(problem, options))
        names, state = controller.state.names, controller.state
        first, second = names.nodes[:2]
        for number in range(ROUNDS):
            busiest = int(state.nodes["used"].argmax())
            name, at = names.nodes[busiest], tuple(state.nodes["at"][busiest].tolist())
            controller.handle(NodeMoved(node=name, coordinates=(at[0] + 9.0, *at[1:])))
            controller.handle(CapacityChanged(node=name, capacity=0.5 * float(state.nodes["capacity"][busiest])))
            if busiest not in problem.sources.node and busiest != problem.queries[0].sink:
                controller.handle(NodeRemoved(node=name))
            controller.handle(NodeAdded(node=f"new-{number}", capacity=90.0, coordinates=at))
        controller.handle(NodeAdded(node="measured", capacity=1.0, rtts={first: 10.0, second: 20.0}))
        controller.handle(LatencyMeasured(from_node=first, to_node=second, rtt_ms=50.0))
        source, row = next(iter(names.source_rows[0].items()))
        most = float(state.nodes["room"].max())
        at = tuple(state.nodes["at"][0].tolist())
        for name in ("large", "larger", "largest"):
            controller.handle(NodeAdded(node=name, capacity=2 * most, coordinates=at))
        rate = 1.2 * most  # two of these fit on no host together, but cut on the new ones
        for join in state.joins_of(row).tolist():
            other = names.sources[int(state.joins["right"][join])]
            controller.handle(
                [
                    RateChanged(stream=names.streams[0], source=source, rate=rate),
                    RateChanged(stream=names.streams[1], source=other, rate=rate),
                ]
            )
        busiest = int(state.nodes["used"].argmax())
        controller.handle(CapacityChanged(node=names.nodes[busiest], capacity=0.5))
        controller.cost()


def _in_a_row(problem: Problem) -> Latency:
    """Measured round trips from each node to the next."""
    at = problem.nodes.coordinates
    assert at is not None
    rows = np.arange(len(at), dtype=np.int32)
    return Latency(rows[:-1], rows[1:], np.linalg.norm(np.diff(at, axis=0), axis=1) + 1.0)
