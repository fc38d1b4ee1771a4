"""Nova: where does every stream join run, in how many replicas and on which part of each stream?

>>> import nova                                            # doctest: +SKIP
>>> plan = nova.optimize("scenario.yaml")                  # doctest: +SKIP
>>> plan.summary.replicas, plan.cost(), plan.to_pandas()   # doctest: +SKIP

All of it: `dir(nova)`; how it goes together: `help(nova.api)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nova.api import (
        BrokenPlan,
        Comparison,
        Controller,
        Infeasible,
        InvalidInput,
        Metrics,
        Model,
        NovaError,
        Options,
        Plan,
        Problem,
        Reoptimized,
        Scenario,
        Stability,
        compare,
        evaluate,
        events,
        load,
        optimize,
        reoptimize,
        simulate,
    )

__all__ = [
    "load",
    "Model",
    "Scenario",
    "Problem",
    "Options",
    "optimize",
    "Plan",
    "evaluate",
    "Metrics",
    "compare",
    "Comparison",
    "simulate",
    "reoptimize",
    "Reoptimized",
    "Controller",
    "Stability",
    "events",
    "NovaError",
    "InvalidInput",
    "Infeasible",
    "BrokenPlan",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `nova --help` must not wait for numeric libraries."""
    if name not in __all__:
        raise AttributeError(f"module 'nova' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module("nova.api"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
