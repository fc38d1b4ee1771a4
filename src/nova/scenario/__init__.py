"""What the user writes: a scenario file and its tables, checked and turned into a Problem."""

from nova.scenario.builder import Model
from nova.scenario.digest import digest
from nova.scenario.model import Columns, Document, Query, Stream, StreamInput, Window, schema
from nova.scenario.scenario import Explained, Scenario, load, load_queries

__all__ = [
    "load",
    "Model",
    "load_queries",
    "Explained",
    "Scenario",
    "Document",
    "Stream",
    "StreamInput",
    "Columns",
    "Query",
    "Window",
    "schema",
    "digest",
]
