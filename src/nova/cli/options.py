"""Values of options with a unit."""

from __future__ import annotations

from nova.model.errors import Fault, InvalidInput


def milliseconds(text: str, name: str) -> float:
    """A duration such as 500ms or 10min, in ms; `name` is the option's, for the error."""
    from nova.model.units import DURATION

    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise InvalidInput([Fault("command line", str(error), field=name, value=text)]) from None
