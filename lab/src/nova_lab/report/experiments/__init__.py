"""The experiments of the paper's evaluation, one module each."""

from __future__ import annotations

from collections.abc import Callable

from nova.evaluation.approaches import Row
from nova_lab.report.experiment import Experiment, Setting
from nova_lab.report.experiments import (
    e2e,
    estimation,
    latency,
    maps,
    overload,
    placements,
    queueing,
    resilience,
    scaling,
)
from nova_lab.report.units import Parameters

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (maps, overload, latency, estimation, resilience, scaling, queueing, e2e)
}
"""In the order of the paper."""

RUNNERS: dict[str, Callable[[Setting, Parameters], list[Row]]] = {
    "placements": placements.run,
    "estimation": estimation.run_approaches,
    "resilience": resilience.run_hours,
    "placing": scaling.run_placing,
    "events": scaling.run_events,
    "queueing": queueing.run_approach,
    "bursts": queueing.run_bursts,
    "cluster": queueing.run_cluster,
    "e2e": e2e.run_approach,
    "maps": maps.run_map,
}
"""How each kind of unit is computed."""
