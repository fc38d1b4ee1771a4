"""Deploy: a plan cut into what each site needs, ready to be carried there."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nova.files import name_of
from nova.model.plan import Plan
from nova.scenario import Scenario
from nova.spark.job.around import before, handed_over, keys_of
from nova.spark.job.folder import RunFolder
from nova.spark.sites import share
from nova.spark.sites.share import Settled, Share
from nova.spark.sources.clock import Clock
from nova.spark.sources.inputs import agree, feeds_of, flow_of, open_inputs, shared_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 2
"""Tasks that join at once at a site, as far as the number of cells goes; all sites must agree on that number."""
COMMAND = """#!/bin/sh
# Runs this site's share: the folder `run` keeps its checkpoint, so start it again after a stop or a crash.
cd "$(dirname "$0")" && exec nova run . --site {site} -o run "$@"
"""


def shares(
    spark: SparkSession, scenario: Scenario, plan: Plan, settled: Settled, only: int | None = None
) -> Iterator[Share]:
    """What each site (or the node in row `only`) needs. Spark looks into the inputs, to learn what tuples carry."""
    problem = scenario.problem
    feeds = feeds_of(scenario)
    flows, clocked = [], []
    with tempfile.TemporaryDirectory(prefix="nova-deploy-") as scratch:
        inputs = open_inputs(spark, feeds, RunFolder(Path(scratch)), None)
        for number, query in enumerate(problem.queries):
            place, around = f"{scenario.path}: query {query.id}", query.pipeline
            left, right = (inputs[problem.streams[problem.born(row)]] for row in (query.left, query.right))
            sides = agree(
                before(left.frame, around.left, place), before(right.frame, around.right, place), keys_of(around)
            )
            flows.append(flow_of(problem, number, sides, PARTITIONS).keeping(around.keeps))
            clock = shared_clock(left, right)
            clocked.append(clock == Clock())
            if query.makes is not None:
                made = handed_over(spark, Path(scratch) / "made" / name_of(query.id), flows[-1], around, clock)
                inputs[problem.streams[query.makes]] = made
    return share.cut(problem, plan, flows, feeds, settled, clocked, only)


def write(made: Share, folder: Path) -> Path:
    """Write a site's share and its command into a folder of its own below `folder`."""
    target = made.write(folder / name_of(made.site))
    command = target / "run.sh"
    command.write_text(COMMAND.format(site=shlex.quote(made.site)), encoding="utf-8")
    command.chmod(0o755)
    return target
