"""`nova deploy`: a plan cut into what each site needs."""

from __future__ import annotations

from pathlib import Path

import typer

from nova.cli.opening import PLAN, SCENARIO
from nova.cli.output import JSON, emit_json, progress, table

app = typer.Typer()


@app.command()
def command(
    scenario: Path = SCENARIO,
    plan: Path = PLAN,
    out: Path = typer.Option(Path("out/sites"), "-o", "--out", metavar="DIR", help="One folder per site goes here."),
    exchange: str = typer.Option(
        ...,
        metavar="ADDRESS",
        help="How sites reach each other: a folder that all of them see, mqtt(s)://user@host:1883/prefix or kafka://host/prefix.",
    ),
    format_: str = typer.Option(
        "folder", "--format", help="folder; or also compose, systemd, k8s: services for the folders of the sites."
    ),
    lateness: str = typer.Option("10s", help="Tuples up to this late are never dropped."),
    as_json: bool = JSON,
) -> None:
    """Write what each site of PLAN needs into a folder of its own: its share of the plan, its configuration
    (`site.json`) and its command (`run.sh`), which runs `nova run --site NODE` there.

    With `--format compose` there is also a `compose.yaml`, with `systemd` a unit per site, with `k8s` a `sites.yaml`;
    the Dockerfile of the project builds the image that they name.

    Example: `nova deploy demo/scenario.yaml demo/plan -o demo/sites --exchange mqtt://broker:1883/demo`
    """
    from nova.cli.opening import open_plan
    from nova.cli.options import milliseconds
    from nova.model.errors import Fault, InvalidInput
    from nova.spark.session import open_session
    from nova.spark.sites.deploy import shares, write
    from nova.spark.sites.exchange import fresh
    from nova.spark.sites.formats import FORMATS, Site
    from nova.spark.sites.share import Settled

    if format_ not in FORMATS:
        message = f"one of {', '.join(FORMATS)} expected"
        raise InvalidInput([Fault("command line", message, field="--format", value=format_)])
    opened = open_plan(scenario, plan)
    address = fresh(exchange)
    settled = Settled(address, round(milliseconds(lateness, "--lateness")))
    written = []
    with (
        progress("starting Spark"),
        open_session(name="nova deploy") as spark,
    ):
        for share in shares(spark, opened.scenario, opened.plan, settled):
            folder = write(share, out)
            sends = sum(len(share.own(query, side)) for query in share.queries for side in query.sides)
            joins = sum(node == share.site for node in share.replicas["node"].to_pylist())
            collects = [query.flow.query for query in share.queries if query.sink == share.site and query.makes is None]
            written.append(
                {
                    "site": share.site,
                    "folder": str(folder),
                    "sources": sends,
                    "replicas": joins,
                    "collects": collects,
                    "command": str(folder / "run.sh"),
                }
            )
    made = FORMATS[format_]([Site(one["site"], Path(one["folder"])) for one in written], out, address)
    if as_json:
        emit_json({"exchange": address, "sites": written, "files": [str(path) for path in made]})
        return
    table(
        "Sites",
        ["site", "sources", "replicas", "collects", "command"],
        [(s["site"], s["sources"], s["replicas"], ", ".join(s["collects"]), s["command"]) for s in written],
    )
    for path in made:
        typer.echo(f"wrote {path}")
