"""Controller: events in, plan changes out (Section 3.5 of the paper).

    running = Controller.from_plan(problem, plan)
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

from nova.controller import events
from nova.controller.changes import Change, Deploy, Move, Repartition, Undeploy
from nova.controller.events import *  # noqa: F403 - a new kind of event is written in one place

if TYPE_CHECKING:
    from nova.controller.controller import Controller, Waiting

__all__ = ["Controller", "Waiting", "Change", "Deploy", "Undeploy", "Move", "Repartition"]
__all__ += events.__all__


def __getattr__(name: str) -> Any:
    """Import on first use: reading a journal must not wait for numeric libraries."""
    if name not in ("Controller", "Waiting"):
        raise AttributeError(f"module 'nova.controller' has no attribute {name!r}")
    from nova.controller import controller

    return getattr(controller, name)
