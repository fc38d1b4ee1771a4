"""`nova events`: a plan that follows events through crashes."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

import typer

from nova.cli import MARKUP
from nova.cli.changes import HYSTERESIS, JITTER, MIGRATION, change_row, stability_of, write_running
from nova.cli.opening import open_plan
from nova.cli.output import JSON, emit_json, progress, table, unkept, warn
from nova.cli.reoptimize import lines_of, name_of, waiting_text

if TYPE_CHECKING:
    from nova.journal.store import Outcome, Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    help="Follow events durably: apply them, list them, replay them.",
)
STATE = typer.Argument(..., metavar="STATE", help="Folder that holds the plan's state and journal.")
GROUP = 256
"""Steps at most that one fsync makes durable."""


@app.callback()
def _group() -> None:
    """Let a plan follow events, and lose none of them: a journal, snapshots, replay. See docs/reference/events.md."""


@app.command()
def apply(
    state: Path = STATE,
    events: Path = typer.Argument(Path("-"), metavar="EVENTS", help="Events, one JSON line a step; - is stdin."),
    scenario: Path | None = typer.Option(
        None, "--scenario", "-s", metavar="SCENARIO", help="With --plan: make STATE from these if it is not there."
    ),
    plan: Path | None = typer.Option(None, "--plan", "-p", metavar="PLAN", help="The plan that runs."),
    client: str | None = typer.Option(
        None,
        "--client",
        metavar="NAME",
        help="Number the lines for this client: lines that were applied before are passed over.",
    ),
    jitter_ms: float | None = JITTER,
    migration_ms: float | None = MIGRATION,
    hysteresis: float | None = HYSTERESIS,
    as_json: bool = JSON,
) -> None:
    """Apply events to the plan in STATE, and print the changes of each once its events are on the disk.

    What is printed is durable: killed at any moment, the next call goes on behind the last line it printed, or a little
    further. With --client NAME (or `client` and `number` in the lines) the same lines can be given again after a crash:
    those that were applied before are answered as repeated, and not applied twice. At the first line that is wrong the
    command stops with exit code 2; the lines before it are applied. The plan and its scenario are written to
    STATE/current at the end. With --json: one JSON line for each step, and one at the end.

    Examples:

    `nova events apply state events.jsonl --scenario demo/scenario.yaml --plan demo/plan --client ops`

    `tail -f feed.jsonl | nova events apply state`
    """
    from nova.controller.codec import parse_steps
    from nova.journal.identity import MARKER
    from nova.model.errors import InvalidInput

    if not (state / MARKER).exists():
        _create(state, scenario, plan, jitter_ms, migration_ms, hysteresis)
    from nova.journal.store import Store

    with progress("opening"):
        store = Store(state)
    with store:
        warn(store.warnings)
        _same_origin(
            store, scenario, plan, {"jitter_ms": jitter_ms, "migration_ms": migration_ms, "hysteresis": hysteresis}
        )
        printer = _Printer(as_json)

        def commit() -> None:
            printer.show(store.commit())
            if store.snapshot_due:
                _snapshot(store)

        wrong: InvalidInput | KeyboardInterrupt | None = None
        lines = _live(commit) if str(events) == "-" else lines_of(events)
        try:
            for count, step in enumerate(parse_steps(lines, name_of(events), client), 1):
                store.submit(step)
                if count % GROUP == 0:
                    commit()
        except InvalidInput as error:
            wrong = error
        except KeyboardInterrupt as error:
            if not store.usable:
                raise
            wrong = error
        commit()
        printer.end(store, store.export())
        if wrong is not None:
            raise wrong


def _create(
    state: Path,
    scenario: Path | None,
    plan: Path | None,
    jitter_ms: float | None,
    migration_ms: float | None,
    hysteresis: float | None,
) -> None:
    from nova.model.errors import Fault, InvalidInput

    if scenario is None or plan is None:
        raise InvalidInput([Fault(str(state), "not a folder of events; make it with --scenario SCENARIO --plan PLAN")])
    opened = open_plan(scenario, plan)
    from nova.controller import Controller
    from nova.controller.export import inputs_of
    from nova.journal.store import Store

    with progress("making the folder"):
        stability = stability_of(jitter_ms, migration_ms, hysteresis)
        running = Controller.from_plan(opened.scenario.problem, opened.plan, stability)
        Store.create(
            state,
            running,
            {
                "scenario": str(scenario.resolve()),
                "plan": str(plan.resolve()),
                "stability": stability.as_dict(),
                "inputs": inputs_of(opened.scenario),
            },
        )


def _same_origin(store: Store, scenario: Path | None, plan: Path | None, stability: dict[str, float | None]) -> None:
    """The same command may be given again after a crash; another origin is a mistake."""
    from nova.model.errors import Fault, InvalidInput

    about = store.identity.about
    given = {"scenario": scenario and str(scenario.resolve()), "plan": plan and str(plan.resolve()), **stability}
    known = {**about, **about.get("stability", {})}
    faults = [
        Fault(str(store.folder), f"was made with {known[name]}", field=name, value=value)
        for name, value in given.items()
        if value is not None and name in known and value != known[name]
    ]
    if faults:
        raise InvalidInput(faults)


def _snapshot(store: Store) -> None:
    from nova.journal.errors import NotDurable

    try:
        store.snapshot()
    except NotDurable as error:
        warn([str(error)])


def _live(idle: Callable[[], None]) -> Iterator[str]:
    """Lines of stdin as they come. Whenever there is none yet, `idle` is called before waiting, so that steps share an
    fsync exactly while more of them come than the disk takes."""
    queue: Queue[str | BaseException | None] = Queue(2 * GROUP)  # whoever sends faster than the disk takes has to wait

    def read() -> None:
        try:
            for line in lines_of(Path("-")):
                queue.put(line)
        except BaseException as error:
            queue.put(error)
        queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = queue.get_nowait()
        except Empty:
            idle()
            line = queue.get()
        if line is None:
            return
        if isinstance(line, BaseException):
            raise line
        yield line


class _Printer:
    """Prints what became durable, at once."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.steps = self.repeated = self.changes = 0

    def show(self, outcomes: list[Outcome]) -> None:
        """Steps that are durable now."""
        from nova.controller.codec import change_to_json

        for one in outcomes:
            self.steps += 1
            self.repeated += one.sequence is None
            self.changes += len(one.changes)
            if self.as_json:
                print(
                    json.dumps(
                        {
                            "line": one.step.line,
                            "sequence": one.sequence,
                            "repeated": one.sequence is None,
                            "changes": [change_to_json(change) for change in one.changes],
                            "replan_gain_ms": one.replan_gain_ms,
                        },
                        ensure_ascii=False,
                    )
                )
                continue
            kinds = ", ".join(event.kind for event in one.step.events[:3])
            kinds += f" and {len(one.step.events) - 3} more" if len(one.step.events) > 3 else ""
            if one.sequence is None:
                typer.echo(f"line {one.step.line}: {kinds}: was applied before")
                continue
            typer.echo(f"{one.sequence}: {kinds}: {len(one.changes)} changes")
            for change in one.changes:
                kind, join, host, share, window, reason = change_row(change)
                part = f" ({share})" if share else ""
                typer.echo(f"    {kind} {join}: {host}{part}, from window {window}: {reason}")
        sys.stdout.flush()

    def end(self, store: Store, current: Path) -> None:
        """All is done."""
        waiting = store.controller.waiting_list()
        if self.as_json:
            print(
                json.dumps(
                    {
                        "steps": self.steps,
                        "repeated": self.repeated,
                        "sequence": store.sequence,
                        "plan": str(current / "plan"),
                        "waiting": len(waiting),
                    },
                    ensure_ascii=False,
                )
            )
        else:
            typer.echo(
                f"{self.steps:,} steps, {self.repeated:,} of them applied before, {self.changes:,} changes; "
                f"{store.folder} is at step {store.sequence:,}; plan: {current / 'plan'}"
            )
        running = store.controller
        warn(unkept(running.options.utilisation, running.fullest()))
        if waiting:
            warn([f"{len(waiting):,} sub-joins do not run, among them {waiting_text(waiting[0])}"])


@app.command()
def log(
    state: Path = STATE,
    first: int | None = typer.Option(None, "--from", min=1, metavar="N", help="Steps from this number on."),
    as_json: bool = JSON,
) -> None:
    """List the steps in the journal of STATE. Changes nothing, and may run beside `apply`.

    Steps before the older of the last two snapshots are no longer in the journal.

    Example: `nova events log state --from 1200 --json`
    """
    from nova.journal import journal
    from nova.journal.identity import Identity
    from nova.journal.steps import document_of

    identity = Identity.read(state)
    oldest = journal.oldest(state)
    records, cut = journal.read(state, identity.key, max(first or 1, oldest) - 1)
    if first is not None and first < oldest:
        warn([f"steps before {oldest:,} are no longer in the journal: a snapshot holds what came of them"])
    if cut is not None:
        warn([str(cut)])
    rows = [{"sequence": record.sequence, **document_of(record)} for record in records]
    if as_json:
        emit_json(rows)
        return
    table(
        f"Journal of {state}",
        ["step", "taken in", "client", "number", "events"],
        [
            [
                row["sequence"],
                datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(sep=" ", timespec="milliseconds"),
                row.get("client"),
                row.get("number"),
                "\n".join(_text(event) for event in row["events"]),
            ]
            for row in rows
        ],
    )


def _text(event: dict[str, Any]) -> str:
    """An event in a line of a table."""
    fields = [f"{name}={value}" for name, value in event.items() if name != "event"]
    return " ".join([str(event.get("event")), *(field if len(field) <= 60 else field[:59] + "…" for field in fields)])


@app.command()
def replay(
    state: Path = STATE,
    output: Path | None = typer.Option(None, "--output", "-o", metavar="PLAN", help="Folder for the rebuilt plan."),
    as_json: bool = JSON,
) -> None:
    """Rebuild the plan of STATE from the oldest snapshot and the journal, and say whether it equals the stored one.

    Compared bit by bit: the plan in STATE/current and the newest snapshot, each at the step that it was written after.
    Exit code 3 where one of them is different. Changes nothing in STATE.

    Example: `nova events replay state -o rebuilt`
    """
    if output is not None:
        from nova.scenario.folder import refuse_other_folder

        refuse_other_folder(output)
    with progress("replaying"):
        from nova.journal.identity import Identity
        from nova.journal.replay import replay as rebuild

        found = rebuild(state)
        if output is not None:
            write_running(found.controller, output, Identity.read(state).about.get("inputs"))
    if as_json:
        emit_json(
            {
                "first": found.first,
                "last": found.last,
                "equal": found.equal,
                "compared": [asdict(one) for one in found.compared],
                "plan": None if output is None else str(output),
            }
        )
    else:
        typer.echo(f"replayed {found.last - found.first:,} steps, from step {found.first:,} to {found.last:,}")
        words = {True: "equal, bit by bit", False: "DIFFERENT", None: "older than the journal: not compared"}
        for one in found.compared:
            typer.echo(f"  {one.stored}, after step {one.sequence:,}: {words[one.equal]}")
        if not found.compared:
            typer.echo("  nothing is stored beside the journal yet to compare with")
        if output is not None:
            typer.echo(f"wrote {output}")
    if not found.equal:
        from nova.model.errors import BrokenPlan

        raise BrokenPlan(f"what is stored in {state} is not what its journal leads to")
