"""Events: what happens to a running plan, one class for each kind. How to add one: `nova.controller.events.event`."""

from nova.controller.events import links, nodes, queries, sources
from nova.controller.events.event import KINDS, Event, Finding
from nova.controller.events.links import *  # noqa: F403
from nova.controller.events.nodes import *  # noqa: F403 - a new kind is written in one place
from nova.controller.events.queries import *  # noqa: F403
from nova.controller.events.sources import *  # noqa: F403

__all__ = ["Event", "Finding", "KINDS"]
__all__ += links.__all__
__all__ += nodes.__all__
__all__ += sources.__all__
__all__ += queries.__all__
