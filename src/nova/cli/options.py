"""Values of options with a unit."""

from __future__ import annotations

import typer

from nova.model.errors import Fault, InvalidInput

UNIT = typer.Option("ms", metavar="UNIT", help="What RTTs without a unit are in: ms, s, us or ns.")


def unit_in_ms(unit: str) -> float:
    """ms of one of the units that RTTs may be in."""
    from nova.model.units import RTT_UNITS

    if unit not in RTT_UNITS:
        message = f"one of {', '.join(RTT_UNITS)} expected"
        raise InvalidInput([Fault("command line", message, field="--unit", value=unit)])
    return RTT_UNITS[unit]


def milliseconds(text: str, name: str) -> float:
    """A duration such as 500ms or 10min, in ms; `name` is the option's, for the error."""
    from nova.model.units import DURATION

    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise InvalidInput([Fault("command line", str(error), field=name, value=text)]) from None
