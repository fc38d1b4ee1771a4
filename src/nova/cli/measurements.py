"""`nova measurements`: raw ping results in, clean latencies out."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.options import UNIT, unit_in_ms
from nova.cli.output import JSON, emit_json, percent, progress, table, warn
from nova.model.errors import Fault, InvalidInput
from nova.model.units import DURATION, RTT, Quantity

if TYPE_CHECKING:
    from nova.spark.ingest.measurements.pipeline import Task

app = typer.Typer()

HEAVY_BYTES = 32 * 2**20
"""Input beyond this gets a JVM that is tuned for throughput instead of a quick start."""


@app.command()
def command(
    inputs: list[str] = typer.Argument(
        ...,
        metavar="INPUT…",
        help="Files, folders or globs of raw results: CSV, JSON "
        "lines, Parquet or RIPE Atlas result JSON, also compressed.",
    ),
    output: str = typer.Option(..., "-o", "--output", metavar="DIR", help="Folder for the tables and the report."),
    bucket: str = typer.Option("1h", help="Length of the time buckets, such as 10min, 1h or 1d."),
    zeros: str = typer.Option(
        "missing", help="What an RTT of 0 means: missing (quarantined) or floored (kept, raised to --floor)."
    ),
    floor: str = typer.Option("0.5ms", help="What a floored zero becomes."),
    max_rtt: str = typer.Option("60s", help="RTTs above this are absurd."),
    since: str | None = typer.Option(None, metavar="TIME", help="Earliest time that counts (ISO 8601; default 2000)."),
    until: str | None = typer.Option(None, metavar="TIME", help="Latest time that counts (default: a day from now)."),
    columns: str | None = typer.Option(
        None,
        metavar="PART=COLUMN,…",
        help="Which column is from, to, rtt, time, sequence or site, where their names do not say it.",
    ),
    unit: str = UNIT,
    nodes: str | None = typer.Option(None, metavar="FILE", help="Table of nodes; pings of others are quarantined."),
    follow: bool = typer.Option(
        False,
        "--follow",
        help="Keep taking in files that arrive in INPUT, one folder; embed the nodes and tell which ones moved.",
    ),
    once: bool = typer.Option(False, "--once", help="With --follow: take in what is there, then stop."),
    every: str = typer.Option("10s", help="With --follow: time between two looks into the folder."),
    moved_by: str = typer.Option("10ms", help="With --follow: how far a node has to move to be told."),
    seed: int = typer.Option(0, help="Of the report's samples, and of the embedding."),
    master: str | None = typer.Option(None, help="Address of a Spark cluster; without one, this machine."),
    as_json: bool = JSON,
) -> None:
    """Clean raw ping results on Spark: what cannot be right goes to a quarantine with its reason, file and line;
    duplicates are removed; the rest becomes figures per pair and time bucket, one RTT per pair, and a report.

    DIR gets `pairs/` (Parquet by day), `latency.parquet` (from, to, rtt_ms: a scenario's `latency`), `quarantine/`,
    `report.json` and `report.png`.

    With --follow DIR gets the same tables, kept up to date, and `coordinates.parquet` and `events.jsonl`: `node_moved`
    events as `nova reoptimize` takes them. Stopped or killed, it continues where it was; nothing is lost or doubled.

    Example: `nova measurements results/*.csv.gz -o clean --bucket 10min --zeros floored`
    """
    from nova.extras import require
    from nova.spark.session import open_session

    require("the report's picture", "matplotlib")
    if zeros not in ("missing", "floored"):
        raise InvalidInput([Fault("--zeros", "missing or floored expected", value=zeros)])
    unit_ms = unit_in_ms(unit)
    floor_ms, max_rtt_ms = _quantity(floor, "--floor", RTT), _quantity(max_rtt, "--max-rtt", RTT)
    bucket_ms = _quantity(bucket, "--bucket", DURATION)
    earliest = datetime(2000, 1, 1, tzinfo=UTC) if since is None else _time(since, "--since")
    latest = None if until is None else _time(until, "--until")
    if follow:
        if len(inputs) != 1 or not Path(inputs[0]).is_dir():
            raise InvalidInput([Fault("--follow", "one folder as INPUT expected", value=" ".join(inputs))])
        every_ms, moved_ms = _quantity(every, "--every", DURATION), _quantity(moved_by, "--moved-by", RTT)
    with progress("starting Spark") as bar:
        bar_task = bar.task_ids[0]
        heavy = follow or stored_bytes(inputs) > HEAVY_BYTES
        with open_session(master, name="nova measurements", heavy=heavy) as spark:
            from nova.spark.ingest.measurements.columns import chosen
            from nova.spark.ingest.measurements.pipeline import Task, measurements
            from nova.spark.ingest.measurements.validate import Rules, Zeros

            meaning: Zeros = "floored" if zeros == "floored" else "missing"
            rules = Rules(meaning, floor_ms, max_rtt_ms, earliest, latest, unit_ms)
            task = Task(inputs, output, bucket_ms, rules, chosen(columns), nodes, seed)
            if follow:
                bar.stop()
                _follow(spark, task, moved_ms, every_ms / 1000, once, as_json)
                return
            report = measurements(spark, task, lambda step: bar.update(bar_task, description=step))
    if as_json:
        emit_json(report | {"output": output})
    else:
        show(report, output)


def show(report: dict[str, Any], output: str) -> None:
    """Print the report as tables."""
    rows, coverage, loss = report["rows"], report["coverage"], report["loss"]
    kinds = [("good", rows["good"]), ("duplicates", rows["duplicates"]), *rows["quarantined"].items()]
    table(
        f"{rows['rows']:,} rows",
        ("went to", "rows", "share (%)"),
        [(kind, count, 100.0 * count / max(1, rows["rows"])) for kind, count in kinds],
    )
    asymmetry = report["asymmetry"]
    table(
        "what was measured",
        ("figure", "value"),
        [
            ("nodes", coverage["nodes"]),
            ("pairs", coverage["pairs"]),
            ("coverage of all pairs (%)", percent(coverage["share"])),
            ("neighbours of a node, least", coverage["neighbours_least"]),
            ("neighbours of a node, median", coverage["neighbours_median"]),
            ("time buckets", coverage["buckets"]),
            ("from", coverage["first"]),
            ("to", coverage["last"]),
            ("RTT, median over pairs and buckets (ms)", report["rtt_ms"]["p50"]),
            ("RTT, 99th percentile (ms)", report["rtt_ms"]["p99"]),
            ("jitter, median (ms)", report["jitter_ms"]["p50"]),
            ("lost pings (%)", percent(loss["share"])),
            ("measured both ways (pairs × buckets)", asymmetry["pair_buckets_both_ways"]),
            ("asymmetry, median (%)", percent(asymmetry["p50"])),
            ("asymmetry, 90th percentile (%)", percent(asymmetry["p90"])),
            ("triangle violations on a sample (%)", percent(report["triangles"]["tiv_share"])),
        ],
    )
    typer.echo(f"tables, report.json and report.png are in {output}")


def _follow(spark: Any, task: Task, moved_ms: float, every_s: float, once: bool, as_json: bool) -> None:
    """Follow the folder until it is stopped; a line (with --json a JSON document) per batch."""
    from nova.model.options import Options
    from nova.spark.ingest.measurements.follow import Following, follow

    def tell(figures: dict[str, Any]) -> None:
        if as_json:
            typer.echo(json.dumps(figures))
            return
        bad = sum(figures.get("quarantined", {}).values())
        typer.echo(
            f"batch {figures['batch']}: {figures['files']} files, {figures.get('good', 0):,} good rows, "
            f"{bad:,} quarantined, {figures['changed_pairs']:,} pairs changed, {figures['placed']:,} nodes "
            f"placed, {figures['moved']:,} moved ({figures['seconds']:.1f} s)"
        )
        for name in figures["unknown_files"]:
            warn([f"{name}: unknown ending, passed over"])

    query = follow(spark, Following(task, Options(seed=task.seed), moved_ms, every_s, once), tell)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: query.stop())
    query.awaitTermination()


def stored_bytes(inputs: list[str]) -> int:
    """Bytes of the inputs as far as they lie on this machine."""
    found = [Path(path) for given in inputs for path in (glob(given) or [given])]
    files = [file for path in found for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.stat().st_size for file in files if file.is_file())


def _quantity(text: str, option: str, quantity: Quantity) -> float:
    """A positive number of milliseconds."""
    try:
        value = quantity.parse(text)
    except ValueError as error:
        raise InvalidInput([Fault(option, str(error), value=text)]) from None
    if not 0 < value < float("inf"):
        raise InvalidInput([Fault(option, "more than zero expected", value=text)])
    return value


def _time(text: str, option: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            [Fault(option, "a time such as 2025-03-01 or 2025-03-01T12:00:00 expected", value=text)]
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
