"""`nova run`: the plan at work, on Spark."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nova.cli.options import milliseconds
from nova.cli.output import JSON, emit_json, percent, progress, table, warn
from nova.model.errors import Fault, InvalidInput, NovaError

if TYPE_CHECKING:
    from nova.model.plan import Plan
    from nova.scenario import Scenario
    from nova.spark.job.run import Settings
    from nova.spark.sites.site import Site

app = typer.Typer()


@app.command()
def command(
    scenario: Path = typer.Argument(..., metavar="SCENARIO", help="Scenario file with an `input` for each stream."),
    plan: Path | None = typer.Option(None, help="Folder of a plan made for it; without one, nova plans first."),
    out: Path = typer.Option(
        Path("out/run"),
        "-o",
        "--out",
        metavar="DIR",
        help="Folder of the run: checkpoint, plans, results. The same folder again continues.",
    ),
    fresh: bool = typer.Option(False, "--fresh", help="Forget an earlier run in the folder, and its results."),
    until_end: bool = typer.Option(False, "--until-end", help="Stop at the end of the input."),
    duration: str | None = typer.Option(None, help="Stop so long after the first tuple, such as 30s or 10min."),
    mode: str | None = typer.Option(
        None,
        metavar="realtime|batch",
        help="Tuple by tuple, with results after milliseconds, or batch by batch, which takes more tuples a second. "
        "Without it: realtime where it can serve.",
    ),
    every: str = typer.Option(
        "0ms",
        help="Time between batches, such as 500ms; 0ms: as fast as possible. In real time: between checkpoints; "
        "0ms: 120s.",
    ),
    lateness: str = typer.Option("10s", help="Tuples up to this late are never dropped."),
    speed: float | None = typer.Option(None, help="Replay recorded files at this multiple of their own speed."),
    to: str = typer.Option(
        "parquet",
        metavar="FORMAT[:TARGET]",
        help="Where results go: parquet, json or a folder after a colon; console; "
        "mqtt://host:1883/topic, mqtts://…; kafka://host:9092/topic; any format that Spark writes.",
    ),
    to_option: list[str] = typer.Option([], "--to-option", metavar="NAME=VALUE", help="Options of the sink format."),
    approach: str = typer.Option("nova", help="Who plans where no plan is given: nova, or a baseline such as sink."),
    emulate: bool = typer.Option(
        False,
        "--emulate",
        help="Follow all tuples through hosts of the scenario's capacity "
        "and links of its latency; the report compares with the simulation.",
    ),
    replan: Path | None = typer.Option(
        None,
        metavar="PLAN",
        help="Hand this new plan, or this file of changes as `nova reoptimize` prints "
        "them, to the run in the folder of -o, and return.",
    ),
    watch: Path | None = typer.Option(
        None,
        metavar="EVENTS",
        help="Follow this file of events, one JSON line each, while it grows: each makes "
        "the run switch plans at the next window where that is better.",
    ),
    site: str | None = typer.Option(
        None,
        metavar="NODE",
        help="Run only what this node hosts; SCENARIO may then be the folder that `nova deploy` wrote for it.",
    ),
    exchange: str | None = typer.Option(
        None, metavar="ADDRESS", help="With --site: a folder that all sites see, mqtt(s)://… or kafka://host/prefix."
    ),
    give_up_after: str | None = typer.Option(
        None,
        metavar="TIME",
        help="With --site: go on without a site that has not been heard of for this long, such as 10min; it is refused "
        "when it returns. Without it, sites wait.",
    ),
    master: str | None = typer.Option(None, help="Address of a Spark cluster; without one, this machine."),
    packages: str | None = typer.Option(
        None, metavar="MAVEN", help="Maven packages for Spark, with commas, such as those of an input's format."
    ),
    conf: list[str] = typer.Option([], "--conf", metavar="NAME=VALUE", help="Settings of Spark."),
    ui: bool = typer.Option(False, "--ui", help="Show Spark's own pages, on this machine only."),
    log: Path | None = typer.Option(None, metavar="FILE", help="Write Spark's log to this file."),
    metrics: str | None = typer.Option(
        None,
        metavar="FILE|[HOST:]PORT",
        help="Tell figures of the run to Prometheus: in a file, or on a port (of this machine alone without HOST).",
    ),
    as_json: bool = JSON,
) -> None:
    """Run the queries of SCENARIO on Spark: every tuple goes only to the replicas that need it, each replica joins its
    share, and the results equal those of the plain join.

    Without --duration or --until-end it runs until Ctrl-C. A run that was stopped or killed continues where it was
    when it is started again with the same folder; no result is lost or doubled.

    In real time (--mode realtime, the default where inputs and sink allow it) results are out milliseconds after their
    tuples; in batches (--mode batch) after about a second, but more tuples a second fit.

    With --watch a host that fails, as an event says, is replaced from the next window on; --replan hands a run that is
    under way a new plan. With --site only one node's share runs, as `nova deploy` prepares it: see docs/howto/sites.md.

    With --emulate the report says what hosts of the scenario's capacities would make of it: latency, throughput and
    backlog, beside what `nova simulate` predicts. Results stay complete.

    Example: `nova run demo/scenario.yaml --plan demo/plan -o demo/run --duration 30s`
    """
    if replan is not None:
        _hand_in(scenario, replan, out, as_json)
        return
    from nova.spark.job.run import Run, Settings
    from nova.spark.realtime.inputs import Unfit
    from nova.spark.realtime.run import RealtimeRun, slots
    from nova.spark.session import notices, session, to_the_end

    spark_settings = dict(_pair(setting, "--conf") for setting in conf)
    if packages is not None:
        spark_settings["spark.jars.packages"] = _packages(packages)
    sink, target = _sink(to)
    settings = Settings(
        folder=out,
        until_end=until_end,
        duration_s=None if duration is None else milliseconds(duration, "--duration") / 1000,
        every_ms=round(milliseconds(every, "--every")),
        lateness_ms=round(milliseconds(lateness, "--lateness")),
        format=sink,
        target=target,
        options=dict(_pair(option, "--to-option") for option in to_option),
        speed=speed,
        emulate=emulate,
        watch=watch,
        give_up_s=None if give_up_after is None else milliseconds(give_up_after, "--give-up-after") / 1000,
    )
    if fresh:
        _forget(out)
    _check_folder(out)
    if site is not None:
        asked = (("--watch", watch), ("--emulate", emulate), ("--mode", mode == "realtime"))
        unfit = [name for name, value in asked if value]
        if unfit:
            raise InvalidInput(
                [Fault("command line", "is for whole runs, not for a site", field=name) for name in unfit]
            )
        _run_site(scenario, plan, site, exchange, master, settings, spark_settings, ui, log, metrics, as_json)
        return
    loaded, chosen = _open(scenario, plan, out, approach)
    realtime = _in_real_time(mode, loaded, settings, master)
    with progress("starting Spark"):
        spark = session(
            master,
            name="nova run",
            slots=slots(loaded) if realtime else None,
            ui=ui,
            log=log,
            config=spark_settings,
        )
    warn(notices(spark))
    with to_the_end(spark):
        run: Run = (RealtimeRun if realtime else Run)(spark, loaded, chosen, settings)
        _stop_on_signals(lambda: run.stop())
        from nova.cli.display import Display
        from nova.spark.job.exporter import Figures, exporter

        with exporter(metrics) as export, Display() as display:
            try:
                run.start()
            except Unfit as why:
                if mode is not None:
                    raise
                warn([f"runs in batches: {why}"])
                run = Run(spark, loaded, chosen, settings)
                run.start()

            def figures() -> Figures:
                return [each.meter for each in run.running], run.began, len(run.warnings())

            def observe(one: Run) -> None:
                display(one)
                export(figures)

            run.wait(observe)
            export(figures, now=True)
        report = run.report()
    if as_json:
        emit_json(report)
    else:
        _print(report)
    warn([f"a plan was not taken up: {told}" for told in report["rejected_plans"]])
    if report["events"] is not None:
        warn(report["events"]["refused"])
        warn([f"does not run: {told}" for told in report["events"]["waiting"]])


def _in_real_time(mode: str | None, scenario: Scenario, settings: Settings, master: str | None) -> bool:
    """Whether to run tuple by tuple: as asked, as the run that is continued did, or where that can serve. Where it
    cannot, say why."""
    from nova.spark.job.folder import RunFolder
    from nova.spark.realtime.run import why_not

    if mode not in (None, "realtime", "batch"):
        raise InvalidInput([Fault("command line", "there are realtime and batch", field="--mode", value=mode)])
    mode = mode or RunFolder(settings.folder).mode()
    if mode == "batch":
        return False
    why = why_not(scenario, settings, master)
    if why is not None and mode == "realtime":
        raise InvalidInput([Fault("command line", f"{why}: run it with --mode batch", field="--mode", value=mode)])
    if why is not None:
        warn([f"runs in batches: {why}"])
    return why is None


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Ctrl-C and SIGTERM end the run in order."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop())


def _run_site(
    scenario: Path,
    plan: Path | None,
    node: str,
    exchange: str | None,
    master: str | None,
    settings: Settings,
    spark_settings: Mapping[str, str],
    ui: bool,
    log: Path | None,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Run one site: from its own folder, or from the whole scenario and plan."""
    from nova.spark.job.exporter import exporter
    from nova.spark.session import notices, session, to_the_end
    from nova.spark.sites import share as shares
    from nova.spark.sites.deploy import shares as cut
    from nova.spark.sites.exchange import open_exchange
    from nova.spark.sites.site import Site, claimed

    mine: shares.Share | None = None
    if scenario.is_dir():
        mine = shares.read(scenario)
        if mine.site != node:
            raise InvalidInput([Fault(str(scenario), f"is the share of {mine.site}", field="--site", value=node)])
        config, digest, exchange = dict(mine.settled.spark), mine.digest, exchange or mine.settled.exchange
    else:
        if plan is None or exchange is None:
            raise InvalidInput(
                [
                    Fault(
                        "command line",
                        "a site needs a plan and an exchange that all sites share",
                        field="--plan" if plan is None else "--exchange",
                    )
                ]
            )
        loaded, chosen = _open(scenario, plan, settings.folder, "nova")
        row = shares.node_row(loaded.problem, node, str(scenario))
        config, digest = dict(shares.SMALL_SPARK), loaded.problem.digest
    with ExitStack() as stack:
        way = open_exchange(exchange, settings.folder)
        presence = stack.enter_context(claimed(node, digest, settings.folder, way))
        with progress("starting Spark"):
            address = master or config.pop("spark.master", None)
            config |= dict(spark_settings)
            spark = session(address, name=f"nova site {node}", ui=ui, log=log, config=config)
        warn(notices(spark))
        stack.enter_context(to_the_end(spark))
        if mine is None:
            found = list(cut(spark, loaded, chosen, shares.Settled(exchange, settings.lateness_ms), row))
            if not found:
                raise InvalidInput([Fault(str(plan), "gives this node nothing to do", field="--site", value=node)])
            mine = found[0]
        running = Site(spark, mine, settings, way, presence)
        _stop_on_signals(running.stop)
        told = _Told()
        with exporter(metrics) as export:
            running.start()

            def observe(one: Site) -> None:
                told(one)
                export(lambda: (one.meters.values(), one.began, len(one.waiting())))

            running.wait(observe)
            export(lambda: (running.meters.values(), running.began, 0), now=True)
        report = running.report()
    if as_json:
        emit_json(report)
        return
    table(
        f"Site {node}",
        ["query", "tuples", "results", "batches"],
        [(q["query"], sum(q["tuples"].values()), q["results"], q["batches"]) for q in report["queries"]],
    )
    for lost in report["given_up"]:
        warn([f"went on without site {lost['site']}, given up by {lost['by']}: missing {', '.join(lost['missing'])}"])
    typer.echo(f"checkpoint and results are in {report['folder']}")


class _Told:
    """Says once, and again whenever the time has doubled, for whom a site waits; and whom it has given up."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.lost: set[str] = set()

    def __call__(self, site: Site) -> None:
        waiting = site.waiting()
        for name, seconds in waiting.items():
            if seconds >= 2 * self.at.get(name, 0.0):
                self.at[name] = seconds
                warn([f"waiting for site {name}: not heard of for {seconds:.0f} s"])
        for name in [name for name in self.at if name not in waiting]:
            del self.at[name]
            if name not in site.lost:
                typer.echo(f"site {name} is heard of again", err=True)
        for name in site.lost - self.lost:
            self.lost.add(name)
            warn([f"goes on without site {name}"])


def _open(scenario: Path, folder: Path | None, out: Path, approach: str) -> tuple[Scenario, Plan]:
    """The scenario and its plan: the one named, the one of the run that is continued, or a new one."""
    from nova.cli.opening import open_plan

    first = out / "plans" / "00000"
    if folder is None and (first / "plan.json").exists():
        folder = first
    if folder is not None:
        opened = open_plan(scenario, folder)
        return opened.scenario, opened.plan
    from nova.scenario import load

    with progress("planning"):
        loaded = load(scenario)
        planned = planned_by(approach, loaded)
    warn(loaded.warnings)
    return loaded, planned


def planned_by(approach: str, scenario: Scenario) -> Plan:
    """The scenario's plan by Nova or by a baseline, which may overload nodes."""
    if approach == "nova":
        from nova.optimizer import optimize

        return optimize(scenario.problem, scenario.options)
    from nova.evaluation.approaches import check_names, embedded, run

    check_names([approach])
    problem, space = embedded(scenario.problem, scenario.options)
    return run(approach, problem, space, scenario.options)[0].plan


def _hand_in(scenario: Path, folder: Path, out: Path, as_json: bool) -> None:
    from nova.cli.opening import open_plan
    from nova.scenario import load
    from nova.spark.replan.handover import hand_in

    loaded = open_plan(scenario, folder).scenario if folder.is_dir() else load(scenario)
    names = hand_in(folder, out, loaded.problem)
    if as_json:
        emit_json({"folder": str(out), "plans": names})
    else:
        typer.echo(f"handed in as plan {', '.join(names)}: the run takes it up with its next batch")


def _check_folder(out: Path) -> None:
    """Say that a run's folder cannot be written to before Spark starts."""
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise NovaError(f"{out}: the folder of the run cannot be written to")


def _forget(out: Path) -> None:
    """Delete an earlier run; refuse a folder that is something else."""
    if out.exists() and any(out.iterdir()) and not (out / "run.json").exists():
        raise InvalidInput([Fault(str(out), "is a folder with other things than a run: it is not deleted")])
    shutil.rmtree(out, ignore_errors=True)


def _sink(to: str) -> tuple[str, str | None]:
    """Format and target of `--to`."""
    if "://" in to and not to.split("://")[0].count(":"):
        return {"mqtts": "mqtt"}.get(to.split("://")[0], to.split("://")[0]), to
    name, _, target = to.partition(":")
    return name, target or None


def _packages(text: str) -> str:
    """Maven coordinates as Spark wants them."""
    each = [part.strip() for part in text.split(",")]
    for one in each:
        if not re.fullmatch(r"[\w.-]+(:[\w.-]+){2}", one):
            wanted = "GROUP:NAME:VERSION expected, several with commas"
            raise InvalidInput([Fault("command line", wanted, field="--packages", value=one)])
    return ",".join(each)


def _pair(option: str, field: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals:
        raise InvalidInput([Fault("command line", "NAME=VALUE expected", field=field, value=option)])
    return name, value


def _print(report: dict[str, Any]) -> None:
    from nova.cli.display import SHOWN, latencies

    table(
        "Run",
        ["", "value"],
        [
            ("mode", report["mode"]),
            ("seconds", report["seconds"]),
            (
                "first result after, s",
                min((q["first_result_s"] for q in report["queries"] if q["first_result_s"]), default=None),
            ),
            ("tuples", report["tuples"]),
            ("tuples/s", report["tuples_per_s"]),
            ("results", report["results"]),
            ("results/s", report["results_per_s"]),
            ("late tuples", report["late_tuples"]),
            *((f"dead letters: {reason}", count) for reason, count in sorted(report["dead_letters"].items())),
        ],
    )
    table(
        "Event to sink, ms",
        ["query", "", *SHOWN],
        [line for q in report["queries"] for line in latencies(q["query"], q["latency_ms"], q["stages_ms"])],
    )
    table(
        "Event time",
        ["query", "latency is counted from", "watermark"],
        [
            (
                q["query"],
                q["latency_clock"] or "nothing: files are read as they come; --speed gives a time",
                q["watermark"],
            )
            for q in report["queries"]
        ],
    )
    merging = any(h["merged"] for h in report["hosts"])
    table(
        "Hosts, tuples/s",
        ["node", "measured", "planned", "capacity", "used %", "planned %", "results", *["merged partials"] * merging],
        [
            (
                h["node"],
                h["tuples_per_s"],
                h["planned_tuples_per_s"],
                h["capacity"],
                percent(h["utilisation"]),
                percent(h["planned_utilisation"]),
                h["results"],
                *[h["merged"]] * merging,
            )
            for h in report["hosts"]
        ],
    )
    if report["emulation"] is not None:
        _print_emulation(report["emulation"])
    typer.echo(f"results and checkpoint are in {report['folder']}")
    if report["dead_letters"]:
        typer.echo(
            f"tuples that could not be used, with reason, place and text, are in {report['folder']}/dead-letters"
        )


def _median_and_99th(percentiles: Mapping[str, float] | None) -> str | None:
    """In a cell; None where no result has come that far."""
    return None if percentiles is None else f"{percentiles['p50']:.3g}, {percentiles['p99']:.3g}"


def _print_emulation(told: dict[str, Any]) -> None:
    table(
        f"Emulated hosts and links over {told['duration_s']:.0f} s, and what the simulation predicts",
        ["", "emulated", "predicted"],
        [(row["figure"], row["emulated"], row["predicted"]) for row in told["compared"]],
    )
    predicted = {node["node"]: node for node in told["predicted"]["nodes"]}
    table(
        "Emulated hosts",
        ["node", "offered %", "predicted %", "queue at the end", "predicted", "longest queue"],
        [
            (
                n["node"],
                100 * n["offered"],
                percent(predicted.get(n["node"], {}).get("offered")),
                n["backlog"],
                predicted.get(n["node"], {}).get("backlog"),
                n["peak_backlog"],
            )
            for n in told["nodes"]
        ],
    )
