"""Queries in SQL: text → statement → operator graph with rates → what runs around a two-way join.

dialect     the part of Spark's SQL that queries are written in; faults with line, column and token
statement   names resolved, conditions sorted into filters, keys, windows and the rest
rates       selectivities, stated or estimated
graph       operators with the rate on every edge
keys        by what a join divides, and how much comes out of it
lower       expressions for the source's node, the host and the sink
"""

from nova.query.dialect import SqlFault
from nova.query.graph import build_graph
from nova.query.keys import key_of, output_of
from nova.query.lower import attribute_keys, copies, lower, window_us
from nova.query.rates import passing
from nova.query.statement import Schema, Statement, analyse, short_sql

__all__ = [
    "Schema",
    "SqlFault",
    "Statement",
    "analyse",
    "attribute_keys",
    "build_graph",
    "copies",
    "key_of",
    "lower",
    "output_of",
    "passing",
    "short_sql",
    "window_us",
]
