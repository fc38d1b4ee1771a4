"""Events of links: how much may travel between nodes, or between groups of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from nova.controller.events.event import Event, Finding, event_kind

if TYPE_CHECKING:
    from nova.controller.impact import Impact
    from nova.controller.names import NamesAhead
    from nova.controller.state import State

__all__ = ["BudgetChanged"]


@event_kind
class BudgetChanged(Event):
    """At most so many tuples/s travel over a link from now on: from a node to another, or, with a `label`, from nodes
    with one value of it to nodes with another (`*`: all others). A link that had no budget gets one."""

    kind: ClassVar[str] = "budget_changed"
    from_node: str
    to_node: str
    budget: float
    label: str = "id"

    def own_faults(self) -> Iterator[Finding]:
        if self.from_node == self.to_node:
            yield "to", "a link leads from some nodes to others", self.to_node

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        if self.label != "id" and self.label not in ahead.names.labels:
            yield (
                "label",
                f"the nodes have no such label; they have {', '.join(ahead.names.labels) or 'none'}",
                self.label,
            )
            return
        for field, value in (("from", self.from_node), ("to", self.to_node)):
            if value == "*":
                continue
            if self.label == "id":
                yield from ahead.missing_node(field, value)
            elif value not in ahead.names.labels[self.label]:
                yield field, "no node has this value", value

    def apply(self, state: State, impact: Impact) -> None:  # noqa: ARG002 - what exceeds budgets is seen by itself
        from nova.model.links import Link

        names, link = state.names, Link(self.label, self.from_node, self.to_node, self.budget)
        known = [replace(one, budget=0.0) for one in names.links]
        if (same := replace(link, budget=0.0)) in known:
            at = known.index(same)
            names.links = (*names.links[:at], link, *names.links[at + 1 :])
        else:
            names.links = (*names.links, link)
        names.bound = True
