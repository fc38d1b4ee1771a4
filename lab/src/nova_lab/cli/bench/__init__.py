"""`nova bench`: the product's own figures, each as a ratio or a gap."""

from __future__ import annotations

import typer

from nova.cli import MARKUP
from nova_lab.cli.bench import balance, events, instances, measured, nexmark, scale, stream, waiting

app = typer.Typer(no_args_is_help=True, rich_markup_mode=MARKUP, help="Measure Nova on this machine: ratios and gaps.")
app.command("scale")(scale.scale)
app.command("events")(events.events)
app.command("instances")(instances.instances)
app.command("measured")(measured.measured)
app.command("balance")(balance.balance)
app.command("stream")(stream.stream)
app.command("nexmark")(nexmark.nexmark)
app.command("waiting")(waiting.waiting)


@app.callback()
def _group() -> None:
    """Measure Nova on this machine: ratios against something timed in the same run, gaps against bounds."""
