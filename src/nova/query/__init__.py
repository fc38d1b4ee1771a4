"""Queries in SQL: text → statement → operator graph with rates → two-way joins, and what runs around each.

dialect     the part of Spark's SQL that queries are written in; faults with line, column and token
spellings   other ways to write what the dialect says
windows     TUMBLE, HOP, intervals, and how far apart two times are
names       whose column each name is
statement   what a text says: filters, keys, windows and the rest
analysis    from a text to its statement
groupjoins  joins of groups, as one query that groups by a window
layers      what is asked of the groups of a window once it is over
rates       selectivities, stated or estimated
graph       operators with the rate on every edge
keys        by what a join divides, and how much comes out of it
order       which streams of several are joined first, by rates and distances
stages      a join of several streams as two-way joins that read each other's results
lower       expressions for the source's node, the host and the sink
"""

from nova.model.operators import Tree
from nova.query.analysis import analyse
from nova.query.dialect import SqlFault
from nova.query.graph import build_graph
from nova.query.keys import key_of, output_of
from nova.query.lower import MADE_OF, attribute_keys, copies, lower, refuse_unplanned, window_us
from nova.query.order import Ground, aliases_of, best_order, flows_along, shares_along, wrong_order
from nova.query.rates import matching, passing
from nova.query.stages import Stage, stages_of
from nova.query.statement import Schema, Statement, short_sql

__all__ = [
    "MADE_OF",
    "Ground",
    "Schema",
    "SqlFault",
    "Stage",
    "Statement",
    "Tree",
    "aliases_of",
    "analyse",
    "attribute_keys",
    "best_order",
    "build_graph",
    "copies",
    "flows_along",
    "key_of",
    "lower",
    "output_of",
    "passing",
    "matching",
    "refuse_unplanned",
    "shares_along",
    "short_sql",
    "stages_of",
    "window_us",
    "wrong_order",
]
