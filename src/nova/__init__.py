"""Nova: where does every stream join run, in how many replicas and on which part of each stream?

>>> import nova                                            # doctest: +SKIP
>>> scenario = nova.load("scenario.yaml")                  # doctest: +SKIP
>>> plan = nova.optimize(scenario.problem, scenario.options)   # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nova.evaluation.metrics import evaluate
    from nova.model.options import Options
    from nova.model.plan import Plan
    from nova.model.problem import Problem
    from nova.optimizer import optimize
    from nova.scenario import load

__all__ = ["load", "optimize", "evaluate", "Options", "Plan", "Problem", "__version__"]

_HOME = {
    "load": "nova.scenario",
    "optimize": "nova.optimizer",
    "evaluate": "nova.evaluation.metrics",
    "Options": "nova.model.options",
    "Plan": "nova.model.plan",
    "Problem": "nova.model.problem",
}


def __getattr__(name: str) -> Any:
    """Import on first use: `nova --help` must not wait for numeric libraries."""
    if name not in _HOME:
        raise AttributeError(f"module 'nova' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
