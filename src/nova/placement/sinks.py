"""Sinks that host joins: their results come in, too, and take room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nova.model.merges import mergeable_queries
from nova.model.problem import Floats, Problem
from nova.model.rates import known_rates
from nova.model.subjoins import SubJoins


def expected_results(problem: Problem, joins: SubJoins) -> Floats:
    """Results/s that reach each node wherever their joins run. Where nobody knows how many a sub-join makes, none
    count; nor do partial aggregates, which depend on the hosts, nor what a later join reads."""
    plain = ~mergeable_queries(problem) & np.array([query.makes is None for query in problem.queries], np.bool_)
    known = np.nan_to_num(known_rates(problem, joins)) * plain[joins.query]
    return np.bincount(joins.sink, known, len(problem.nodes)).astype(np.float64)


def beside_results(problem: Problem, joins: SubJoins) -> Problem:
    """The problem as placing sees it: to a sink, its results are work like any other. The same where no host gets
    any."""
    expected = expected_results(problem, joins) * problem.nodes.hosts
    if not expected.any():
        return problem
    return replace(problem, nodes=replace(problem.nodes, busy=problem.nodes.other_load + expected))
