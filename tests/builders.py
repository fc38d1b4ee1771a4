"""Builders of small scenarios for tests: plain functions, so that property tests can call them in their loop."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner, Result

Rows = Sequence[Sequence[Any]]

SMALL: dict[str, Any] = {
    "nova": 1,
    "nodes": [
        {"id": "edge1", "capacity": 60, "x": 0, "y": 10},
        {"id": "edge2", "capacity": 60, "x": 10, "y": 0},
        {"id": "fog", "capacity": 120, "x": 8, "y": 8},
        {"id": "cloud", "capacity": 1000, "x": 40, "y": 40},
        {"id": "hq", "capacity": 20, "x": 12, "y": 12, "hosts": False},
    ],
    "streams": {
        "pressure": {
            "sources": [
                {"id": "p1", "node": "edge1", "rate": 25, "region": "north"},
                {"id": "p2", "node": "edge2", "rate": 25, "region": "south"},
            ]
        },
        "humidity": {
            "sources": [
                {"id": "h1", "node": "edge2", "rate": 25, "region": "north"},
                {"id": "h2", "node": "edge1", "rate": 25, "region": "south"},
            ]
        },
    },
    "queries": [{"id": "climate", "left": "pressure", "right": "humidity", "on": "region", "sink": "hq"}],
    "options": {"waiting": 0},
}
"""Five nodes in a plane, two streams in two regions, one query: two sub-joins of 50 tuples/s, placed by distance, so
that tests can tell by hand where they run: both on the fog node."""


def write_scenario(folder: Path, document: dict[str, Any] | None = None, /, **tables: str | bytes | Rows) -> Path:
    """Write a scenario document (default: `SMALL`) and its tables; `nodes=[[header…], [row…], …]` becomes nodes.csv.

    A name with a suffix is given as `**{"rtt.csv": …}`. Text and bytes are written as they are. Returns the path of
    `scenario.yaml`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tables.items():
        path = folder / (name if "." in name else f"{name}.csv")
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(content)
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(SMALL if document is None else document, sort_keys=False), encoding="utf-8")
    return path


def write_events(folder: Path, *lines: Any) -> Path:
    """Write `events.jsonl`: texts as they are, all else as JSON, one line each."""
    file = folder / "events.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return file


def invoke(*arguments: object) -> Result:
    """Run `nova ARGUMENTS…` in this process and catch what it prints."""
    from nova.cli import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="nova")


def invoke_json(*arguments: object) -> Any:
    """Run a command with `--json` and read what it prints; fails the test where the command fails."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


FILES: dict[str, str] = {
    "nodes.csv": "id,capacity,x,y,hosts\nedge1,60,0,10,\nedge2,60,10,0,\nfog,120,8,8,true\nhq,20,12,12,false\n",
    "rtt.csv": "from,to,rtt_ms\nedge1,edge2,14.1\nedge1,fog,8.2\nedge2,fog,8.2\nfog,hq,5.7\n",
    "pressure.csv": "id,node,rate,region\np1,edge1,25,north\np2,edge2,25,south\n",
    "humidity.csv": "id,node,rate,region\nh1,edge2,25,north\nh2,edge1,25,south\n",
    "scenario.yaml": (
        "nova: 1\n"
        "nodes: nodes.csv\n"
        "latency: rtt.csv\n"
        "streams:\n"
        "  pressure: {sources: pressure.csv}\n"
        "  humidity: {sources: humidity.csv}\n"
        "queries:\n"
        "  - id: climate\n"
        "    left: pressure\n"
        "    right: humidity\n"
        "    on: region\n"
        "    sink: hq\n"
    ),
}
"""A scenario as files, in order: tests of bad input change one of them."""


def write_files(folder: Path, changes: dict[str, str | bytes | None] | None = None) -> Path:
    """Write `FILES` with some of them replaced (None: left out). Returns the path of `scenario.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {**FILES, **(changes or {})}.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        elif content is not None:
            (folder / name).write_text(content, encoding="utf-8")
    return folder / "scenario.yaml"
