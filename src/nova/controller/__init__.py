"""Controller: events in, plan changes out (Section 3.5 of the paper).

    running = Controller.from_plan(problem, plan, Stability())
    changes = running.handle(NodeRemoved(node="rack7"))        # one event …
    changes = running.handle([event, event, event])             # … or a batch, which is one step
    running.plan(), running.problem(), running.waiting_list()   # what runs, for what, and what does not fit

`handle` refuses a batch as a whole with `InvalidInput` where an event is impossible, and then nothing has changed. The
controller is pure: no clock, no files, and the same plan and events always give the same plan, bit by bit. `plan()` and
`problem()` go with each other, and are written out anew on each call: they take as long as the plan is large.

The JSON forms of events and changes, the only ones, are in `nova.controller.codec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nova.controller.changes import Change, Deploy, Move, Repartition, Undeploy
    from nova.controller.controller import Controller, Waiting
    from nova.controller.events import (
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
    from nova.controller.stability import Stability

__all__ = [
    "Controller",
    "Stability",
    "Waiting",
    "Change",
    "Deploy",
    "Undeploy",
    "Move",
    "Repartition",
    "Event",
    "NodeAdded",
    "NodeRemoved",
    "NodeMoved",
    "CapacityChanged",
    "LatencyMeasured",
    "SourceAdded",
    "SourceRemoved",
    "RateChanged",
    "PairAllowed",
    "PairWithdrawn",
    "QueryAdded",
    "QueryRemoved",
    "SinkMoved",
]

_HOME = {
    **dict.fromkeys(("Controller", "Waiting"), "controller"),
    **dict.fromkeys(("Change", "Deploy", "Undeploy", "Move", "Repartition"), "changes"),
    "Stability": "stability",
}
"""Modules that hold a name; all others are events."""


def __getattr__(name: str) -> Any:
    """Import on first use: reading a journal must not wait for numeric libraries."""
    if name not in __all__:
        raise AttributeError(f"module 'nova.controller' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"nova.controller.{_HOME.get(name, 'events')}"), name)
