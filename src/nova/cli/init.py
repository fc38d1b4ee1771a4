"""`nova init`: a scenario to start from."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import typer

from nova.cli.output import JSON, emit_json

app = typer.Typer()


@app.command()
def command(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder to write into; made if it does not exist."),
    as_json: bool = JSON,
) -> None:
    """Write a small, commented scenario that plans and runs as it is: 12 nodes, two streams, one join.

    Nothing is overwritten: if one of the files is there already, nothing is written at all.

    Example: `nova init demo && nova plan demo/scenario.yaml -o demo/plan`
    """
    from nova.model.errors import Fault, InvalidInput

    template = {file.name: file.read_text("utf-8") for file in files("nova.scenario").joinpath("template").iterdir()}
    if folder.exists() and not folder.is_dir():
        raise InvalidInput([Fault(str(folder), "a file of this name is there already")])
    there = [folder / name for name in sorted(template) if (folder / name).exists()]
    if there:
        raise InvalidInput([Fault(str(path), "is there already; nothing is overwritten") for path in there])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sorted(template.items()):
        (folder / name).write_text(text, "utf-8")
    written = [str(folder / name) for name in sorted(template)]
    if as_json:
        emit_json({"written": written, "scenario": str(folder / "scenario.yaml")})
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"next: nova plan {folder / 'scenario.yaml'} -o {folder / 'plan'}")
