"""`nova bench stream`: the routed job against the plain Spark join of the same streams."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from nova.cli.output import JSON, emit_json, errors, progress, table
from nova.model.errors import Fault, InvalidInput

INTERVALS_MS = [0, 200, 500, 1000, 2000, 5000]
"""Times between batches that are measured unless others are asked for."""


def stream(
    mode: str = typer.Option(
        "batch",
        metavar="batch|realtime",
        help="batch: the micro-batch job; realtime: Spark's real-time mode beside it.",
    ),
    rounds: int = typer.Option(2, min=1, help="Runs of each job; they take turns."),
    batches: int = typer.Option(10, min=1, help="Batches of each run that are counted."),
    saturated: float = typer.Option(20.0, min=1.0, help="Seconds of the streams in one batch at saturation."),
    live: float = typer.Option(20.0, min=0.0, help="Seconds of each live run; 0: none."),
    every: list[int] = typer.Option(
        INTERVALS_MS, help="Time between batches of the live runs in ms; 0: as fast as possible."
    ),
    soak: float = typer.Option(
        0.0,
        min=0.0,
        metavar="MINUTES",
        help="Only this: so many minutes live at full rate, with state, memory and times over time, in either mode.",
    ),
    short: bool = typer.Option(
        False, "--short", help="With --mode realtime: the same figures from shorter runs, in about two minutes."
    ),
    rate: float = typer.Option(1000.0, min=1.0, help="Tuples/s of each of the 8 sensors."),
    window: float = typer.Option(1000.0, min=0.001, help="Length of the windows in ms."),
    cores: int = typer.Option(2, min=1, help="Cores for Spark."),
    as_json: bool = JSON,
) -> None:
    """Measure how many tuples a second the job of a plan takes, and the plain Spark stream-stream join beside it.

    Both read the same files and write Parquet, in one Spark session, taking turns; `ratio` is routed over plain at
    saturation. Live runs take the sensors at the given rate and tell the latency from event to sink, and the time from
    the start of the job to its first result, for several times between batches. A soak tells whether state, memory and
    latency stay bounded.

    With --mode realtime the figures are those of Spark's real-time mode: latency and its parts at the given rate, with
    the embedded source and from Kafka to Kafka (`kafka`, stamped outside Spark; null without Kafka's jars), the highest
    rate whose 99th percentile stays below 250 ms (`sustained_tuples_per_s`), tuples a second from full logs, how long a
    checkpoint holds tuples up (the runs for latency end before the first one); and, in the same session, the
    micro-batch job and the plain join. Each figure is told as soon as it is measured.

    Examples: `nova bench stream --every 0 --every 1000 --every 5000 --json`,
    `nova bench stream --mode realtime --short --json`
    """
    from nova.spark.session import open_session
    from nova_lab.bench.live import soak as soak_in_batches
    from nova_lab.bench.realtime import SESSION_SLOTS, SHORT, WHOLE
    from nova_lab.bench.realtime import bench as bench_realtime
    from nova_lab.bench.realtime import soak as soak_in_real_time
    from nova_lab.bench.stream import Workload, bench, prepare

    if mode not in ("batch", "realtime"):
        raise InvalidInput([Fault("command line", "there are batch and realtime", field="--mode", value=mode)])
    realtime = mode == "realtime"
    shm = Path("/dev/shm")  # nosec B108
    work = Workload(rate=rate, window_ms=window)
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="nova-bench-") as scratch:
        began = time.perf_counter()
        with (
            progress("starting Spark") as bar,
            open_session(
                f"local[{cores}]",
                name="nova bench stream",
                slots=SESSION_SLOTS if realtime else None,
                config={"spark.local.dir": scratch},
            ) as spark,
        ):
            session_s = time.perf_counter() - began
            bar.update(bar.task_ids[0], description="measuring")
            if soak > 0:

                def tell(point: dict[str, Any]) -> None:
                    said = ", ".join(f"{name} {value:,.0f}" for name, value in point.items() if value is not None)
                    bar.update(bar.task_ids[0], description=said)
                    if not errors.is_terminal and not as_json:
                        typer.echo(said, err=True)

                soaked = soak_in_real_time if realtime else soak_in_batches
                figures = soaked(spark, work, prepare(spark, work), seconds=60 * soak, scratch=Path(scratch), tell=tell)
                figures |= {"plain_tuples_per_s": None, "ratio": None}
            elif realtime:
                figures = bench_realtime(
                    spark,
                    work,
                    SHORT if short else replace(WHOLE, live_s=live or WHOLE.live_s),
                    rounds=1 if short else rounds,
                    batches=min(batches, 4) if short else batches,
                    saturated_s=min(saturated, 10.0) if short else saturated,
                    scratch=Path(scratch),
                    tell=bar.console.print if errors.is_terminal else lambda line: typer.echo(line, err=True),
                ) | {"session_s": session_s}
            else:
                figures = bench(
                    spark,
                    work,
                    rounds=rounds,
                    batches=batches,
                    saturated_s=saturated,
                    live_s=live,
                    intervals_ms=every if live > 0 else [],
                    scratch=Path(scratch),
                ) | {"session_s": session_s}
    if as_json:
        emit_json(figures)
    elif soak > 0:
        _print_soak(figures, realtime)
    elif realtime:
        _print_realtime(figures)
    else:
        _print(figures)


def _print(figures: dict[str, Any]) -> None:
    table(
        "Throughput, tuples/s",
        ["tuples a batch", "routed", "plain Spark join", "ratio"],
        [
            (part["tuples_per_batch"], part["tuples_per_s"], part["plain_tuples_per_s"], part["ratio"])
            for part in (figures["usual"], figures["saturated"])
        ],
    )
    if figures["live"]:
        table(
            f"Live; the session started in {figures['session_s']:.1f} s before",
            ["batch every, ms", "latency p50, ms", "p99, ms", "first result after, s", "batch takes, ms"],
            [
                (
                    run["every_ms"],
                    (run["latency_ms"] or {}).get("p50"),
                    (run["latency_ms"] or {}).get("p99"),
                    run["first_result_s"],
                    (run["batch_ms"] or {}).get("p50"),
                )
                for run in figures["live"]
            ],
        )


def _print_realtime(figures: dict[str, Any]) -> None:
    shown = ("p50", "p90", "p99", "p99.99", "max")
    table(
        f"Real time: event to sink, ms, after {figures['warm_up_s']:.0f} s of warm-up",
        ["source", "tuples/s", "kept up with", *shown],
        [
            (source, one["rate"], one["tuples_per_s"], *((one["latency_ms"] or {}).get(p) for p in shown))
            for source, runs in (("embedded", figures["rates"]), ("Kafka to Kafka", [figures["kafka"]]))
            for one in runs
            if one is not None
        ],
    )
    table(
        f"Of that at {figures['rates'][0]['rate']:,.0f} tuples/s, ms",
        ["", "median", "99th percentile"],
        [(stage, (told or {}).get("p50"), (told or {}).get("p99")) for stage, told in figures["stages_ms"].items()],
    )
    table(
        "Throughput, tuples/s",
        [
            "real time, full logs",
            "real time, p99 < 250 ms",
            "micro-batch",
            "plain Spark join",
            "a checkpoint takes, ms",
        ],
        [
            (
                figures["tuples_per_s"],
                figures["sustained_tuples_per_s"],
                figures["batch"]["tuples_per_s"],
                figures["plain_tuples_per_s"],
                figures["checkpoint"]["holds_up_ms"],
            )
        ],
    )


def _print_soak(figures: dict[str, Any], realtime: bool) -> None:
    from nova_lab.bench import live
    from nova_lab.bench import realtime as real_time

    table(
        f"{figures['minutes']:.1f} minutes at {figures['tuples_per_s']:,.0f} tuples/s, {figures['results']:,} results",
        ["", "second quarter", "last quarter", "most"],
        [(name, *(figures[name] or {}).values()) for name in (real_time if realtime else live).BOUNDED],
    )
