"""Re-optimization: events in, plan changes out (Section 3.5 of the paper)."""

from nova.reoptimize.changes import Change, Deploy, Move, Repartition, Undeploy
from nova.reoptimize.controller import Controller, Waiting
from nova.reoptimize.events import (
    CapacityChanged,
    Event,
    LatencyMeasured,
    NodeAdded,
    NodeMoved,
    NodeRemoved,
    PairAllowed,
    PairWithdrawn,
    QueryAdded,
    QueryRemoved,
    RateChanged,
    SinkMoved,
    SourceAdded,
    SourceRemoved,
)
from nova.reoptimize.stability import Stability

__all__ = [
    "Controller", "Stability", "Waiting",
    "Change", "Deploy", "Undeploy", "Move", "Repartition",
    "Event", "NodeAdded", "NodeRemoved", "NodeMoved", "CapacityChanged", "LatencyMeasured", "SourceAdded",
    "SourceRemoved", "RateChanged", "PairAllowed", "PairWithdrawn", "QueryAdded", "QueryRemoved", "SinkMoved",
]
