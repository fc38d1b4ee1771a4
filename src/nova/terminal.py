"""Tables for people at a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are right-aligned and short."""
    drawn = Table(title=Text(title), title_justify="left")  # as text: an id in brackets is no markup
    materialised = [list(row) for row in rows]
    for i, name in enumerate(columns):
        numeric = any(isinstance(row[i], int | float) for row in materialised)
        drawn.add_column(Text(name), justify="right" if numeric else "left")
    for row in materialised:
        drawn.add_row(*(Text(_cell(value)) for value in row))
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return f"{value:,.3g}" if abs(value) < 10 else f"{value:,.1f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
