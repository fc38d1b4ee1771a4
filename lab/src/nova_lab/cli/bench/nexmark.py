"""`nova bench nexmark`: the queries of NEXMark under a plan against the plain Spark job of each."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from nova.cli.output import JSON, emit_json, errors, progress, table
from nova.model.errors import Fault, InvalidInput


def nexmark(
    query: list[str] = typer.Option([], metavar="q0…q9", help="Only these queries."),
    events: int = typer.Option(20_000, min=100, help="Events of all streams in a batch."),
    seconds: float = typer.Option(2.0, min=0.1, help="Seconds of event time in a batch."),
    batches: int = typer.Option(3, min=1, help="Batches of each run that are counted, after three that are not."),
    cores: int = typer.Option(2, min=1, help="Cores for Spark."),
    as_json: bool = JSON,
) -> None:
    """Run NEXMark's queries 0 to 5 and 7 to 9 with sources spread over 100 nodes, planned, and as plain Spark jobs.

    Both read the same files, one a batch, in one Spark session, one after the other; `ratio` is the throughput under
    the plan over the plain job's. `rows_unlike_batch` counts rows that differ from Spark SQL in batch on the same
    events: 0, or something is wrong (exit code 3).

    Examples: `nova bench nexmark`, `nova bench nexmark --query q5 --query q8 --events 100000 --json`
    """
    from nova.spark.session import open_session
    from nova_lab.bench.nexmark import QUERIES, bench

    unknown = [name for name in query if name not in QUERIES]
    if unknown:
        message = f"the queries are {', '.join(QUERIES)}"
        raise InvalidInput([Fault("command line", message, field="--query", value=unknown[0])])
    shm = Path("/dev/shm")  # nosec B108
    with (
        tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="nova-bench-") as scratch,
        progress("starting Spark") as bar,
        open_session(f"local[{cores}]", name="nova bench nexmark", config={"spark.local.dir": scratch}) as spark,
    ):
        bar.update(bar.task_ids[0], description="measuring")
        figures = bench(
            spark,
            query or list(QUERIES),
            events_per_batch=events,
            batches=batches,
            batch_s=seconds,
            scratch=Path(scratch) / "nexmark",
            tell=bar.console.print if errors.is_terminal else lambda line: typer.echo(line, err=True),
        )
    if as_json:
        emit_json(figures)
    else:
        columns = [name for name in figures["queries"][0] if name != "query"]
        table(
            f"NEXMark on {figures['nodes']} nodes, throughput in tuples/s",
            ["query", *(name.replace("_", " ") for name in columns)],
            [(one["query"], *(one[name] for name in columns)) for one in figures["queries"]],
        )
    if any(one["rows_unlike_batch"] for one in figures["queries"]):
        raise typer.Exit(3)
