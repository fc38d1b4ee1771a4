"""How commands speak: a table for people, JSON for programs, progress on a terminal only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from nova.terminal import console, table

__all__ = [
    "JSON",
    "console",
    "emit_json",
    "errors",
    "estimated_bound",
    "percent",
    "progress",
    "table",
    "unkept",
    "warn",
]

JSON = typer.Option(False, "--json", help="Print machine-readable JSON instead of tables.")

errors = Console(stderr=True)


def emit_json(value: Any) -> None:
    """Print `value` as JSON; what JSON cannot say (NaN, infinity) becomes null."""
    print(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def warn(messages: Iterable[str]) -> None:
    """Print warnings on stderr, where they do not disturb tables and JSON."""
    for message in messages:
        typer.echo(f"warning: {message}", err=True)


def unkept(wanted: float, fullest: float) -> list[str]:
    """What to say where hosts are fuller than `utilisation` wants them."""
    from nova.model.policy import OVERLOAD

    if fullest <= wanted * (1 + OVERLOAD):
        return []
    why = "results would wait longer otherwise, or not fit"
    return [f"utilisation {wanted:g} is not kept: hosts are up to {fullest:.0%} full, as {why}"]


def estimated_bound(certainty: float | None) -> str:
    """What to say of a bound beside its name: nothing where it is proven."""
    return "" if certainty is None or not certainty < 1 else f", an estimate: {certainty:.1%} sure"


def percent(share: float | None) -> float | None:
    """A share as a number of per cent for a cell; nothing where there is none."""
    return None if share is None else 100 * share


@contextmanager
def progress(description: str) -> Iterator[Progress]:
    """A progress display on stderr that stays silent when nobody watches."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    with bar:
        bar.add_task(description, total=None)
        yield bar
