"""One problem, every approach, all figures: the unit of work that the placement experiments share."""

from __future__ import annotations

import numpy as np

from nova.evaluation.approaches import Row
from nova.evaluation.compare import compare
from nova.model.options import Options
from nova_lab.report.experiment import Setting, Unit
from nova_lab.report.units import Parameters
from nova_lab.report.workloads import TOPOLOGIES, UNLIMITED, Level, Workload, drawn, instance, instance_file

APPROACHES = ("nova", "nova-paper", "sink", "source", "top-c", "tree", "cl-sf", "cl-tree-sf")


def unit(topology: str, level: Level, seed: int) -> Unit:
    """A random draw over a topology."""
    return Unit("placements", {"topology": topology, "origin": "draw", "level": level, "seed": seed})


def instance_unit(setting: Setting, topology: str, level: Level) -> Unit | None:
    """A fixed instance; None where it is not there."""
    if instance_file(setting, TOPOLOGIES[topology].instance, level) is None:
        return None
    return Unit("placements", {"topology": topology, "origin": "instance", "level": level, "seed": 0})


def run(setting: Setting, parameters: Parameters) -> list[Row]:
    """Place by every approach and measure all alike. Without capacity limits only Nova and top-c differ from before."""
    topology, level, seed = parameters["topology"], parameters["level"], parameters["seed"]
    work = (
        drawn(topology, level, seed)
        if parameters["origin"] == "draw"
        else instance(setting, TOPOLOGIES[topology].instance, level)
    )
    names = ("nova", "top-c") if level == UNLIMITED else APPROACHES
    options = Options(seed=seed)
    return [
        {**parameters, **shape(work), **done.row, **_published(work, done.row["approach"])}
        for done in compare(work.problem, names, options, with_bound=level != UNLIMITED)
    ]


def shape(work: Workload) -> Row:
    """What the problem looks like."""
    problem = work.problem
    capacity = problem.nodes.capacity[problem.nodes.hosts]
    limited = bool(np.isfinite(capacity).all())
    return {
        "nodes": len(problem.nodes),
        "joins": len(problem.sources) // 2,
        "cv": float(capacity.std() / capacity.mean()) if limited else float("nan"),
        "load": float(problem.sources.rate.sum() / capacity.sum()) if limited else 0.0,
    }


def _published(work: Workload, approach: str) -> Row:
    """The scripts' figures on a fixed instance; they call sink and source `sink-based` and `source-based`."""
    name = {"sink": "sink-based", "source": "source-based"}.get(approach, approach)
    figures = work.published.get(name, {})
    names = {
        "published_p90_ms": "lat_exact_p90",
        "published_mean_ms": "lat_exact_mean",
        "published_exact_p90_delta": "exact_p90_delta_to_sink",
        "published_exact_mean_delta": "exact_mean_delta_to_sink",
        "published_overloaded_percent": "ref_overloaded_pct",
    }
    return {ours: figures[theirs] for ours, theirs in names.items() if theirs in figures}
