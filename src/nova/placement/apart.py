"""Replicas apart from each other: sub-joins of which no two replicas may share a rack, a zone, or any other label."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nova.model.problem import Problem
from nova.model.replicas import Replicas
from nova.model.subjoins import SubJoins

Rows = npt.NDArray[np.intp]


def not_apart(problem: Problem, joins: SubJoins, replicas: Replicas) -> Rows:
    """Sub-joins of which two replicas share a value that they must not share, or run where there is none."""
    found = [np.empty(0, np.intp)]
    query = joins.query[replicas.join]
    for number, one in enumerate(problem.queries):
        if one.apart is None:
            continue
        value = places(problem, one.apart)
        mine = np.flatnonzero(query == number)
        join, node = replicas.join[mine].astype(np.int64), replicas.node[mine]
        pairs = np.unique(np.column_stack([join, node]), axis=0)  # boxes on one host are one replica to others
        keys, count = np.unique(np.column_stack([pairs[:, 0], value[pairs[:, 1]]]), axis=0, return_counts=True)
        found.append(keys[(count > 1) | (keys[:, 1] < 0), 0].astype(np.intp))
    return np.unique(np.concatenate(found))


def places(problem: Problem, label: str) -> npt.NDArray[np.int64]:
    """A number for each value of a label, by node; −1 without one."""
    nodes = problem.nodes
    if label == "id":
        return np.arange(len(nodes))
    coded = nodes.labels[label].cast(pa.string()).dictionary_encode().indices
    return np.asarray(coded.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
