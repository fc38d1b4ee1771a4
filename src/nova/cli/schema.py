"""`nova schema`: the JSON Schema of scenario files."""

from __future__ import annotations

import typer

from nova.cli.output import emit_json

app = typer.Typer()


@app.command()
def command(
    as_json: bool = typer.Option(True, "--json", help="Print JSON: a schema is nothing else, so this is always on."),
) -> None:
    """Print the JSON Schema of scenario files, for editors and other tools.

    Example: `nova schema > scenario.schema.json`
    """
    from nova.scenario import schema

    assert as_json
    emit_json(schema())
