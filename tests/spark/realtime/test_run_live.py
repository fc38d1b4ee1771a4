"""A run in real time as a process of its own that is killed (-9) under load, and goes on from its checkpoint."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

import streams
from builders import SMALL
from nova.spark.job.schedule import Schedule
from nova.spark.replan.handover import hand_in
from nova.spark.sources.generator import Pattern, Source, generate
from processes import Process, looked_after
from runs import START_MS, found, plain, scenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]
KILLS = 3


def test_kills_and_switches_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    """Killed at random moments, each time with a plan handed in shortly before."""
    options = {"seed": 3, "disorder": "200ms", "length": "40s", "start_ms": START_MS}
    loaded, plan = scenario(
        tmp_path / "s", {name: {"format": "generator", "options": options} for name in SMALL["streams"]}
    )
    plan.write(tmp_path / "plan", loaded.problem)
    folder = tmp_path / "run"
    schedule = Schedule(folder / "jobs" / "climate" / "schedule")
    command = ["nova", "run", tmp_path / "s" / "scenario.yaml", "--plan", tmp_path / "plan", "-o", folder]
    command += ["--until-end", "--speed", 1, "--mode", "realtime", "--every", "2s", "--json"]
    draw = random.Random(5)
    with looked_after() as started:
        for attempt in range(KILLS):
            started.append(Process(*command, log=tmp_path / "log"))
            started[-1].until(lambda: (folder / "plans" / "00000").exists())
            hand_in(tmp_path / "plan", folder, loaded.problem)
            started[-1].until(lambda attempt=attempt: len(schedule.entries()) == attempt + 2)
            time.sleep(draw.uniform(0.0, 3.0))
            started[-1].kill()
        started.append(Process(*command, log=tmp_path / "log"))
        started[-1].wait()
    pattern = Pattern(seed=3, disorder_ms=200, length_ms=40_000)
    sides = [
        generate([Source(f"{prefix}1", 25), Source(f"{prefix}2", 25)], pattern, -1, 1e9, START_MS).to_pandas()
        for prefix in "ph"
    ]
    assert found(folder / "results") == plain(*sides)
    ids = streams.read_results(folder / "results")["id"]
    assert pc.count_distinct(ids).as_py() == len(ids)
    assert len(schedule.entries()) == KILLS + 1
