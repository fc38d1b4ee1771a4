"""The `nova` command. Commands are imported when they run, so that `nova --help` answers at once."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperGroup

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module with an `app` or a `command` function, one line of help), in the order of a newcomer's way
    "init": ("nova.cli.init", "Write a small, commented scenario to start from."),
    "schema": ("nova.cli.schema", "Print the JSON Schema of scenario files."),
    "plan": ("nova.cli.plan", "Decide where every join runs."),
    "evaluate": ("nova.cli.evaluate", "Figures of a plan: latency, load, traffic, gap to the bound."),
    "explain": ("nova.cli.explain", "Why a join or a node got what it got."),
    "show": ("nova.cli.show", "Draw a plan as HTML or PNG."),
    "embed": ("nova.cli.embed", "Phase I alone: coordinates from latencies, with their accuracy."),
}


class LazyGroup(TyperGroup):
    """A group that knows its commands' names and help, and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, help_line = COMMANDS[cmd_name]
        if getattr(ctx, "_listing", False):
            return click.Command(cmd_name, short_help=help_line, help=help_line)
        return _load(module, cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        ctx._listing = True  # type: ignore[attr-defined]  # help needs the lines of the table only
        super().format_help(ctx, formatter)


def _load(module: str, name: str) -> click.Command:
    """The click command behind a module's typer app; a single function becomes a plain command."""
    command: Any = typer.main.get_command(import_module(module).app)
    command.name = name
    return command  # type: ignore[no-any-return]


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Where does every stream join run, in how many replicas and on which part of each stream?",
    epilog="Start with: nova init demo && nova plan demo/scenario.yaml -o demo/plan",
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        import nova

        typer.echo(nova.__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: errors that a user can act on become one message and an exit code, never a traceback."""
    from nova.errors import NovaError

    try:
        app(prog_name="nova")
    except NovaError as error:
        print(f"nova: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
