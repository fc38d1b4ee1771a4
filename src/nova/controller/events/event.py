"""Event: what all kinds of events share, and what a kind says of itself.

A kind of event is one class in `nodes`, `links`, `sources` or `queries`: its fields are its JSON form
(`nova.controller.codec`), `own_faults` and `check` say what makes it wrong, `note` which names it brings or takes from
those after it in a batch, and `apply` what it does to the state. Placing what then lacks a host, improving and
reporting follow by themselves (`Controller.handle`). Nothing here loads numeric libraries, so that journals are read
without them.

Rates and capacities are tuples/s, coordinates and latencies ms. `time` (ms since 1970, or ISO 8601) says when it
happened; the changes that follow hold from the first window that begins then or later.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from nova.model.ids import REFUSED, has_control
from nova.model.plausible import MOST_MS, MOST_RATE

if TYPE_CHECKING:
    from nova.controller.impact import Impact
    from nova.controller.names import Names, NamesAhead
    from nova.controller.state import State

Finding = tuple[str, str, Any]
"""What is wrong with an event: field as JSON names it, message, value."""
RATES = ("capacity", "bandwidth", "rate", "output_rate", "budget")
"""Fields in tuples/s."""
LATENCIES = ("height", "rtt_ms")
"""Fields in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a running plan."""

    kind: ClassVar[str]
    """Its name in JSON."""
    new_ids: ClassVar[tuple[str, ...]] = ()
    """Fields that bring an id into the plan; the others must name one that is there."""
    time: float | None = None
    """ms since 1970; None: now."""

    def faults(self) -> Iterator[Finding]:
        """What is wrong with it whatever the plan."""
        for name in self.new_ids:
            if has_control(getattr(self, name)):
                yield name, REFUSED, getattr(self, name)
        for name in RATES:
            value = getattr(self, name, None)
            if value is not None:
                if math.isnan(value) or value < 0:
                    yield name, "a rate is a number ≥ 0", value
                elif math.isinf(value) and name in ("rate", "output_rate", "budget"):
                    yield name, "a rate is finite", value
                elif MOST_RATE < value < math.inf:
                    yield name, f"absurd: more than {MOST_RATE:,.0f} tuples/s", value
        for name in LATENCIES:
            value = getattr(self, name, None)
            if value is not None and not 0 <= value <= MOST_MS:
                yield name, f"a number of ms in 0…{MOST_MS:,.0f} expected", value
        yield from self.own_faults()
        if self.time is not None and not math.isfinite(self.time):
            yield "time", "ms since 1970, or ISO 8601, expected", self.time

    def own_faults(self) -> Iterator[Finding]:
        """What is wrong with an event of this kind whatever the plan, beside units and ids."""
        yield from ()

    def check(self, ahead: NamesAhead) -> Iterator[Finding]:
        """What makes it impossible for the plan, after the events before it in its batch."""
        raise NotImplementedError

    def note(self, ahead: NamesAhead) -> None:
        """Which names come and go with it."""

    def parts(self, names: Names) -> Iterator[Event]:  # noqa: ARG002 - those on queries need them
        """Itself, and what it means for other joins of its query."""
        yield self

    def factors(self, names: Names) -> dict[int, float]:  # noqa: ARG002 - measured selectivities need them
        """Tuples that travel for each that is born, by row of the filtered stream, where the event changes them."""
        return {}

    def apply(self, state: State, impact: Impact) -> None:
        """Change rows of the state, and note what the rest of the step has to look at. Finds no hosts yet, and moves
        nothing that could stay."""
        raise NotImplementedError


KINDS: dict[str, type[Event]] = {}
"""Every kind of event by its name in JSON."""
E = TypeVar("E", bound=Event)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def event_kind(kind: type[E]) -> type[E]:
    """Make a class a kind of event: frozen, its fields given by name, found in `KINDS`."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(kind)
    KINDS[made.kind] = made
    return made
