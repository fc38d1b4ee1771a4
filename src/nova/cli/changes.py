"""How commands show changes of a plan, and write the plan that they lead to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.output import table

if TYPE_CHECKING:
    from nova.controller import Change, Controller
    from nova.model.options import Stability

SHOWN = 100
"""Changes listed in a table; the rest is counted, and `--json` has them all."""
SCENARIO = "scenario"
"""Folder inside a plan's that holds the scenario it is for."""
JITTER = typer.Option(
    None, "--jitter-ms", min=0, metavar="MS", help="A node that moved by less makes nobody look again (5)."
)
MIGRATION = typer.Option(
    None,
    "--migration-ms",
    min=0,
    metavar="MS",
    help="What a move costs: it has to lower the mean latency of the sub-join's sources by more (1).",
)
HYSTERESIS = typer.Option(
    None, "--hysteresis", min=0, metavar="SHARE", help="… and by more than this share of the sub-join's cost (0.02)."
)


def stability_of(jitter_ms: float | None, migration_ms: float | None, hysteresis: float | None) -> Stability:
    """The options of stability, with defaults for those not given."""
    from nova.model.options import Stability

    given: dict[str, Any] = {"jitter_ms": jitter_ms, "migration_ms": migration_ms, "hysteresis": hysteresis}
    return Stability(**{name: value for name, value in given.items() if value is not None})


def shares_text(shares: Sequence[float]) -> str:
    """The part of a sub-join in words: `all`, or the ranges of the left stream, the right stream, the windows and
    the keys."""
    names = ("left", "right", "windows", "keys")[: len(shares) // 2]
    ranges = [
        f"{name} {shares[2 * i]:.4g}–{shares[2 * i + 1]:.4g}"
        for i, name in enumerate(names)
        if (shares[2 * i], shares[2 * i + 1]) != (0.0, 1.0)
    ]
    return ", ".join(ranges) or "all"


def change_row(change: Change) -> list[Any]:
    """One line of the table of changes."""
    from nova.controller.changes import Move, Repartition

    if isinstance(change, Repartition):
        where, part = f"{_parts(change.before)} → {_parts(change.after)}", None
    else:
        where = f"{change.from_node} → {change.node}" if isinstance(change, Move) else change.node
        part = shares_text(change.shares)
    window = "next" if change.from_window is None else f"{change.from_window}"
    return [change.kind, f"{change.query}: {change.left} ⋈ {change.right}", where, part, window, change.reason]


def _parts(parts: Iterable[Any]) -> str:
    return "; ".join(f"{part.node} ({shares_text(part.shares)})" for part in parts)


def print_changes(title: str, changes: Sequence[Change]) -> None:
    """The table of changes."""
    if not changes:
        typer.echo("nothing changes")
        return
    more = f", the first {SHOWN} of {len(changes):,}" if len(changes) > SHOWN else ""
    table(
        f"{title}{more}",
        ["change", "sub-join", "host", "share", "from window", "reason"],
        [change_row(change) for change in changes[:SHOWN]],
    )


def write_running(controller: Controller, output: Path, inputs: Mapping[str, Any] | None) -> Path | None:
    """Write the plan that runs now as a plan folder, and the scenario that events have led to into a folder in it.
    Returns the scenario file; None where no scenario can say it: see `nova.scenario.writer.write`."""
    from nova.controller.export import export
    from nova.model.errors import NovaError
    from nova.scenario.folder import write_whole

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
    except OSError as error:
        raise NovaError(f"cannot write {output}: {error.strerror}") from error
    try:
        problem, plan, file = export(controller, beside / SCENARIO, inputs)
        write_whole(plan, output, problem)
        shutil.rmtree(output / SCENARIO, ignore_errors=True)
        if file is None:
            return None
        os.replace(beside / SCENARIO, output / SCENARIO)
        return output / SCENARIO / file.name
    except OSError as error:
        raise NovaError(f"cannot write {output}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
