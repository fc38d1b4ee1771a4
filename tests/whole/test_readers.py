"""A fuzzer over everything that commands read: whatever is in a file, the answer is its content or an error that a user
can act on, and it comes soon. The short run is part of every test; `script/test-slow` draws ten thousand new inputs."""

from __future__ import annotations

import copy
import json
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import FILES, SMALL, invoke, write_events, write_files, write_scenario
from mutations import damage
from nova.model import plan as plans
from nova.model.errors import NovaError
from nova.model.reading import read_bytes

SHORT, LONG = 20, 500
"""Inputs of each reader in the short and in the long run."""
HANG_S = 90
"""Longer than any reader may take, on a machine that has other things to do and compiles kernels meanwhile."""


@dataclass(frozen=True)
class Reader:
    """Something that reads files: how they are made, and how they are read."""

    make: Callable[[Path], object]
    """Writes files in order into an empty folder."""
    read: Callable[[Path], object]
    """Reads them; may write into the folder."""
    files: tuple[str, ...]
    """Patterns of the files to damage."""


def command(*arguments: str) -> Callable[[Path], None]:
    """Runs a command whose words may name files of the folder as `@name`; its errors are raised as they are."""

    def run(folder: Path) -> None:
        words = [str(folder / word[1:]) if word.startswith("@") else word for word in arguments]
        told = invoke(*words)
        error = told.exception
        if isinstance(error, SystemExit):
            if error.code not in (0, 1, 2, 3):
                raise AssertionError(f"exit code {error.code}")
            if error.code and not any(line.startswith("nova: ") for line in told.stderr.splitlines()):
                raise AssertionError(told.output)
        elif error is not None:
            raise error

    return run


def _planned(folder: Path) -> None:
    assert invoke("plan", write_scenario(folder / "s"), "-o", folder / "plan").exit_code == 0


def _parquet_scenario(folder: Path) -> None:
    write_files(folder, {"scenario.yaml": FILES["scenario.yaml"].replace(".csv", ".parquet")})
    for name in FILES:
        if name.endswith(".csv"):
            header, *rows = [line.split(",") for line in FILES[name].splitlines()]
            columns = {}
            for k, column in enumerate(header):
                cells = [row[k] or None for row in rows]
                numeric = column in ("capacity", "x", "y", "rate", "rtt_ms")
                columns[column] = pa.array([float(c) for c in cells if c] if numeric else cells)
            if name == "nodes.csv":
                del columns["x"], columns["y"]  # the measured times decide
            pq.write_table(pa.table(columns), folder / name.replace(".csv", ".parquet"))


def _matrix_scenario(folder: Path) -> None:
    """Latencies as a matrix with a decimal comma, pairs as a table, links, requirements and keys."""
    ids = ("edge1", "edge2", "fog", "hq")
    rows = [";".join([a, *(f"{abs(i - j) * 7},5" if i != j else "0" for j in range(4))]) for i, a in enumerate(ids)]
    write_files(
        folder,
        {
            "rtt.csv": "\n".join(["id;" + ";".join(ids), *rows]) + "\n",
            "nodes.csv": "id,capacity,hosts,zone\nedge1,60,,a\nedge2,60,,a\nfog,120,true,b\nhq,20,false,b\n",
            "pairs.csv": "left,right,output_rate\np1,h1,5\np2,h2,\n",
            "scenario.yaml": FILES["scenario.yaml"].replace(
                "    on: region\n",
                "    pairs: pairs.csv\n    requires: zone in [a, b]\n    key: {column: value, cardinality: 9}\n",
            )
            + "links:\n  - {label: zone, from: a, to: b, budget: 500/s}\noptions: {seed: 3, partition: grid}\n",
        },
    )


def _sql_scenario(folder: Path) -> None:
    """A query in SQL over declared columns and columns that the inputs' files show."""
    sql = (
        "SELECT window_start, count(*) AS n, max(h.wet) AS wet FROM pressure AS p"
        " JOIN humidity AS h ON p.region = h.region"
        " AND TUMBLE(p.time, INTERVAL '10' SECOND) = TUMBLE(h.time, INTERVAL '10' SECOND)"
        " WHERE p.level > 3 GROUP BY window_start"
    )
    head, _, _ = FILES["scenario.yaml"].partition("queries:")
    head = head.replace(
        "{sources: pressure.csv}", "{sources: pressure.csv, columns: {level: {type: bigint, distinct: 9}}}"
    ).replace("{sources: humidity.csv}", "{sources: humidity.csv, input: {format: json, path: humidity.json}}")
    write_files(
        folder,
        {
            "scenario.yaml": f"{head}queries:\n  - {{id: q, sink: hq, sql: {json.dumps(sql)}}}\n",
            "humidity.json": '{"source": "h1", "time": 1700000000000, "value": 3.5, "wet": true}\n',
        },
    )


def _instance(folder: Path) -> None:
    nodes = [
        {"id": k, "x": 3 * k, "y": k, "role": "sink" if k == 0 else "source", "capacity": 50, "rate": k}
        for k in range(4)
    ]
    document = {
        "sink": 0, "params": {"sigma": 0.4}, "nodes": nodes, "pairs": [{"left": 1, "right": 2, "output": 4}],
        "published_scripts": {"sink-based": {"lat_exact_mean": 7.5}},
    }  # fmt: skip
    (folder / "tiny-0.json").write_text(json.dumps(document))


def _read_instance(folder: Path) -> None:
    from nova.datasets.instances import load

    load(folder / "tiny-0.json")


def _run_folder(folder: Path) -> None:
    flow = {"window_us": 1000, "on": [], "cells": 4, "lateness_ms": 5, "left": [], "right": []}
    (folder / "run.json").write_text(json.dumps({"scenario": "digest", "flows": {"climate": flow}}))


def _read_run_folder(folder: Path) -> None:
    from nova.routing.flow import Flow
    from nova.spark.job.folder import RunFolder

    run = RunFolder(folder)
    run.adopt("digest")
    run.mode()
    empty = pa.schema([])
    run.remember("climate", Flow("climate", 1000, (), empty, empty, 4), 5)


EVENTS = (
    {"event": "rate_changed", "stream": "pressure", "source": "p1", "rate": 30, "time": "2024-01-01T00:00:00"},
    {"event": "node_added", "node": "fog2", "capacity": "90/s", "coordinates": [9.0, 9.0], "height": 1},
    {"event": "latency_measured", "from": "edge1", "to": "fog", "rtt_ms": "9ms"},
    {"event": "source_added", "stream": "humidity", "source": "h3", "node": "fog", "rate": 5,
     "attributes": {"region": "north"}},
    [{"event": "capacity_changed", "node": "cloud", "capacity": 900},
     {"event": "sink_moved", "query": "climate", "sink": "cloud"}],
    {"event": "query_added", "query": "q2", "left": "pressure", "right": "humidity", "sink": "hq",
     "pairs": [["p1", "h2"]]},
    {"event": "node_removed", "node": "fog2"},
)  # fmt: skip


def _with_events(folder: Path) -> None:
    _planned(folder)
    write_events(folder, *EVENTS)


def _state(folder: Path) -> None:
    _with_events(folder)
    told = invoke(
        "events", "apply", folder / "state", folder / "events.jsonl",
        "--scenario", folder / "s" / "scenario.yaml", "--plan", folder / "plan",
    )  # fmt: skip
    assert told.exit_code == 0, told.output


def _second_plan(folder: Path) -> None:
    _planned(folder)
    shutil.copytree(folder / "plan", folder / "plan2")


def _changes(folder: Path) -> None:
    _with_events(folder)
    told = invoke(
        "reoptimize", folder / "s" / "scenario.yaml", folder / "plan", "-e", folder / "events.jsonl",
        "-o", folder / "plan2", "--json",
    )  # fmt: skip
    (folder / "changes.json").write_text(told.stdout)


def _read_changes(folder: Path) -> None:
    from nova.spark.replan.changes import read

    read(folder / "changes.json")


def _coordinates(folder: Path) -> None:
    (folder / "coordinates.csv").write_text("id,x,y,height\na,1.5,2,0\nb,3,4,1\n")


def _read_coordinates(folder: Path) -> None:
    from nova.spark.ingest.embed.engine import read_coordinates

    read_coordinates(folder / "coordinates.csv")


def _polygons(folder: Path) -> None:
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    feature = {
        "type": "Feature",
        "properties": {"name": "north"},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    (folder / "regions.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))


def _read_polygons(folder: Path) -> None:
    from nova.spark.ingest.sensors.regions import read_polygons

    read_polygons(folder / "regions.geojson")


def _site(folder: Path) -> None:
    import numpy as np

    import streams
    from nova.routing.flow import Flow
    from nova.scenario.model import StreamInput
    from nova.spark.sites import share
    from nova.spark.sources.inputs import Feed
    from tilings import random_replicas

    problem = streams.problem(regions=2, per_region=3, nodes=5)
    plan = streams.plan(problem, random_replicas(streams.resolve(problem), 5, 1))
    carried = pa.schema([("value", pa.float64()), ("zone", pa.string())])
    feeds = {
        name: Feed(StreamInput(format="csv", path="x.csv"), (), (), Path("/somewhere"), name)
        for name in problem.streams
    }
    flow = Flow("climate", 1_000_000, ("zone",), carried, carried, 16)
    made = list(share.cut(problem, plan, [flow], feeds, share.Settled("exchange"), [True], None))
    most = int(np.argmax([len(one.replicas) for one in made]))
    made[most].write(folder / "site")


def _read_site(folder: Path) -> None:
    from nova.spark.sites.share import read

    read(folder / "site")


def _run_notes(folder: Path) -> None:
    """What a run, a site and a feed note for themselves, each by who writes it."""
    from nova.routing.flow import Flow
    from nova.scenario import load
    from nova.spark.job.folder import RunFolder
    from nova.spark.job.job import routes_of
    from nova.spark.job.kept import Kept
    from nova.spark.job.schedule import Schedule
    from nova.spark.realtime.feeds import Generated
    from nova.spark.realtime.log import Log
    from nova.spark.replan.handover import put
    from nova.spark.replan.newcomers import Newcomers, NewSource
    from nova.spark.sites.exchange import Inbox
    from nova.spark.sites.presence import FolderBoard, Presence
    from nova.spark.sources.clock import Clock
    from nova.spark.sources.generator import Pattern, Source
    from nova.spark.sources.mqtt import Spool

    _planned(folder)
    problem = load(folder / "s" / "scenario.yaml").problem
    plan = plans.read(folder / "plan", problem, None)
    run = RunFolder(folder / "run")
    run.open("digest", plan, problem)
    newcomers = Newcomers({"fog9": 5.0}, (NewSource("humidity", "h9", "fog9", 2.0),))
    put(plan, problem, run, 5.0, 1, newcomers)
    Schedule(folder / "schedule").append("00000", routes_of(problem, plan, 0), 0, 0, newcomers)
    log = Log(folder / "log", "llds", segment=100)
    for number in range(4):
        time = pa.array([number, number], pa.int64())
        log.append([time, time, pa.array([1.5, None]), pa.array(["ä", None])])
    log.close()
    (folder / "log" / "readers").mkdir()
    (folder / "log" / "readers" / "r").write_text("20")
    next(Generated([Source("a", 30.0)], Pattern(length_ms=4000), folder / "feed.json", 5).after(0))
    Clock(2.0, str(folder / "clock.json")).start(7)
    flow = Flow("climate", 1_000_000, (), *[pa.schema([("value", pa.float64())])] * 2)
    Kept(folder / "kept").save(3, flow.result().empty_table(), 12)
    inbox = Inbox(folder / "inbox")
    inbox.take("00000001-000", b"x")
    inbox.finish(b"1")
    spool = Spool(folder / "spool")
    spool.append([(f"t/{number}", True, "t", "{}") for number in range(3)])
    (folder / "spool" / "ids.json").write_text(json.dumps({"ids": ["t/0"], "end": 1}))
    presence = Presence(FolderBoard(folder / "board"), "edge1", folder / "own")
    presence.start()
    presence.give_up("fog")


def _read_run_notes(folder: Path) -> None:
    from nova.scenario import load
    from nova.spark.job.folder import RunFolder
    from nova.spark.job.kept import Kept
    from nova.spark.job.schedule import Schedule
    from nova.spark.realtime.feeds import Generated
    from nova.spark.realtime.log import Log
    from nova.spark.replan.handover import read_plan
    from nova.spark.sites.exchange import Inbox
    from nova.spark.sites.presence import FolderBoard, Presence
    from nova.spark.sources.clock import Clock
    from nova.spark.sources.generator import Pattern, Source
    from nova.spark.sources.mqtt import Spool, read_spool

    problem = load(folder / "s" / "scenario.yaml").problem
    run = RunFolder(folder / "run")
    for name in run.plan_names():
        read_plan(run, name, problem)
    schedule = Schedule(folder / "schedule")
    schedule.newcomers()
    schedule.timeline()
    log = Log(folder / "log", "llds", segment=100)
    assert all(len(frame.columns) == 4 for frame in log.frames())
    log.append([pa.array([1], pa.int64()), pa.array([5], pa.int64()), pa.array([1.5]), pa.array(["x"])])
    log.close()
    next(Generated([Source("a", 30.0)], Pattern(length_ms=4000), folder / "feed.json", 5).after(3), None)
    Clock(2.0, str(folder / "clock.json")).event_us(5.0)
    Kept(folder / "kept").before(4)
    Inbox(folder / "inbox").take("00000002-000", b"x")
    spool = Spool(folder / "spool")
    list(read_spool(folder / "spool", 0, spool.end))
    presence = Presence(FolderBoard(folder / "board"), "edge1", folder / "own")
    presence.start()
    presence.given_up("fog")


RUN_NOTES = (
    "run/plans/00001/switch.json", "schedule/*", "log/*", "log/readers/*", "feed.json", "clock.json", "kept/*",
    "inbox.json", "spool/*", "board/*/*", "own/*",
)  # fmt: skip


def _checkpoint(folder: Path) -> None:
    for log, text in (
        ("offsets", 'v1\n{"batchWatermarkMs":0}\n{"ended": true}\n{"ended": false}'),
        ("commits", "v1\n{}"),
    ):
        (folder / log).mkdir()
        (folder / log / "7").write_text(text)


def _read_checkpoint(folder: Path) -> None:
    from nova.spark.job.gate import Gate, check

    check(folder)
    Gate(folder).at_end()


def _embedding(folder: Path) -> None:
    import numpy as np

    from nova.spark.ingest.embed.work import Work

    work = Work(folder / "work")
    work.claim({"rows": 5})
    work.log([{"epoch": 1, "error": 0.5}])
    work.save(1, np.ones((2, 3)))


def _read_embedding(folder: Path) -> None:
    from nova.spark.ingest.embed.work import Work

    work = Work(folder / "work")
    work.claim({"rows": 5})
    work.logged(3)
    work.newest()


SQL = """
SELECT p.region, window_start, count(*) AS n, max(h.value) AS wet, sum(CASE WHEN p.value > 3 THEN 1 ELSE 0 END) AS high
FROM pressure AS p
JOIN humidity AS h ON p.region = h.region
  AND TUMBLE(p.time, INTERVAL '10' SECOND) = TUMBLE(h.time, INTERVAL '10' SECOND)
JOIN wind AS w ON w.region = h.region AND TUMBLE(w.time, INTERVAL '10' SECOND) = TUMBLE(h.time, INTERVAL '10' SECOND)
WHERE p.value BETWEEN 3 AND 1e9 AND h.region LIKE 'n%' AND w.value IS NOT NULL
GROUP BY p.region, window_start HAVING count(*) > 2
"""
OUTER = """
SELECT p.value AS v, h.value FROM pressure AS p LEFT JOIN humidity AS h ON p.region = h.region
  AND p.time BETWEEN h.time - INTERVAL '5' SECOND AND h.time + INTERVAL '5' SECOND
"""


def _sql_text(sql: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "query.sql").write_text(sql)


def _plan_sql_text(folder: Path) -> None:
    """A query in SQL over three streams, whose text alone is damaged."""
    document = copy.deepcopy(SMALL)
    document["streams"]["wind"] = {
        "sources": [
            {"id": f"w{n}", "node": f"edge{n}", "rate": 25, "region": r} for n, r in ((1, "north"), (2, "south"))
        ]
    }
    text = read_bytes(folder / "query.sql", "a query").decode(errors="replace")
    document["queries"] = [{"id": "q", "sink": "hq", "sql": text}]
    for node in document["nodes"]:
        node["capacity"] *= 100
    (folder / "scenario.json").write_text(json.dumps(document))
    command("plan", "@scenario.json", "--explain-query")(folder)
    command("plan", "@scenario.json", "-o", "@out")(folder)


PLAN = ("plan/*",)
READERS: dict[str, Reader] = {
    "scenario-csv": Reader(write_files, command("plan", "@scenario.yaml", "-o", "@out"), ("*",)),
    "scenario-parquet": Reader(
        _parquet_scenario, command("plan", "@scenario.yaml", "-o", "@out"), ("*.parquet", "*.yaml")
    ),
    "scenario-json": Reader(
        lambda folder: (folder / "scenario.json").write_text(json.dumps(SMALL)),
        command("plan", "@scenario.json", "-o", "@out"),
        ("*",),
    ),
    "scenario-matrix": Reader(_matrix_scenario, command("plan", "@scenario.yaml", "-o", "@out"), ("*",)),
    "scenario-sql": Reader(_sql_scenario, command("plan", "@scenario.yaml", "--explain-query"), ("*.yaml", "*.json")),
    "instance": Reader(_instance, _read_instance, ("*",)),
    "run-folder": Reader(_run_folder, _read_run_folder, ("run.json",)),
    "plan": Reader(_planned, command("evaluate", "@s/scenario.yaml", "@plan"), PLAN),
    "plan-explain": Reader(_planned, command("explain", "@s/scenario.yaml", "@plan"), PLAN),
    "plan-diff": Reader(_second_plan, command("diff", "@plan", "@plan2"), PLAN),
    "plan-drift": Reader(_planned, command("drift", "@s/scenario.yaml", "@plan"), PLAN),
    "events": Reader(
        _with_events,
        command("reoptimize", "@s/scenario.yaml", "@plan", "-e", "@events.jsonl", "-o", "@out"),
        ("*.jsonl",),
    ),
    "state-replay": Reader(_state, command("events", "replay", "@state"), ("state/*", "state/**/*")),
    "state-log": Reader(_state, command("events", "log", "@state"), ("state/*",)),
    "state-apply": Reader(_state, command("events", "apply", "@state", "@events.jsonl"), ("state/*", "*.jsonl")),
    "changes": Reader(_changes, _read_changes, ("changes.json",)),
    "coordinates": Reader(_coordinates, _read_coordinates, ("*",)),
    "site": Reader(_site, _read_site, ("site/*",)),
    "regions": Reader(_polygons, _read_polygons, ("*",)),
    "run-notes": Reader(_run_notes, _read_run_notes, RUN_NOTES),
    "checkpoint": Reader(_checkpoint, _read_checkpoint, ("*/*",)),
    "embedding": Reader(_embedding, _read_embedding, ("work/*",)),
    "sql-chain": Reader(_sql_text(SQL), _plan_sql_text, ("query.sql",)),
    "sql-outer": Reader(_sql_text(OUTER), _plan_sql_text, ("query.sql",)),
}
SAMPLES = Path(__file__).parents[1] / "cli" / "samples"


def _sampled(folder: Path) -> None:
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True)
    (folder / "out").mkdir()
    (folder / "out" / "nodes.csv").write_text("id,capacity,address\nedge1,60,10.132.0.5\nedge2,60,10.132.0.6\n")


IMPORTS = {
    "k8s": ("k8s", "@kubectl-nodes.json"),
    "prometheus": ("prometheus", "@prometheus-vector.json"),
    "goldpinger": ("goldpinger", "@goldpinger-check-all.json"),
    "consul": ("consul", "@consul-coordinates.json"),
    "consul-rtt": ("consul", "@consul-rtt.txt"),
    "ansible": ("ansible", "@inventory.yaml"),
    "ansible-ini": ("ansible", "@hosts"),
    "kafka-groups": (
        "kafka",
        "@consumer-groups-before.txt",
        "@consumer-groups-after.txt",
        "--seconds",
        "60",
        "--node",
        "edge1",
    ),
    "kafka": (
        "kafka",
        "@offsets-before.txt",
        "@offsets-after.txt",
        "--describe",
        "@topics-described.txt",
        "--seconds",
        "60",
    ),
}
for _kind, _words in IMPORTS.items():
    READERS[f"import-{_kind}"] = Reader(
        _sampled,
        command("import", *_words, "-o", "@out"),
        (*(word[1:] for word in _words if word.startswith("@")), "out/nodes.csv"),
    )
SPARK_ROOM = ("changes", "checkpoint", "coordinates", "embedding", "regions", "run-folder", "run-notes", "site")
"""Readers of the room that needs pyspark (though no session)."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raises where the block takes longer."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"hangs: more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(reader: Reader, folder: Path, count: int, seed: int) -> list[str]:
    """Tracebacks of damaged inputs, each once, with the input that led there."""
    whole, trial = folder / "whole", folder / "trial"
    whole.mkdir()
    reader.make(whole)
    names = sorted({path for pattern in reader.files for path in whole.glob(pattern) if path.is_file()})
    assert names, "nothing to damage"
    shutil.copytree(whole, trial)
    reader.read(trial)  # in order; also compiles what has to be
    found: dict[str, str] = {}
    for number in range(count):
        dice = random.Random(f"{seed}-{number}")
        shutil.rmtree(trial, ignore_errors=True)
        shutil.copytree(whole, trial)
        target = trial / dice.choice(names).relative_to(whole)
        damage(target, dice)
        try:
            with warnings.catch_warnings(), at_most(HANG_S):
                warnings.simplefilter("ignore")
                reader.read(trial)
        except NovaError:
            continue
        except OSError as error:  # `nova` says so in a line: no file, a folder, a link to itself
            if error.errno is None or error.filename is None:
                found.setdefault("OSError", f"{error!r}; input {seed}-{number}, {target.relative_to(trial)}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            frames = traceback.extract_tb(error.__traceback__)
            where = next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if "/nova/" in f.filename), "?")
            key = f"{type(error).__name__} at {where}"
            found.setdefault(key, f"{key}: {error!r:.300}; input {seed}-{number}, {target.relative_to(trial)}")
    return list(found.values())


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_told(name: str, tmp_path: Path) -> None:
    if name in SPARK_ROOM:
        pytest.importorskip("pyspark")
    found = fuzz(READERS[name], tmp_path, SHORT, 0)
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_damaged_files_are_told(name: str, tmp_path: Path) -> None:
    if name in SPARK_ROOM:
        pytest.importorskip("pyspark")
    seed = random.SystemRandom().randrange(2**32)
    found = fuzz(READERS[name], tmp_path, LONG, seed)
    assert not found, "\n".join(found)
