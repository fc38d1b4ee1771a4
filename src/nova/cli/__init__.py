"""The `nova` command. Commands are imported when they run, so that `nova --help` answers at once."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module with a typer `app`, one line of help), in the order of a newcomer's way
    "init": ("nova.cli.init", "Write a small, commented scenario to start from."),
    "import": ("nova.cli.imports", "Nodes, latencies and rates from other tools: k8s, prometheus, consul, …"),
    "calibrate": ("nova.cli.calibrate", "Measure what this machine can take: a row for nodes.csv."),
    "schema": ("nova.cli.schema", "Print the JSON Schema of scenario files."),
    "plan": ("nova.cli.plan", "Decide where every join runs."),
    "evaluate": ("nova.cli.evaluate", "Figures of a plan: latency, load, traffic, gap to the bound."),
    "explain": ("nova.cli.explain", "Why a join or a node got what it got."),
    "show": ("nova.cli.show", "Draw a plan as HTML or PNG."),
    "reoptimize": ("nova.cli.reoptimize", "Events in, plan changes out."),
    "events": ("nova.cli.events", "Follow events durably: apply, log, replay."),
    "diff": ("nova.cli.diff", "What is different in another plan."),
    "drift": ("nova.cli.drift", "What planning again would gain and move."),
    "compare": ("nova.cli.compare", "All approaches on one scenario: one table, one picture."),
    "paper": ("nova_lab.cli.paper", "Run the paper's experiments again and write the report."),
    "simulate": ("nova.cli.simulate", "Run a plan through a queueing simulation: latency, throughput, backlog."),
    "run": ("nova.cli.run", "Run a plan's joins on Spark, live or over recorded data."),
    "deploy": ("nova.cli.deploy", "Cut a plan into what each site needs to run its share."),
    "showcase": ("nova_lab.cli.showcase", "Regional climate anomalies from end to end, Nova beside the baselines."),
    "measurements": ("nova.cli.measurements", "Raw ping results in, clean latencies and a report out (Spark)."),
    "data": ("nova.cli.data", "Public topologies and sensor archives: list, fetch, where."),
    "sensors": ("nova.cli.sensors", "Sensor archives in, clean streams with rates and a scenario out (Spark)."),
    "embed": ("nova.cli.embed", "Phase I alone: coordinates from latencies, with their accuracy."),
    "bench": ("nova_lab.cli.bench", "Measure Nova on this machine: ratios and gaps."),
}

MARKUP: Literal["markdown"] = "markdown"
"""Help texts of all commands are Markdown, so that brackets and code in them are left alone."""


class LazyGroup(TyperGroup):
    """A group that lists its commands from the table above, and imports a command only to run it.

    Until then each command is an empty one that carries its line of help. Errors that a user can act on become one
    message and an exit code here, never a traceback.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        from nova.extras import optional
        from nova.model.errors import NovaError

        try:
            with optional("this command"):
                return super().invoke(ctx)
        except NovaError as error:
            typer.echo(f"nova: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:  # a disk that is full, read-only or gone; what is no file's or disk's fault is raised
            if error.errno is None or error.errno == errno.EPIPE:
                raise
            where = f"{error.filename}: " if error.filename else ""
            typer.echo(f"nova: {where}{error.strerror}", err=True)
            raise typer.Exit(1) from error


def load_command(name: str) -> Any:
    """The command behind a module's typer app: one function becomes a plain command, several become a group."""
    from nova.extras import optional

    with optional(f"`nova {name}`"):
        app: typer.Typer = import_module(COMMANDS[name][0]).app
    app.rich_markup_mode = MARKUP
    command = typer.main.get_command(app)
    command.name = name
    command.params = [param for param in command.params if param.name not in ("install_completion", "show_completion")]
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
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
    """Entry point."""
    app(prog_name="nova")
