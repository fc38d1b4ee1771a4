"""The workloads of the paper: topologies by name, random draws over them, and the fixed instances."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from nova.datasets import instances
from nova.model.problem import Problem
from nova.model.space import CostSpace
from nova.synthetic import draw
from nova_lab.report.data import missing_data, space_from
from nova_lab.report.experiment import Setting

UNLIMITED: Final = "inf"
"""The level without capacity limits; levels 0 … 5 are numbers."""
Level = int | str
SYNTHETIC_NODES = 1001
"""A thousand nodes and the sink."""


@dataclass(frozen=True)
class Topology:
    """Where the nodes of a workload come from."""

    label: str
    short: str
    """For the heads of narrow columns."""
    instance: str
    """Name of its fixed instances."""
    dataset: str | None
    """Data set of measured round-trip times, or of coordinates where no times are public; None: drawn."""
    neighbours: int = 20
    """m of Phase I, as in the paper."""
    instance_unit: str = "ms"
    """What distances of the fixed instances are in."""


TOPOLOGIES: dict[str, Topology] = {
    "synthetic": Topology("Synthetic 1K", "Synth.", "sim1000", None),
    "fit": Topology("FIT IoT Lab", "FIT", "fit", "fit-433-filled", 20),
    "planetlab": Topology("PlanetLab", "Planet­Lab", "planetlab", "planetlab-490", 32, "degrees"),
    "atlas": Topology("RIPE Atlas", "Atlas", "atlas392", "ripe-atlas-723", 20),
    "king": Topology("King", "King", "king", "king-1740", 32),
}


@dataclass(frozen=True)
class Workload:
    """A problem, and what was published about it."""

    problem: Problem
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures of the published scripts per approach; empty for random draws."""


def drawn(topology: str, level: Level, seed: int) -> Workload:
    """Random roles, pairs, rates, capacities and sink over a topology."""
    limit = None if level == UNLIMITED else int(level)
    chosen = TOPOLOGIES[topology]
    if chosen.dataset is None:
        return Workload(draw(SYNTHETIC_NODES, limit, seed))
    return Workload(over(space_from(chosen.dataset, chosen.neighbours), limit, seed))


def instance_file(setting: Setting, name: str, level: Level) -> Path | None:
    """The file of a fixed instance, where its folder was given and holds it."""
    if setting.instances is None:
        return None
    file = setting.instances / f"{name}-{level}.json"
    return file if file.is_file() else None


def instance(setting: Setting, name: str, level: Level) -> Workload:
    """A fixed instance with its published figures. Its capacities of 9,999,999 at level `inf` mean no limit."""
    file = instance_file(setting, name, level)
    assert file is not None, "units of missing instances are never made"
    loaded = instances.load(file)
    problem = loaded.problem
    if level == UNLIMITED:
        problem = replace(problem, nodes=replace(problem.nodes, capacity=np.full(len(problem.nodes), np.inf)))
    return Workload(problem, loaded.published)


def over(space: CostSpace, level: int | None, seed: int) -> Problem:
    """A random draw whose nodes sit in `space`."""
    problem = draw(level=level, seed=seed, coordinates=space.coordinates)
    return replace(problem, nodes=replace(problem.nodes, heights=space.heights))


def available(_setting: Setting) -> tuple[list[str], dict[str, str]]:
    """(topologies that can be drawn over, why not for the others)."""
    reasons = {name: missing_data(t.dataset) for name, t in TOPOLOGIES.items() if t.dataset is not None}
    missing = {name: why for name, why in reasons.items() if why is not None}
    return [name for name in TOPOLOGIES if name not in missing], missing
