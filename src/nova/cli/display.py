"""Display: a run as a table on the terminal, refreshed while it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nova.cli.output import errors
from nova.spark.job.meter import STAGES

if TYPE_CHECKING:
    from nova.spark.job.run import Run

REFRESH_S = 0.5
SHOWN = ("p50", "p90", "p99", "p99.99", "max")
"""What is shown of latencies."""
HOSTS = 12
"""Hosts on the display: the busiest."""


class Display:
    """Use as a context and call with the run; where nobody watches, only warnings are printed."""

    def __init__(self) -> None:
        self._live = Live(console=errors, auto_refresh=False, transient=True) if errors.is_terminal else None
        self._last = 0.0
        self._told: set[str] = set()

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, run: Run) -> None:
        now = time.monotonic()
        if now - self._last < REFRESH_S:
            return
        self._last = now
        warnings = run.warnings()
        for name, text in warnings.items():
            if name not in self._told:  # once, though its figures change
                errors.print(Text(f"warning: {text}"))
        self._told = set(warnings)
        if self._live is None:
            return
        self._live.update(Group(_queries(run), _latencies(run), _hosts(run)), refresh=True)


def _queries(run: Run) -> Table:
    seconds = time.time() - run.began
    table = Table(title=f"running for {seconds:.0f} s", title_justify="left")
    columns = ["in/s", "out/s", "results", "watermark", "late", "dead", "state"]
    for name in ("query", *columns):
        table.add_column(name, justify="left" if name in ("query", "watermark") else "right")
    for one in run.running:
        now, told = one.meter.lately(), one.meter.report(seconds)
        table.add_row(
            Text(told["query"]),
            f"{now.tuples_per_s:,.0f}",
            f"{now.results_per_s:,.0f}",
            f"{told['results']:,}",
            told["watermark"] or "–",
            f"{told['late_tuples']:,}",
            f"{sum(told['dead_letters'].values()):,}",
            _state(told["state"]),
        )
    return table


def _latencies(run: Run) -> Table:
    """Latency from event to sink, and where it goes."""
    table = Table(title="event to sink, ms", title_justify="left")
    for name in ("query", "", *SHOWN):
        table.add_column(name, justify="left" if name in ("query", "") else "right")
    for one in run.running:
        now = one.meter.lately()
        for query, stage, *ms in latencies(one.meter.query, now.latency_ms, now.stages_ms):
            table.add_row(Text(query), stage, *ms)
    return table


def latencies(
    query: str, latency_ms: dict[str, float] | None, stages_ms: dict[str, dict[str, float] | None]
) -> list[tuple[str, ...]]:
    """Rows of a table with the columns `SHOWN`: a query's latency, then its parts where they are known."""

    def row(name: str, stage: str, told: dict[str, float] | None) -> tuple[str, ...]:
        return name, stage, *(_ms((told or {}).get(p)) for p in SHOWN)

    parts = [row("", stage, stages_ms[stage]) for stage in STAGES if stages_ms.get(stage)]
    return [row(query, "in all", latency_ms), *parts]


def _state(state: dict[str, int]) -> str:
    """What a query keeps: packets, or in real time tuples."""
    unit = "tuples" if "tuples" in state else "packets"
    return f"{state.get(unit, 0):,} {unit}"


def _ms(value: float | None) -> str:
    """Milliseconds, with a digit behind the point where there are few."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _hosts(run: Run) -> Table:
    table = Table(title="hosts, tuples/s", title_justify="left")
    waiting = None if run.emulation is None else run.emulation.backlog()
    queue = [] if waiting is None else ["queue"]
    for name in ("node", "now", "planned", "capacity", "used now", "planned", *queue):
        table.add_column(name, justify="left" if name == "node" else "right")
    hosts = sorted(run.hosts(), key=lambda h: -(h["planned_utilisation"] or 0))
    for host in hosts[:HOSTS]:
        used = "–" if host["capacity"] <= 0 else f"{host['recent_tuples_per_s'] / host['capacity']:.0%}"
        planned = "–" if host["planned_utilisation"] is None else f"{host['planned_utilisation']:.0%}"
        table.add_row(
            Text(host["node"]),
            f"{host['recent_tuples_per_s']:,.0f}",
            f"{host['planned_tuples_per_s']:,.0f}",
            f"{host['capacity']:,.0f}",
            used,
            planned,
            *([] if waiting is None else [f"{waiting.get(host['row'], 0):,}"]),
        )
    if len(hosts) > HOSTS:
        table.caption = f"and {len(hosts) - HOSTS} more"
    return table
